"""The tools compared with our models, and one of them in a separate process: `python -m benchmarks.peer`.

A library is imported only in the process that runs it. The process chooses the tool's settings on the first rows, or runs it over
all rows; it writes its outcome as JSON, and the predictions beside it.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import stopwatch
from benchmarks.peer_tuning import Settings, choose
from benchmarks.split import Outcome, Split, load, log_loss

Run = Callable[..., Outcome]
Ladders = dict[str, tuple[float, ...]]
NOTHING: dict[str, Any] = {}
OURS = (
    "PairFM", "FM-MLP", "FFM-MLP", "Sparse-MLP", "MatchBox", "AdPredictor", "FTRL-Proximal", "MatchBox, priors that follow",
    "AdPredictor, priors that follow",
)  # fmt: skip
REFERENCE = f"PBODL {OURS[0]}"


class Peer(NamedTuple):
    """`ladders` are the settings to choose from: the first tuple is searched first, then the second at its best, and so on."""

    name: str
    note: str
    run: Run
    ladders: Ladders = NOTHING
    start: Settings = NOTHING
    tune_rows: int = 50_000
    warm_up: Callable[[Split], None] | None = None

    @property
    def ours(self) -> bool:
        return self.name.startswith("PBODL")


def _vw(options: str, bits: int) -> Run:
    def run(split: Split, **settings: float) -> Outcome:
        from benchmarks.rivals import vw_passes

        return vw_passes.run(split, options.format(**settings), bits)

    return run


def _vw_caches(split: Split) -> None:
    from benchmarks.rivals import vw_passes

    vw_passes.prepare(split)


def _river(function: str, *arguments: int) -> Run:
    def run(split: Split, **settings: float) -> Outcome:
        from benchmarks.rivals import river_models

        return getattr(river_models, function)(split, *arguments, **settings)

    return run


def _lightgbm(split: Split, **settings: float) -> Outcome:
    from benchmarks.rivals import lightgbm_trees

    return lightgbm_trees.run(split, **settings)


def _network(name: str) -> Peer:
    def run(split: Split, **settings: float) -> Outcome:
        from benchmarks.rivals import torch_online

        return torch_online.run(split, name, **settings)

    return Peer(f"PyTorch {name}", "Adagrad", run, {"rate": RATES, "batch": BATCHES}, {"rate": 0.05, "batch": 256.0}, 20_000)


def _ours(name: str) -> Peer:
    def run(split: Split) -> Outcome:
        from benchmarks import ours_online

        return ours_online.run(split, name)

    def warm_up(split: Split) -> None:
        from benchmarks import ours_online

        ours_online.warm_up(split, name)

    return Peer(f"PBODL {name}", "default settings", run, warm_up=warm_up)


FM_TRAIN_ROWS, FM_TEST_ROWS = 20_000, 10_000
FM_NOTE = f"8 factors, else defaults; learned the last {FM_TRAIN_ROWS:,} rows, scored the first {FM_TEST_ROWS:,} test rows"
TREES_NOTE = "a batch learner: the number of trees by early stopping, twice over the rows"
RATES = (0.0063, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
BATCHES = (64.0, 128.0, 256.0, 512.0, 1024.0)
VW_RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
SGD_RATES, FTRL_RATES = (0.001, 0.003, 0.01, 0.03, 0.1), (0.02, 0.05, 0.1, 0.2, 0.4)
NETWORKS = ("FwFM", "FM-MLP", "DeepFM", "DCNv2", "PNN", "FinalMLP")
PEERS = (
    *(_ours(name) for name in OURS),
    *(_network(name) for name in NETWORKS),
    Peer("Vowpal Wabbit, linear", "-b 22", _vw("-l {l}", 22), {"l": VW_RATES}, {"l": 0.5}, warm_up=_vw_caches),
    Peer("Vowpal Wabbit, --ftrl", "-b 22", _vw("--ftrl --ftrl_alpha {a}", 22), {"a": VW_RATES}, {"a": 0.2}, warm_up=_vw_caches),
    Peer("Vowpal Wabbit, -q ::", "-b 24", _vw("-q :: -l {l}", 24), {"l": VW_RATES}, {"l": 0.1}, warm_up=_vw_caches),
    Peer(
        "Vowpal Wabbit, -q :: --ftrl", "-b 24", _vw("-q :: --ftrl --ftrl_alpha {a}", 24), {"a": VW_RATES}, {"a": 0.05},
        warm_up=_vw_caches,
    ),
    Peer("River, LogisticRegression, SGD", "", _river("logistic"), {"rate": SGD_RATES}, {"rate": 0.01}, 50_000),
    Peer(
        "River, LogisticRegression, FTRLProximal", "", _river("ftrl"), {"alpha": FTRL_RATES}, {"alpha": 0.1}, 20_000,
    ),
    Peer("River, FMClassifier", FM_NOTE, _river("fm", FM_TRAIN_ROWS, FM_TEST_ROWS)),
    Peer(
        "LightGBM", TREES_NOTE, _lightgbm, {"leaves": (15.0, 31.0, 63.0, 127.0), "rate": (0.03, 0.1, 0.3)},
        {"leaves": 63.0, "rate": 0.1}, 20_000,
    ),
)  # fmt: skip


def tune(peer: Peer, split: Split) -> dict[str, Any]:
    """Choose the settings on the first rows."""
    few = split.first(peer.tune_rows)
    losses: dict[str, float] = {}

    def loss_of(settings: Settings) -> float:
        before = peer.run(few, **settings).before
        assert before is not None
        losses[json.dumps(settings)] = log_loss(before, few.clicks[-len(before) :])
        return losses[json.dumps(settings)]

    return choose(peer.start, peer.ladders, loss_of)._asdict() | {"rows": few.learned, "losses": losses}


def measure(peer: Peer, split: Split, settings: Settings, path: Path) -> dict[str, Any]:
    """Run the tool over all rows; its predictions go to a file."""
    resident = stopwatch.resident()
    outcome = peer.run(split, **settings)
    facts = outcome._asdict() | {"memory": stopwatch.peak() - resident, "progressive": None}
    if outcome.before is not None:
        facts["progressive"] = log_loss(outcome.before, split.clicks[: split.learned][-len(outcome.before) :])
    arrays = {name: facts.pop(name) for name in ("before", "predicted", "learning_on")}
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with the rows")
    parser.add_argument("number", type=int, help="number of the peer")
    parser.add_argument("outcome", type=Path, help="JSON file for the outcome")
    parser.add_argument("--settings", type=json.loads, help="settings of the tool, as JSON; without them, they are chosen")
    options = parser.parse_args()

    peer, split = PEERS[options.number], load(options.folder)
    if peer.warm_up is not None:
        peer.warm_up(split if options.settings is not None else split.first(peer.tune_rows))
    if options.settings is None:
        facts = tune(peer, split)
    else:
        facts = measure(peer, split, options.settings, options.outcome.with_suffix(".npz"))
    options.outcome.write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
