"""`python -m benchmarks.parallel SETTING ...`: the cost in accuracy of ways to train in parallel, on a generated click log.

The first nine tenths are learned, the last tenth is the test. Progressive figures use the predictions made before learning; in a
cluster, those of the pulled weights.
    sequential           one kernel, one thread
    threads:2, turns:8   threads that share the rows; the same, taking turns
    shared:16x256        a simulated cluster of 16 workers with minibatches of 256 rows, and the merge rule; add:2x256 the paper's
    ep:5, passes:2       reinforcement, minibatches of 256 rows: that many passes at most
    sets:2               two sets of workers with other non-clicks, sampled to 0.3; sets:1 is its baseline
    window:poisoned      4 workers; half of the labels of rows 98,304 to 131,072 are wrong. window:skipped never learns them,
                         window:clean has none wrong
and after a + `init=7` (the seed of the model, else that of the world), `burn=100k`, `half` (16 bits on the wire), `paper` (passes
and sets as the paper counts them), `merge=add` (threads), `wrong=0.05` (that share of the labels in the third fifth of the log is
wrong).
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pbodl
from benchmarks.workload import make_workload
from pbodl.data.batch import Batch
from pbodl.data.convert import concat
from pbodl.data.sampling import kept_rows, selected
from pbodl.models.clock import parse_duration
from pbodl.parallel.message import Message
from pbodl.parallel.simulated import Cluster
from pbodl.parallel.threads.learning_threads import learn_with_threads
from pbodl.parallel.worker import Worker
from pbodl.training.stream_metrics import StreamMetrics
from pbodl.training.visits.reinforcement import EP, Passes

CHUNK = 32_768
SETS_RATE = 0.3
WINDOW = 3  # the chunk that is poisoned
Learn = Callable[[Batch], NDArray[np.float64]]


class Watched(Worker):
    """A worker that predicts with the weights it pulled."""

    def learn(self, task: Any, pulled: Any, workers: int = 1) -> tuple[Message, NDArray[np.float64]]:
        self._load(task, pulled)
        predicted = self.local.predict(task.batch).ctr
        message, ctr = super().learn(task, pulled, workers)
        return message, ctr if workers == 1 else predicted


class Window:
    """A cluster that learns a window of wrong labels, or leaves it out."""

    def __init__(self, model: pbodl.FMMLP, mode: str) -> None:
        self.mode, self.chunk = mode, 0
        self.cluster = Cluster(model, 4, 256)

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        inside = self.chunk == WINDOW
        self.chunk += 1
        if inside and self.mode == "skipped":
            return np.full(len(batch), np.nan)
        if inside and self.mode != "clean":
            batch = with_wrong_labels(batch, 0.5, 0, len(batch))
        return self.cluster.learn(batch)

    def model(self) -> pbodl.DeepProbit:
        return self.cluster.model()


def learner(setting: str, schema: pbodl.Schema, seed: int) -> tuple[Learn, Callable[[], pbodl.DeepProbit]]:
    """A function that learns a chunk, and one that returns the final model."""
    kind, _, amount = setting.split("+")[0].partition(":")
    extras: dict[str, Any] = dict(part.partition("=")[::2] for part in setting.split("+")[1:])
    burn_in = parse_duration(f"{extras['burn']} rows", "burn") if "burn" in extras else None
    model = pbodl.FMMLP(schema, seed=int(extras.get("init", seed)), negative_rate=SETS_RATE if kind == "sets" else 1.0)
    if kind in ("shared", "add"):
        workers, rows = map(int, amount.split("x"))
        cluster = Cluster(model, workers, rows, merge=kind, burn_in=burn_in, half="half" in extras)
        cluster.workers = [Watched(model, worker.source, kind) for worker in cluster.workers]
        return cluster.learn, cluster.model
    if kind == "window":
        window = Window(model, amount)
        return window.learn, window.model
    if kind == "sets":
        sets, seen = int(amount), [0]
        cluster = Cluster(model, 4 * sets, 256)

        def learn(batch: Batch) -> NDArray[np.float64]:
            cluster.learn(multiple_data(batch, seen[0], seed, SETS_RATE, sets, paper="paper" in extras))
            seen[0] += len(batch)
            return np.full(len(batch), np.nan)

        return learn, cluster.model
    if kind in ("threads", "turns"):
        learn_with_threads(model, int(amount), extras.get("merge", "shared"), burn_in, in_turns=kind == "turns")
    elif kind == "ep":
        model.learn_with(EP(int(amount)))
    elif kind == "passes":
        model.learn_with(Passes(int(amount), paper="paper" in extras))
    elif kind != "sequential":
        raise SystemExit(f"unknown setting {setting!r}; see python -m benchmarks.parallel --help")
    return model.learn, lambda: model


def multiple_data(batch: Batch, position: int, seed: int, rate: float, sets: int, rows: int = 256, paper: bool = False) -> Batch:
    """The rows of `sets` sets of workers: every set has all clicks, and its own random share `rate` of the non-clicks.

    Minibatches of `rows` rows come from the sets in turn, so that workers that take one each learn all sets side by side. Every set
    has the power 1/sets, so that together they count a click once; `paper=True` counts it once per set.
    """
    assert batch.clicks is not None
    chosen = [selected(batch, kept_rows(batch.clicks, position, seed + number, rate)) for number in range(sets)]
    power = np.float32(1.0 if paper else 1.0 / sets)
    chosen = [part._replace(weights=part.weights * power) for part in chosen]
    starts = range(0, max(len(part) for part in chosen), rows)
    return concat([part.rows(start, start + rows) for start in starts for part in chosen if start < len(part)])


def with_wrong_labels(batch: Batch, share: float, first: int, last: int) -> Batch:
    """The batch with this share of the labels of rows `first` to `last` inverted."""
    assert batch.clicks is not None
    clicks = batch.clicks.copy()
    turned = first + np.flatnonzero(np.random.default_rng(0).random(last - first) < share)
    clicks[turned] = 1.0 - clicks[turned]
    return batch._replace(clicks=clicks)


def figures(predicted: NDArray[np.float64], clicks: NDArray[np.float32]) -> Any:
    metrics = StreamMetrics()
    metrics.add(predicted, clicks)
    return metrics.figures()


def measure(setting: str, rows: int, seed: int) -> str:
    """One line of the table."""
    workload = make_workload(rows, seed)
    whole, stop = workload.batch, rows * 9 // 10
    train = whole.rows(0, stop)
    wrong = [float(part.partition("=")[2]) for part in setting.split("+") if part.startswith("wrong=")]
    if wrong:
        train = with_wrong_labels(train, wrong[0], rows * 2 // 5, rows * 3 // 5)
    learn, trained = learner(setting, workload.schema, seed)
    began = time.process_time()
    ctr = np.concatenate([learn(train.rows(start, start + CHUNK)) for start in range(0, stop, CHUNK)])
    seconds = time.process_time() - began
    test = figures(trained().predict(whole.rows(stop, rows)).ctr, workload.clicks[stop:])
    progressive = f"{figures(ctr, workload.clicks[:stop]).log_loss:.4f}" if np.isfinite(ctr).all() else "–"
    return f"| {setting} | {seed} | {test.auc:.4f} | {test.log_loss:.4f} | {progressive} | {test.calibration:.3f} | {seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds of the world and the model")
    options = parser.parse_args()
    warnings.simplefilter("always")
    print("| setting | seed | AUC | log loss | progressive | calibration | CPU s |\n|---|---|---|---|---|---|---|")
    for seed in options.seeds:
        for setting in options.settings:
            print(measure(setting, options.rows, seed), flush=True)


if __name__ == "__main__":
    main()
