"""The history that a batch model is fitted to: samples in time order, without the oldest."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError

PER_FEATURE = {"rows": np.int32, "values": np.float32}
PER_SAMPLE = {"lengths": np.int32, "clicks": np.float32, "weights": np.float32, "times": np.float64}
SMALLEST = 1024


class SampleHistory(NamedTuple):
    """The samples in CSR form: sample i owns the features indptr[i] to indptr[i + 1]."""

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    values: NDArray[np.float32]
    clicks: NDArray[np.float32]
    weights: NDArray[np.float32]

    def part(self, start: int, stop: int) -> "SampleHistory":
        """Samples start to stop."""
        first, last = self.indptr[start], self.indptr[stop]
        return SampleHistory(
            self.indptr[start : stop + 1] - first, self.rows[first:last], self.values[first:last],
            self.clicks[start:stop], self.weights[start:stop],
        )  # fmt: skip


class Queue:
    """An array that grows at its end and shrinks at its start, both in constant time per number on average."""

    def __init__(self, dtype: Any) -> None:
        self._array: NDArray = np.empty(0, dtype)
        self._start = self._stop = 0

    def __len__(self) -> int:
        return self._stop - self._start

    def view(self) -> NDArray:
        """Its contents; valid until it changes."""
        return self._array[self._start : self._stop]

    def append(self, more: NDArray) -> None:
        if self._stop + len(more) > len(self._array):
            larger = np.empty(max(SMALLEST, 3 * (len(self) + len(more)) // 2), self._array.dtype)
            larger[: len(self)] = self.view()
            self._array, self._start, self._stop = larger, 0, len(self)
        self._array[self._stop : self._stop + len(more)] = more
        self._stop += len(more)

    def drop(self, n: int) -> None:
        self._start += n


class Buffer:
    """The newest samples: up to `most_rows` of them, and up to `longest` back on the clock; None: no limit."""

    def __init__(self, most_rows: int | None, longest: float | None) -> None:
        self.most_rows, self.longest = most_rows, longest
        self._queues = {name: Queue(dtype) for name, dtype in (PER_FEATURE | PER_SAMPLE).items()}

    def __len__(self) -> int:
        return len(self._queues["lengths"])

    def append(self, samples: SampleHistory, times: NDArray[np.float64]) -> None:
        """Add samples, except those of weight 0, and drop what is too old."""
        lengths, kept = np.diff(samples.indptr), samples.weights > 0
        features = np.repeat(kept, lengths)
        columns = {"rows": samples.rows[features], "values": samples.values[features], "lengths": lengths[kept]}
        columns |= {"clicks": samples.clicks[kept], "weights": samples.weights[kept], "times": times[kept]}
        for name, queue in self._queues.items():
            queue.append(columns[name])
        self._trim()

    def _trim(self) -> None:
        times = self._queues["times"].view()
        excess = 0 if self.most_rows is None else max(0, len(times) - self.most_rows)
        if self.longest is not None and len(times):
            excess = max(excess, int(np.searchsorted(times, times[-1] - self.longest)))
        features = int(self._queues["lengths"].view()[:excess].sum())
        for name, queue in self._queues.items():
            queue.drop(features if name in PER_FEATURE else excess)

    def history(self) -> SampleHistory:
        """All samples; views, valid until the buffer changes."""
        q = {name: queue.view() for name, queue in self._queues.items()}
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(q["lengths"], dtype=np.int64)])
        return SampleHistory(indptr, q["rows"], q["values"], q["clicks"], q["weights"])

    def state(self) -> dict[str, NDArray]:
        """Copies of all columns."""
        return {name: queue.view().copy() for name, queue in self._queues.items()}

    def load_state(self, columns: Mapping[str, NDArray]) -> None:
        """Restore a buffer from its `state()`; call `check_columns` first."""
        for name, queue in self._queues.items():
            queue.drop(len(queue))
            queue.append(columns[name])


def check_columns(columns: Mapping[str, NDArray], table_size: int) -> None:
    """Refuse columns of a buffer that do not fit each other or the table."""
    lengths, rows = columns["lengths"], columns["rows"]
    samples = {len(columns[name]) for name in PER_SAMPLE}
    if len(samples) > 1 or (lengths < 0).any() or {lengths.sum()} != {len(columns[name]) for name in PER_FEATURE}:
        raise InputError("the state's buffer has columns that do not fit each other; it is damaged")
    if len(rows) and not (rows.min() >= 0 and rows.max() < table_size):
        raise InputError("the state's buffer names rows that its table does not have; it is damaged")
