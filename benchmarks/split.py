"""The rows of the comparison with other tools, in files that the tools' processes read: six sevenths to learn, one to test by."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

import pbodl
from pbodl.data.convert import Batch
from pbodl.errors import InputError
from pbodl.experiments.compare.lightgbm_rival import with_raw_numbers


class Split(NamedTuple):
    """A log. `places` numbers the features of all rows densely, for tools that need that: [rows, fields].

    A number that is on a curve in the schema is in a bucket there: other tools want one value of each field.
    """

    schema: pbodl.Schema
    batch: Batch
    raw_schema: pbodl.Schema  # with numbers as they are, for tools that cut them themselves
    raw: Batch
    places: NDArray[np.int64]
    features: int
    learned: int  # rows to learn; those after them are for testing
    folder: Path  # for files of a tool's own, shared by its runs

    @property
    def clicks(self) -> NDArray[np.float32]:
        assert self.batch.clicks is not None
        return self.batch.clicks

    def first(self, rows: int) -> "Split":
        """The first rows to learn, for choosing a setting; without rows for testing."""
        rows = min(rows, self.learned)
        parts = {"batch": self.batch.rows(0, rows), "raw": self.raw.rows(0, rows), "places": self.places[:rows]}
        return self._replace(**parts, learned=rows)

    def parts(self, start: int, stop: int, size: int) -> list[Batch]:
        """Rows start to stop, `size` at a time."""
        return [self.batch.rows(first, min(first + size, stop)) for first in range(start, stop, size)]


class Outcome(NamedTuple):
    """The outcome of a tool on a split."""

    rows: int  # learned
    seconds: float
    cpu_seconds: float
    before: NDArray[np.float32] | None  # predictions of the last learned rows, before they were learned; None for a batch tool
    predicted: NDArray[np.float32]  # for the test rows; if fewer, for the first ones
    learning_on: NDArray[np.float32] | None = None  # for the test rows, each before it was learned as well


def learned_of(rows: int) -> int:
    """The rows to learn; the last seventh is for testing."""
    return rows * 6 // 7


def log_loss(predicted: NDArray, clicks: NDArray) -> float:
    p = np.clip(np.asarray(predicted, dtype=np.float64), 1e-7, 1.0 - 1e-7)
    return float(-np.mean(np.where(clicks > 0, np.log(p), np.log1p(-p))))


def with_buckets(schema: pbodl.Schema) -> pbodl.Schema:
    """The schema with buckets between the same edges in place of curves."""
    fields = [
        msgspec.structs.replace(field, transform="buckets", edges=field.edges[1:-1] or field.edges[1:]) if field.is_curve else field
        for field in schema.fields
    ]
    return msgspec.structs.replace(schema, fields=tuple(fields))


def write_log(folder: Path, schema: pbodl.Schema, read: Callable[[pbodl.Schema], Batch]) -> None:
    """Write the rows to files, so that no tool pays for making them; `read` makes them for a schema."""
    if any(field.kind == "multi" for field in schema.fields):
        raise InputError("the log has lists; the tools of this comparison want one value of each field")
    folder.mkdir(parents=True, exist_ok=True)
    batch, plain, raw_schema = read(schema), with_buckets(schema), with_raw_numbers(schema)
    single = batch if plain == schema else read(plain)
    raw = batch if raw_schema == schema else read(raw_schema)
    row = np.repeat(np.arange(len(single)), np.diff(single.indptr))
    keys = np.zeros((len(single), len(schema.fields)), np.uint64)  # 0 is a missing value
    keys[row, single.fields] = single.keys
    # A missing value is one of its own field.
    keys += np.where(keys == 0, np.arange(1, keys.shape[1] + 1, dtype=np.uint64), np.uint64(0))
    known, places = np.unique(keys, return_inverse=True)
    np.save(folder / "places.npy", places.reshape(keys.shape))
    np.save(folder / "features.npy", len(known))
    for name, part, of in (("batch", batch, schema), ("raw", raw, raw_schema)):
        np.savez(folder / f"{name}.npz", **{column: values for column, values in part._asdict().items() if values is not None})
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(of))


def load(folder: Path) -> Split:
    schema, raw_schema = (
        msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=pbodl.Schema) for name in ("batch", "raw")
    )
    batch, raw = (Batch(**dict(np.load(folder / f"{name}.npz"))) for name in ("batch", "raw"))
    places, features = np.load(folder / "places.npy"), int(np.load(folder / "features.npy"))
    return Split(schema, batch, raw_schema, raw, places, features, learned_of(len(batch)), folder)
