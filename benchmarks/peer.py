"""The tools compared with our models, and one run of one of them in a separate process: `python -m benchmarks.peer`.

A library is imported only in the process that runs it. A run writes its outcome as JSON, and its predictions beside it.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import stopwatch
from benchmarks.split import Outcome, Split, load


class Peer(NamedTuple):
    """`values` are the settings to choose from; if there are several, each is tried on the first `tune_rows` rows."""

    name: str
    note: str
    run: Callable[[Split, float], Outcome]
    values: tuple[float, ...]
    what: str = ""  # the values are of
    tune_rows: int = 100_000
    warm_up: Callable[[Split], None] | None = None


def _vw(options: str, bits: int) -> Callable[[Split, float], Outcome]:
    def run(split: Split, value: float) -> Outcome:
        from benchmarks.rivals import vw_passes

        return vw_passes.run(split, options.format(value), bits)

    return run


def _vw_caches(split: Split) -> None:
    from benchmarks.rivals import vw_passes

    vw_passes.prepare(split)


def _river(function: str, *arguments: int) -> Callable[[Split, float], Outcome]:
    def run(split: Split, value: float) -> Outcome:
        from benchmarks.rivals import river_models

        return getattr(river_models, function)(split, *(arguments or (value,)))

    return run


def _torch(split: Split, value: float) -> Outcome:
    from benchmarks.rivals import torch_online

    return torch_online.run(split, value)


def _lightgbm(split: Split, value: float) -> Outcome:
    from benchmarks.rivals import lightgbm_trees

    return lightgbm_trees.run(split, int(value))


def _ours(name: str) -> Peer:
    def run(split: Split, _: float) -> Outcome:
        from benchmarks import ours_online

        return ours_online.run(split, *ours_online.MODELS[name])

    def warm_up(split: Split) -> None:
        from benchmarks import ours_online

        ours_online.warm_up(split, *ours_online.MODELS[name])

    return Peer(f"PBODL {name}", "default settings", run, (0.0,), warm_up=warm_up)


OURS = ("AdPredictor", "FTRL-Proximal", "MatchBox", "Sparse-MLP", "FM-MLP", "FM-MLP, shortcut", "FFM-MLP", "FFM-MLP, shortcut")
FM_TRAIN_ROWS, FM_TEST_ROWS = 20_000, 10_000
RATES, PAIR_RATES, ALPHAS = (0.1, 0.5, 1.0), (0.01, 0.03, 0.1, 0.3), (0.05, 0.2, 0.5, 1.0)
FM_NOTE = f"8 factors, else defaults; learned the last {FM_TRAIN_ROWS:,} training rows, scored the first {FM_TEST_ROWS:,} test rows"
TREES_NOTE = "63 leaves, rate 0.1; batch: rows/s of both trainings, the first to stop early on the last training day"
PEERS = (
    Peer("Vowpal Wabbit, linear", "-b 22", _vw("-l {}", 22), RATES, "-l", warm_up=_vw_caches),
    Peer("Vowpal Wabbit, --ftrl", "-b 22", _vw("--ftrl --ftrl_alpha {}", 22), ALPHAS, "--ftrl_alpha", warm_up=_vw_caches),
    Peer("Vowpal Wabbit, -q ::", "-b 24", _vw("-q :: -l {}", 24), PAIR_RATES, "-l", warm_up=_vw_caches),
    Peer("River, LogisticRegression, SGD", "", _river("logistic"), (0.001, 0.003, 0.01, 0.03), "rate", 50_000),
    Peer("River, LogisticRegression, FTRLProximal", "", _river("ftrl"), (0.05, 0.1, 0.2, 0.4), "alpha", 20_000),
    Peer("River, FMClassifier", FM_NOTE, _river("fm", FM_TRAIN_ROWS, FM_TEST_ROWS), (0.0,)),
    Peer("PyTorch FM-MLP", "sparse Adagrad, batch 1024", _torch, (0.02, 0.05, 0.1, 0.2), "rate", 200_000),
    Peer("LightGBM", TREES_NOTE, _lightgbm, (63.0,)),
    *(_ours(name) for name in OURS),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with the rows, and for the outcome")
    parser.add_argument("number", type=int, help="number of the peer")
    parser.add_argument("value", type=float, help="value of its tuned setting")
    parser.add_argument("--first", type=int, help="learn only the first rows, and score nothing")
    options = parser.parse_args()

    peer, split = PEERS[options.number], load(options.folder)
    split = split.first(options.first) if options.first else split
    if peer.warm_up is not None:
        peer.warm_up(split)
    before = stopwatch.resident()
    outcome = peer.run(split, options.value)
    facts = outcome._asdict() | {"memory": stopwatch.peak() - before}
    np.save(options.folder / "predicted.npy", facts.pop("predicted"))
    (options.folder / "outcome.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
