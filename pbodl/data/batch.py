"""A batch of samples as arrays.

The features of all samples follow one another; sample i owns those from indptr[i] to indptr[i + 1] (CSR), in the order of the
fields of the schema.

Final labels, as a log has them, say all about a sample. In a stream a click may still come: there a sample is one *stage* of an
impression (`kernels.layers.stage`), `clicks` says whether the click came within it, and `came_before` and `came_by` say which
fractions of an impression's clicks have come before the stage begins and by its end. A sample of weight 0 is a prediction alone:
`learn` returns it, made in its turn, and nothing is learned.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Arrays(NamedTuple):
    keys: NDArray[np.uint64]  # [nnz] feature keys
    values: NDArray[np.float32]  # [nnz] multipliers: 1, a count, or a number
    fields: NDArray[np.int32]  # [nnz] index into schema.fields
    indptr: NDArray[np.int64]  # [n + 1] sample i owns the features indptr[i] to indptr[i + 1]
    clicks: NDArray[np.float32] | None  # [n] 0 or 1; None when the data was read without its label
    times: NDArray[np.float64]  # [n] epoch seconds; zeros if there are none
    weights: NDArray[np.float32]  # [n] ones by default; 0: a prediction alone
    came_before: NDArray[np.float32] | None = None  # [n]; None, as `came_by`, for final labels: zeros
    came_by: NDArray[np.float32] | None = None  # [n]; None: ones


class Batch(Arrays):
    """n samples with nnz features in all; `len(batch)` is n."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def _replace(self, **changes: Any) -> "Batch":
        # NamedTuple's own counts the arrays with len(), which here counts the samples.
        return Batch(**{**self._asdict(), **changes})

    @property
    def has_stages(self) -> bool:
        """Whether some sample is a stage, and not a final label."""
        before, by = self.stages()
        return bool((before > 0.0).any() or (by < 1.0).any())

    def stages(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """`came_before` and `came_by` as arrays of numbers."""
        if self.came_before is None or self.came_by is None:
            return np.zeros(len(self), np.float32), np.ones(len(self), np.float32)
        return np.ascontiguousarray(self.came_before, np.float32), np.ascontiguousarray(self.came_by, np.float32)

    def with_stages(self) -> "Batch":
        """The same samples, with `came_before` and `came_by` as arrays whatever they are."""
        before, by = self.stages()
        return self._replace(came_before=before, came_by=by)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Which samples count as rows learned: every impression once, by its first stage; no prediction alone."""
        taught = self.weights != 0.0
        return taught if self.came_before is None else taught & (self.came_before == 0.0)

    def until(self, start: int, count: int) -> int:
        """Where the samples from `start` on end with which `count` more rows are learned; the end of the batch if it has fewer."""
        return min(start + int(np.searchsorted(np.cumsum(self.counted[start:]), count)) + 1, len(self))

    def rows(self, start: int, stop: int) -> "Batch":
        """Samples start to stop (clipped to what there is), as views; `indptr` alone is new."""
        start, stop, _ = slice(start, stop).indices(len(self))
        first, last = self.indptr[start], self.indptr[max(start, stop)]
        return Batch(
            self.keys[first:last],
            self.values[first:last],
            self.fields[first:last],
            self.indptr[start : max(start, stop) + 1] - first,
            None if self.clicks is None else self.clicks[start:stop],
            self.times[start:stop],
            self.weights[start:stop],
            None if self.came_before is None else self.came_before[start:stop],
            None if self.came_by is None else self.came_by[start:stop],
        )

    def take(self, indices: NDArray[np.int64]) -> "Batch":
        """The samples with these indices, in this order; a sample may occur several times."""
        lengths = np.diff(self.indptr)[indices]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        # The index of each feature: that of its sample's first, and how far it is behind it.
        at = np.repeat(self.indptr[:-1][indices] - indptr[:-1], lengths) + np.arange(indptr[-1])
        clicks, before, by = (None if of is None else of[indices] for of in (self.clicks, self.came_before, self.came_by))
        times, weights = self.times[indices], self.weights[indices]
        return Batch(self.keys[at], self.values[at], self.fields[at], indptr, clicks, times, weights, before, by)
