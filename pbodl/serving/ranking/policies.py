"""Policies: which candidates get the slots, and how probable each placement was.

    greedy    the largest CTR first, or the largest bid times CTR
    ucb       the same, with upper bounds of the CTRs (`scoring.exploration`)
    thompson  the same, with the CTRs under one draw of all weights
    epsilon   with probability ε a random order of the candidates, otherwise greedy

The *propensity* of a placement is the probability that the policy puts this candidate into this slot, over its own randomness. It
is 1 for greedy and ucb. For epsilon it is (1 - ε) [greedy puts it there] + ε/n. For Thompson sampling there is no formula:
`propensities` counts it in draws of the weights.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.serving.scoring.exploration import Exploration, explore, seed_of_draw, thompson, upper_bounds
from pbodl.serving.scoring.predictor import Predictor, Scores
from pbodl.serving.scoring.request_encoding import Encoded

POLICIES = ("greedy", "thompson", "ucb", "epsilon")
DRAWS = 200  # for an estimated propensity, unless a request asks for another number
MOST_DRAWS = 10_000
NUMBERS = {"thompson": "spread", "ucb": "c", "epsilon": "epsilon"}  # what a number behind a policy's name means
Floats = NDArray[np.float64]


class RankPolicy(NamedTuple):
    """A policy with its settings; key and seed fix its randomness."""

    name: str = "greedy"
    key: str | int | None = None
    seed: int | None = None
    spread: float = 1.0
    c: float = 1.0
    epsilon: float = 0.1

    @property
    def is_drawn(self) -> bool:
        """Whether its propensities are counted in draws of the weights."""
        return self.name == "thompson" and self.spread > 0.0

    @classmethod
    def parse(cls, text: str) -> "RankPolicy":
        """A policy as people write it: a name, and perhaps its number.

        >>> RankPolicy.parse("epsilon:0.05").epsilon, RankPolicy.parse("greedy").name
        (0.05, 'greedy')
        """
        name, colon, number = text.partition(":")
        most = 1.0 if name == "epsilon" else 100.0
        allowed = "greedy, thompson, thompson:SPREAD, ucb, ucb:C, epsilon, epsilon:SHARE"
        if name not in POLICIES or (colon and name not in NUMBERS):
            raise InputError(f"there is no policy {text!r}; give one of: {allowed}")
        if not colon:
            return cls(name)
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not 0.0 <= value <= most:
            raise InputError(f"policy {text!r}: {NUMBERS[name]} is {number!r}; it must be a number from 0 to {most:g}")
        settings: dict[str, Any] = {NUMBERS[name]: value}
        return cls(name, **settings)


class Ranking(NamedTuple):
    """The decision about one request."""

    placed: NDArray[np.int64]  # candidates by slot
    scores: Scores  # of all candidates, as the model predicts them
    seed: np.uint64 | None  # of the randomness that decided


def ordered(ctr: Floats, bids: Floats | None, slots: int) -> NDArray[np.int64]:
    """The candidates of the first slots; among equals, the first given comes first."""
    worth = ctr if bids is None else ctr * bids
    return np.argsort(-worth, kind="stable")[:slots]


def rank(predictor: Predictor, shared: Encoded, own: Encoded, bids: Floats | None, slots: int, policy: RankPolicy) -> Ranking:
    """Decide which candidates get the slots."""
    if policy.name == "thompson":
        seed, model = seed_of_draw(policy.key, policy.seed), predictor.version.model
        scores, drawn = predictor.draw_encoded(shared, own, seed)
        ctr = thompson(scores, drawn, policy.spread, model.negative_rate, model.doubt)
        return Ranking(ordered(ctr, bids, slots), scores, seed)
    if policy.name == "epsilon":
        seed, scores = seed_of_draw(policy.key, policy.seed), predictor.score_encoded(shared, own)
        luck = np.random.default_rng(int(seed))
        at_random = luck.random() < policy.epsilon
        placed = luck.permutation(len(scores.ctr))[:slots] if at_random else ordered(scores.ctr, bids, slots)
        return Ranking(placed, scores, seed)
    rule = Exploration("ucb" if policy.name == "ucb" else "none", spread=policy.spread, c=policy.c)
    scores, ctr = explore(predictor, shared, own, rule)
    return Ranking(ordered(ctr, bids, slots), scores, None)


def exact_placements(scores: Scores, bids: Floats | None, slots: int, policy: RankPolicy, kept: float) -> Floats:
    """The probability of every candidate in every slot, (candidates, slots), of a policy that is not drawn; `kept` is the model's
    negative rate."""
    n = len(scores.ctr)
    slots = min(slots, n)
    ctr = upper_bounds(scores, policy.spread, policy.c, kept) if policy.name == "ucb" and n else scores.ctr
    share = policy.epsilon if policy.name == "epsilon" else 0.0
    placements = np.full((n, slots), share / max(n, 1))
    placements[ordered(ctr, bids, slots), np.arange(slots)] += 1.0 - share
    return placements


def described(policy: RankPolicy) -> dict[str, Any]:
    """The policy's name and its number, for a log."""
    number = NUMBERS.get(policy.name)
    return {"policy": policy.name} | ({} if number is None else {number: getattr(policy, number)})
