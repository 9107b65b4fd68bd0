"""`python -m benchmarks.exploring`: how much longer a request takes if it explores, for 1000 candidates with 22 features each.

`scoring` is the predictor alone, from feature keys to CTRs; `answering` is all that a worker does, from the bytes of a body to the
bytes of the answer. Plain requests, Thompson sampling and UCB take turns, request by request, on one thread. `many at once` is a
call for several requests, as simulations make it: µs of CPU time for each candidate.
"""

import argparse
import gc
import time

import numpy as np
import orjson

import pbodl
from benchmarks.ads import SCHEMA, Traffic
from pbodl.serving.scoring.exploration import Exploration, explore, explore_requests
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import Encoded
from pbodl.serving.web.http_messages import JSON
from pbodl.serving.web.http_service import HttpService
from tests.serving.services import Fixed

REQUESTS = 40  # different ones, asked in turn
RULES = ("none", "thompson", "ucb")
MODELS = {"PairFM (default)": pbodl.PairFM, "FM-MLP": pbodl.FMMLP, "FFM-MLP": pbodl.FFMMLP, "Sparse-MLP": pbodl.SparseMLP}


def many_at_once(predictor: Predictor, encoded: list[tuple[Encoded, Encoded]], rounds: int) -> list[float]:
    """Median µs of CPU time per candidate, of plain scoring and of Thompson sampling."""
    shared, own = (np.concatenate([request[part].keys for request in encoded]) for part in (0, 1))
    indptr, seeds = np.cumsum([0, *(len(request[1].keys) for request in encoded)]), np.arange(len(encoded), dtype=np.uint64)
    took = np.empty((rounds + 1, 2))
    for lap in took:
        for i, rule in enumerate(RULES[:2]):
            start = time.process_time()
            explore_requests(predictor, shared, own, indptr, rule, seeds)
            lap[i] = 1e6 * (time.process_time() - start) / len(own)
    return np.median(took[1:], axis=0).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exploring", description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000, help="rows to learn first")
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART", help="only models whose name contains one of these")
    options = parser.parse_args()
    traffic = Traffic(1)
    rows = traffic.rows(options.rows)
    requests = [traffic.request(options.candidates) for _ in range(REQUESTS)]
    for name, kind in MODELS.items():
        if not any(part in name for part in options.only):
            continue
        model = kind(SCHEMA)
        model.learn(rows)
        predictor = Predictor.of(model)
        service, encoder = HttpService(Fixed(predictor)), predictor.encoder
        names = [field.name for field in encoder.own]
        encoded = [
            (
                encoder.encode_shared({**request["user"], **request["context"]}),
                encoder.encode_own([tuple(map(candidate.get, names)) for candidate in request["candidates"]]),
            )
            for request in requests
        ]
        bodies = {rule: [orjson.dumps({**request, "explore": rule}) for request in requests] for rule in RULES}
        took: dict[tuple[str, str], list[float]] = {}
        gc.collect()
        gc.disable()
        for lap in range(options.rounds + 1):
            for i in range(REQUESTS):
                for rule in RULES:
                    start = time.perf_counter()
                    explore(predictor, *encoded[i], Exploration(rule))
                    middle = time.perf_counter()
                    service.scores(service.asked_scores(None, JSON, bodies[rule][i]))
                    end = time.perf_counter()
                    if lap:
                        took.setdefault(("scoring", rule), []).append(1e3 * (middle - start))
                        took.setdefault(("answering", rule), []).append(1e3 * (end - middle))
        gc.enable()
        plain, drawn = many_at_once(predictor, encoded, options.rounds)
        print(f"{name}, many at once: none {plain:.2f} µs, thompson {drawn:.2f} µs; Thompson / plain {drawn / plain:.2f}")
        for what in ("scoring", "answering"):
            medians = [float(np.median(took[what, rule])) for rule in RULES]
            told = ", ".join(f"{rule} {median:.2f} ms" for rule, median in zip(RULES, medians, strict=True))
            print(
                f"{name}, {what}: {told}; Thompson / plain {medians[1] / medians[0]:.2f}, UCB / plain {medians[2] / medians[0]:.2f}"
            )


if __name__ == "__main__":
    main()
