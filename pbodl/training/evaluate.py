"""Figures of a frozen model on a log: overall with bootstrap intervals, by day, and by the values of a column.

Every row counts once: the log represents the whole stream, and the model recalibrates its predictions to it.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.log.log_reader import Chunk
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.training.display import OTHER
from pbodl.training.novelty import DAY
from pbodl.training.stream_metrics import StreamMetrics
from pbodl.training.tracker import plain

MOST_SLICES = 50
SETTLED = 1_000_000  # rows after which the most frequent values are decided
MISSING = "(missing)"
Floats = NDArray[np.float64]


def evaluate(
    model: Model,
    chunks: Iterable[Chunk],
    by: str | None = None,
    progress: Callable[[int], None] = lambda rows: None,
    replicates: int = 200,
) -> dict[str, Any]:
    """The model's figures on the labelled chunks of a log; changes nothing.

    `by` names a column of the chunks' tables: each of its most frequent values gets figures. `progress` gets the rows so far.
    """
    began = time.monotonic()
    overall, days = StreamMetrics(), _Days(replicates)
    slices = None if by is None else _Slices(by)
    rows = 0
    for chunk in chunks:
        predicted, clicks = model.predict(chunk.batch).ctr, chunk.batch.clicks
        assert clicks is not None
        overall.add(predicted, clicks)
        if model.schema.time is not None:
            days.add(chunk.batch.times, predicted, clicks)
        if slices is not None:
            slices.add(chunk.table, predicted, clicks)
        rows += len(predicted)
        progress(rows)
    seconds = time.monotonic() - began
    result = {"model": model.kind, "seconds": seconds, "rows_per_second": rows / max(seconds, 1e-9)}
    result |= _line(overall, replicates)
    result["days"] = days.lines()
    if slices is not None:
        result |= {"by": by, "slices": slices.lines(replicates)}
    return result


def _line(metrics: StreamMetrics, replicates: int) -> dict[str, Any]:
    intervals = metrics.intervals(replicates) if metrics.sums[0] else {}
    ends = {name: None if np.isnan(low) else [low, high] for name, (low, high) in intervals.items()}
    return {**plain(metrics.figures()), "intervals": ends}


class _Days:
    """Figures day by day; a row that goes back in time counts towards the latest day reached."""

    def __init__(self, replicates: int) -> None:
        self._replicates = replicates
        self._day = -np.inf
        self._metrics = StreamMetrics()
        self._lines: list[dict[str, Any]] = []

    def add(self, times: Floats, predicted: Floats, clicks: NDArray[np.float32]) -> None:
        days = np.maximum.accumulate(np.maximum(np.floor(times / DAY), self._day))
        for day in np.unique(days):
            if day != self._day:
                self._close()
                self._day = float(day)
            mine = days == day
            self._metrics.add(predicted[mine], clicks[mine])

    def _close(self) -> None:
        if self._metrics.sums[0]:
            self._lines.append({"start": self._day * DAY, **_line(self._metrics, self._replicates)})
        self._metrics.clear()

    def lines(self) -> list[dict[str, Any]]:
        self._close()
        return self._lines


class _Slices:
    """Figures by the values of a column.

    Each of the 50 most frequent values is a slice, and all others together are one. The frequent values are decided after a million
    rows, which are held until then, so memory is bounded for any column.
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._indices: dict[str | None, int] = {}  # of all values; once settled, of the frequent ones
        self._held: list[tuple[NDArray[np.int64], Floats, NDArray[np.float32]]] = []
        self._rows = 0
        self._metrics: list[StreamMetrics] = []  # once settled: of the frequent values, and of all others

    def add(self, table: pa.Table, predicted: Floats, clicks: NDArray[np.float32]) -> None:
        if self._column not in table.column_names:
            raise InputError(f"the log has no column {self._column!r}; its columns are: {', '.join(table.column_names)}")
        codes = self._codes(table.column(self._column))
        if self._metrics:
            self._count(codes, predicted, clicks)
            return
        self._held.append((codes, predicted, clicks))
        self._rows += len(predicted)
        if self._rows > SETTLED:
            self._settle()

    def _codes(self, column: pa.ChunkedArray) -> NDArray[np.int64]:
        """The index of each row's value."""
        if pa.types.is_nested(column.type):
            raise InputError(f"the column {self._column!r} holds lists; figures by slice need one value in each row")
        coded = pc.dictionary_encode(pc.cast(column, pa.large_string()).combine_chunks(), null_encoding="encode")
        values = [value or None for value in coded.dictionary.to_pylist()]
        indices = self._indices
        if self._metrics:
            codes = [indices.get(value, len(indices)) for value in values]
        else:
            codes = [indices.setdefault(value, len(indices)) for value in values]
        return np.array(codes, dtype=np.int64)[coded.indices.to_numpy()]

    def _settle(self) -> None:
        """Decide which values are frequent, then count the rows held so far."""
        codes = np.concatenate([np.zeros(0, dtype=np.int64), *(codes for codes, _, _ in self._held)])
        counts = np.bincount(codes, minlength=len(self._indices))
        frequent = np.argsort(-counts, kind="stable")[:MOST_SLICES]
        slice_of = np.full(len(counts), len(frequent), dtype=np.int64)
        slice_of[frequent] = np.arange(len(frequent))
        values = list(self._indices)
        self._indices = {values[code]: index for index, code in enumerate(frequent.tolist())}
        self._metrics = [StreamMetrics() for _ in range(len(frequent) + 1)]
        for codes, predicted, clicks in self._held:
            self._count(slice_of[codes], predicted, clicks)
        self._held.clear()

    def _count(self, slices: NDArray[np.int64], predicted: Floats, clicks: NDArray[np.float32]) -> None:
        for index in np.unique(slices):
            mine = slices == index
            self._metrics[index].add(predicted[mine], clicks[mine])

    def lines(self, replicates: int) -> list[dict[str, Any]]:
        """The frequent values in descending order of rows, then all others together, if there are any."""
        if not self._metrics:
            self._settle()
        *frequent, others = self._metrics
        names = [MISSING if value is None else value for value in self._indices]
        ordered = sorted(zip(names, frequent, strict=True), key=lambda pair: -pair[1].sums[0])
        return [{"value": name, **_line(metrics, replicates)} for name, metrics in [*ordered, (OTHER, others)] if metrics.sums[0]]
