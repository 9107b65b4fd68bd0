"""Exploration: CTRs that give uncertain candidates a chance.

*Thompson sampling* answers the CTRs under one draw of all weights. What the candidates share (the user, the context, an advertiser)
moves them together and leaves their order alone; what is uncertain about a candidate itself may carry it to the top. A key fixes
the noise, so that the draw stays for as long as the key does, on every server.

An *upper confidence bound* adds c deviations. All candidates have some variance in common, and raising them all by it would favour
candidates where Φ is steep, so only the excess over the least uncertain candidate counts: Φ((m + c √e)/√(1 + v - e)) with
e = spread² (v - least v).

Both are recalibrated like the CTR itself; with a spread of 0 both are the CTR itself.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.hashing import hash_value, wrapping
from pbodl.data.sampling import recalibrate
from pbodl.kernels.draws import draw_seed
from pbodl.kernels.network import click_probability
from pbodl.models.joint_draws import spread_out
from pbodl.serving.scoring.predictor import Predictor, Scores
from pbodl.serving.scoring.remembered_ads import CAPACITY
from pbodl.serving.scoring.request_encoding import Encoded

KEY = "explore_key"
_ANY = np.random.default_rng()


def seed_of_draw(key: str | int | None, seed: int | None) -> np.uint64:
    """The seed of a request's draw: a pure function of key and seed, if one of them is given; otherwise random.

    Without a key, it is the seed of line 0 of `model.sample` with this seed.
    """
    if key is None and seed is None:
        return _ANY.integers(0, 2**64, dtype=np.uint64)
    with wrapping():
        return np.uint64(draw_seed(np.uint64(seed or 0), np.uint64(0 if key is None else hash_value(KEY, key))))


class Exploration(NamedTuple):
    """What a request asks for."""

    rule: str = "none"
    key: str | int | None = None
    seed: int | None = None
    spread: float = 1.0
    c: float = 1.0


def explore(predictor: Predictor, shared: Encoded, own: Encoded, asked: Exploration) -> tuple[Scores, NDArray[np.float64]]:
    """The scores of a request, and the CTRs that the rule makes of them."""
    model = predictor.version.model
    if asked.rule == "thompson":
        scores, drawn = predictor.draw_encoded(shared, own, seed_of_draw(asked.key, asked.seed))
        return scores, thompson(scores, drawn, asked.spread, model.negative_rate, model.doubt)
    scores = predictor.score_encoded(shared, own)
    if asked.rule == "none" or not len(scores.ctr):
        return scores, scores.ctr
    return scores, upper_bounds(scores, asked.spread, asked.c, model.negative_rate)


def thompson(scores: Scores, drawn: NDArray[np.float64], spread: float, kept: float, doubt: float = 1.0) -> NDArray[np.float64]:
    """The CTRs of a draw; `kept` is the model's negative rate, `doubt` what its variance is beyond that of its weights."""
    ctr = np.empty(len(drawn))
    spread_out(scores.mean, scores.variance, drawn, spread, doubt, ctr)
    return recalibrate(ctr, kept)


def upper_bounds(
    scores: Scores, spread: float, c: float, kept: float, least: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Upper confidence bounds; `kept` is the model's negative rate, `least` the least variance among a candidate's rivals."""
    ctr, (_, _, mean, variance) = np.empty(len(scores.ctr)), scores
    excess = min(spread**2, 1.0) * (variance - (variance.min() if least is None else least))
    click_probability(mean + c * max(spread, 1.0) * np.sqrt(excess), variance - excess, ctr)
    return recalibrate(ctr, kept)


@jit
def seeds_of_draws(seeds):
    """As `seed_of_draw` without a key, for many seeds."""
    stirred = np.empty(len(seeds), np.uint64)
    for i in range(len(seeds)):
        stirred[i] = draw_seed(seeds[i], np.uint64(0))
    return stirred


def explore_requests(
    predictor: Predictor, shared: NDArray[np.uint64], own: NDArray[np.uint64], indptr: NDArray[np.int64], rule: str,
    seeds: NDArray[np.uint64], spread: float = 1.0, c: float = 1.0,
) -> tuple[Scores, NDArray[np.float64]]:  # fmt: skip
    """As `explore` for requests whose candidates are indptr[i] to indptr[i + 1], with a seed for each."""
    model, drawing = predictor.version.model, rule == "thompson"
    with wrapping():
        stirred = seeds_of_draws(seeds if drawing else seeds[:0])
    parts = [
        predictor.score_requests(shared[a:b], own[indptr[a] : indptr[b]], indptr[a : b + 1] - indptr[a], stirred[a:b])
        for a, b in _runs(indptr)
    ]
    scores = Scores(*(np.concatenate(column) for column in zip(*(part[0] for part in parts), strict=True)))
    if rule == "none" or not len(scores.ctr):
        return scores, scores.ctr
    if drawing:
        drawn = np.concatenate([part[1] for part in parts])
        return scores, thompson(scores, drawn, spread, model.negative_rate, model.doubt)
    least = np.repeat(np.minimum.reduceat(scores.variance, indptr[:-1]), np.diff(indptr))
    return scores, upper_bounds(scores, spread, c, model.negative_rate, least)


def _runs(indptr: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """First and last request of parts with so few candidates that the cache has room for all their ads."""
    start, requests = 0, len(indptr) - 1
    while start < requests:
        stop = max(int(np.searchsorted(indptr, indptr[start] + CAPACITY, side="right")) - 1, start + 1)
        yield start, stop
        start = stop
