"""From a history to minibatches of one fixed shape.

Each field has as many slots as its fullest sample needs; an empty slot has the value 0. A minibatch lists the rows of the table
that it touches once, and its slots point into that list.
"""

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.baselines.buffer import SampleHistory


@jit
def field_widths(indptr, rows, field_of_row, widths):
    """The largest number of features that a sample has of each field. MODIFIES: widths."""
    counts = np.zeros(len(widths), np.int64)
    for sample in range(len(indptr) - 1):
        counts[:] = 0
        for j in range(indptr[sample], indptr[sample + 1]):
            counts[field_of_row[rows[j]]] += 1
        for field in range(len(widths)):
            widths[field] = max(widths[field], counts[field])


@jit
def fill_minibatch(history, samples, field_of_row, first_slot, index_of_row, distinct, indices, values, clicks, weights):
    """Put samples into slots; `indices` point into `distinct`, the distinct rows of the minibatch. Returns the number of these.

    MODIFIES: distinct, indices, values, clicks, weights (zeroed by the caller); index_of_row (-1 everywhere before and after).
    """
    indptr, rows = history.indptr, history.rows
    found = 0
    used = np.zeros(len(first_slot), np.int64)
    for i in range(len(samples)):
        sample = samples[i]
        used[:] = 0
        clicks[i], weights[i] = history.clicks[sample], history.weights[sample]
        for j in range(indptr[sample], indptr[sample + 1]):
            r = rows[j]
            if index_of_row[r] < 0:
                index_of_row[r] = found
                distinct[found] = r
                found += 1
            field = field_of_row[r]
            slot = first_slot[field] + used[field]
            used[field] += 1
            indices[i, slot], values[i, slot] = index_of_row[r], history.values[j]
    for n in range(found):
        index_of_row[distinct[n]] = -1
    return found


class MinibatchLayout:
    """The slots of a history's features in a minibatch of `batch_size`."""

    def __init__(self, history: SampleHistory, field_of_row: NDArray[np.uint16], n_fields: int, batch_size: int) -> None:
        self.history, self.field_of_row, self.batch_size = history, field_of_row, batch_size
        widths = np.ones(n_fields, np.int64)
        field_widths(history.indptr, history.rows, field_of_row, widths)
        widths = np.array([power_of_two(int(width)) for width in widths])
        self.first_slot = np.cumsum(widths) - widths
        self.slot_fields = tuple(np.repeat(np.arange(n_fields), widths).tolist())
        self._index_of_row = np.full(len(field_of_row), -1, np.int32)

    def minibatch(self, samples: NDArray[np.int64], beyond: int) -> tuple[NDArray, ...]:
        """The distinct rows (padded with numbers from `beyond` on, which no row has), indices, values, clicks, weights."""
        # New arrays each time: JAX may still be reading the last ones.
        shape = (self.batch_size, len(self.slot_fields))
        distinct = np.zeros(shape[0] * shape[1], np.int32)
        indices, values = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        clicks, weights = np.zeros(shape[0], np.float32), np.zeros(shape[0], np.float32)
        found = fill_minibatch(
            self.history,
            samples,
            self.field_of_row,
            self.first_slot,
            self._index_of_row,
            distinct,
            indices,
            values,
            clicks,
            weights,
        )
        distinct[found:] = beyond + np.arange(len(distinct) - found)
        return distinct, indices, values, clicks, weights


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below n.

    >>> [power_of_two(n) for n in (1, 2, 3, 1000)]
    [1, 2, 4, 1024]
    """
    return 1 << (n - 1).bit_length()
