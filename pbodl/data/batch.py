"""A batch of samples as arrays.

The features of all samples follow one another; sample i owns those from indptr[i] to indptr[i + 1] (CSR), in the order of the
fields of the schema.
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
    weights: NDArray[np.float32]  # [n] ones by default


class Batch(Arrays):
    """n samples with nnz features in all; `len(batch)` is n."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def _replace(self, **changes: Any) -> "Batch":
        # NamedTuple's own counts the arrays with len(), which here counts the samples.
        return Batch(**{**self._asdict(), **changes})

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
        )

    def take(self, indices: NDArray[np.int64]) -> "Batch":
        """The samples with these indices, in this order; a sample may occur several times."""
        lengths = np.diff(self.indptr)[indices]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        # The index of each feature: that of its sample's first, and how far it is behind it.
        at = np.repeat(self.indptr[:-1][indices] - indptr[:-1], lengths) + np.arange(indptr[-1])
        clicks = None if self.clicks is None else self.clicks[indices]
        return Batch(self.keys[at], self.values[at], self.fields[at], indptr, clicks, self.times[indices], self.weights[indices])
