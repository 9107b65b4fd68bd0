"""The rows of the comparison with other tools: all days but the last for learning, the last one for testing."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.workload import FIELDS, Workload, make_workload
from pbodl.data.convert import Batch
from pbodl.data.synthetic import World

DAY = 86400.0


class Split(NamedTuple):
    """`places` numbers the features of all rows densely, for the tools that need that: [rows, FIELDS], training rows first."""

    train: Workload
    test: Workload
    places: NDArray[np.int64]
    features: int
    folder: Path  # for files of a tool's own, shared by its runs

    def first(self, rows: int) -> "Split":
        """The first training rows, for choosing a setting; without test rows."""
        train = self.train._replace(batch=self.train.batch.rows(0, rows))
        return self._replace(train=train, test=self.test._replace(batch=self.test.batch.rows(0, 0)), places=self.places[:rows])


class Outcome(NamedTuple):
    """The outcome of a tool on a split."""

    rows: int  # learned
    seconds: float
    cpu_seconds: float
    progressive: float | None  # log loss of the training rows, each predicted before it was learned
    predicted: NDArray[np.float32]  # for the test rows; if fewer, for the first ones


def log_loss(predicted: NDArray, clicks: NDArray) -> float:
    p = np.clip(np.asarray(predicted, dtype=np.float64), 1e-7, 1.0 - 1e-7)
    return float(-np.mean(np.where(clicks > 0, np.log(p), np.log1p(-p))))


def prepare(rows: int, folder: Path) -> None:
    """Write the rows to files for the tools' processes, so that no tool pays for generating them."""
    workload = make_workload(rows)
    known, places = np.unique(workload.keys(), return_inverse=True)
    np.save(folder / "keys.npy", workload.keys())
    np.save(folder / "clicks.npy", workload.clicks)
    np.save(folder / "times.npy", workload.batch.times)
    np.save(folder / "index.npy", places.reshape(-1, FIELDS))
    np.save(folder / "features.npy", len(known))


def load(folder: Path) -> Split:
    names = ("keys", "clicks", "times", "index", "features")
    keys, clicks, times, places, features = (np.load(folder / f"{name}.npy") for name in names)
    n = len(clicks)
    schema = World(rows=1).schema
    values, fields = np.ones(n * FIELDS, dtype=np.float32), np.tile(np.arange(FIELDS, dtype=np.int32), n)
    indptr = np.arange(n + 1, dtype=np.int64) * FIELDS
    batch = Batch(keys.reshape(-1), values, fields, indptr, clicks, times, np.ones(n, dtype=np.float32))
    train = int(np.searchsorted(times, times[-1] // DAY * DAY))
    parts = (Workload(schema, batch.rows(0, train)), Workload(schema, batch.rows(train, n)))
    return Split(*parts, places, int(features), folder)
