"""How long `/v1/rank` takes with Thompson sampling and its propensities, beside greedy ranking.

    python -m benchmarks.serve_ranking
    python -m benchmarks.serve_ranking --kinds FMMLP --candidates 1000 --requests 20
    python -m benchmarks.serve_ranking --precision --candidates 1000

It measures all that a worker does, from the bytes of a body to those of the answer. Greedy ranking, Thompson sampling with one
slot, with ten, and with ten and bids take turns, request by request, on one thread; each model has learned the same rows. `one by
one` is the same decision with its propensity counted in 200 draws of all weights, each of which scores the request again.

With `--precision` it measures propensities instead: 150 counts of each request, with 10 slots, against 6,000 naive draws of it.
"""

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

import pbodl
from benchmarks.ads import SCHEMA, Traffic
from pbodl.serving.models.follower import Version
from pbodl.serving.ranking.policies import RankPolicy, rank
from pbodl.serving.ranking.propensities import CountOfDraws, counted_in_draws
from pbodl.serving.ranking.rank_messages import DRAWS
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import Encoded
from pbodl.serving.scoring.whole_predictor import predictor_of
from pbodl.serving.web.http_messages import JSON
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.server_limits import Limits
from tests.serving.services import Fixed

WAYS = {
    "greedy": {"policy": "greedy", "slots": 1},
    "greedy, 10 slots": {"policy": "greedy", "slots": 10},
    "thompson": {"policy": "thompson", "slots": 1},
    "thompson, 10 slots": {"policy": "thompson", "slots": 10},
    "thompson, 10 slots, bids": {"policy": "thompson", "slots": 10, "bids": True},
}
BEFORE = "one by one"


def answer(service: HttpService, body: bytes) -> None:
    deciding = service.asked_ranking(None, JSON, body).decided()
    while not deciding.step():
        pass
    deciding.finish()


def encoded(predictor: Predictor, request: dict[str, Any]) -> tuple[Encoded, Encoded]:
    encoder = predictor.encoder
    own = encoder.encode_own([tuple(map(candidate.get, encoder.own_columns)) for candidate in request["candidates"]])
    return encoder.encode_shared({**request["user"], **request["context"]}), own


def one_by_one(predictor: Predictor, body: bytes) -> None:
    """A decision and the count of its propensity, by naive draws."""
    policy = RankPolicy("thompson")
    shared, own = encoded(predictor, orjson.loads(body))
    decided = rank(predictor, shared, own, None, 1, policy)
    again = _Naive(predictor)
    luck = np.random.default_rng(0)
    CountOfDraws(again, shared, own, decided.scores, None, 1, policy, DRAWS, luck, decided.placed).step()  # type: ignore[arg-type]


class _Naive:
    """A predictor whose draws score the request each time."""

    def __init__(self, predictor: Predictor) -> None:
        self.version, self._predictor = predictor.version, predictor

    def drawing(self, shared: object, own: object) -> Callable[[np.uint64], np.ndarray]:
        return lambda seed: self._predictor.draw_encoded(shared, own, seed)[1]  # type: ignore[arg-type]


def precision(predictor: Predictor, request: dict[str, Any], counts: int = 150, naive: int = 6000) -> None:
    """Print how far the counts of a request are from naive draws, and how much they vary beside 200 naive draws."""
    shared, own = encoded(predictor, request)
    n, slots, luck, policy = len(own.keys), 10, np.random.default_rng(0), RankPolicy("thompson")
    scores, every = predictor.score_encoded(shared, own), np.arange(len(own.keys))
    ref = CountOfDraws(_Naive(predictor), shared, own, scores, None, slots, policy, naive, luck, every)  # type: ignore[arg-type]
    ref.step()
    total, squares = np.zeros((n, slots)), np.zeros((n, slots))
    for _ in range(counts):
        count = counted_in_draws(predictor, shared, own, scores, None, slots, policy, DRAWS, luck, every)
        count.step()
        total += count.hits / count.draws
        squares += (count.hits / count.draws) ** 2
    p, truth = total / counts, ref.hits / naive
    variance = (squares / counts - p**2) * counts / (counts - 1)
    for least, most in ((0.003, 0.01), (0.01, 0.03), (0.03, 0.1), (0.1, 1.0)):
        these = (p > least) & (p <= most)
        if these.any():
            away = (p - truth)[these] / np.sqrt(variance / counts + truth * (1.0 - truth) / naive + 1e-12)[these]
            ratio = variance[these] / (p * (1.0 - p) / DRAWS)[these]
            print(
                f"  propensity {least:g} to {most:g}: {these.sum()} placements, {np.sqrt((away**2).mean()):.2f} errors away;"
                f" variance {ratio.mean():.2f} times that of {DRAWS} draws, at most {ratio.max():.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=["PairFM"])
    parser.add_argument("--candidates", nargs="+", type=int, default=[1000, 5000])
    parser.add_argument("--rows", type=int, default=50_000, help="rows to learn first")
    parser.add_argument("--requests", type=int, default=200, help="of each way")
    parser.add_argument("--before", type=int, default=5, help="requests that are counted one by one")
    parser.add_argument("--precision", action="store_true", help="measure propensities instead of times")
    given = parser.parse_args()
    traffic = Traffic(1)
    rows = traffic.rows(given.rows)
    for kind in given.kinds:
        model = getattr(pbodl, kind)(SCHEMA)
        model.learn(rows)
        predictor = predictor_of(Version.of(model))
        for candidates in given.candidates:
            if given.precision:
                print(f"{kind}, {candidates:,} candidates")
                precision(predictor, traffic.request(candidates))
                continue
            service = HttpService(Fixed(predictor), Limits(candidates=candidates))
            requests, bids = (
                [traffic.request(candidates) for _ in range(20)],
                np.random.default_rng(0).lognormal(0.0, 0.5, candidates),
            )
            bodies = {
                name: [
                    orjson.dumps({**request, **way, **({"bids": bids.tolist()} if "bids" in way else {})}) for request in requests
                ]
                for name, way in WAYS.items()
            }
            took: dict[str, list[float]] = {name: [] for name in (*WAYS, BEFORE)}
            for body in bodies["thompson"]:
                answer(service, body)  # compiles, and caches the ads
            answer(service, bodies["thompson, 10 slots, bids"][0])
            gc.collect()
            gc.disable()
            for number in range(given.requests):
                for name in WAYS:
                    start = time.perf_counter()
                    answer(service, bodies[name][number % len(requests)])
                    took[name].append(1e3 * (time.perf_counter() - start))
                if number < given.before:
                    start = time.perf_counter()
                    one_by_one(predictor, bodies["thompson"][number])
                    took[BEFORE].append(1e3 * (time.perf_counter() - start))
            gc.enable()
            print(f"{kind}, {candidates:,} candidates, {given.requests} requests of each")
            greedy = np.median(took["greedy"])
            for name, lap in took.items():
                if lap:
                    p50, p90, p99 = np.percentile(lap, (50, 90, 99))
                    print(
                        f"  {name:26} p50 {p50:7.2f} ms, p90 {p90:7.2f}, p99 {p99:7.2f}, least {min(lap):7.2f};"
                        f" {p50 / greedy:6.2f} times greedy"
                    )


if __name__ == "__main__":
    main()
