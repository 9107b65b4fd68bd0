"""What was worked out for candidates, remembered: the same ads come request after request, and their sums stay true for a version."""

import math
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.hashing import wrapping
from pbodl.data.table import Table
from pbodl.kernels.embedding import GOLDEN, mix
from pbodl.kernels.normal import ONE
from pbodl.serving.encoding import Encoded
from pbodl.serving.request import Operation, Sums
from pbodl.serving.room import Room

MOST_BYTES = 64 * 2**20
ALL = np.zeros((0, 0), bool)


@jit
def _candidate_keys(keys, values, filled, result):
    """One key for all features of a candidate, values included; the features' keys are stirred already. MODIFIES: result."""
    for s in range(keys.shape[0]):
        h = np.uint64(0)
        for j in range(keys.shape[1]):
            if len(filled) == 0 or filled[s, j]:
                h = h * GOLDEN + keys[s, j]
                if values[s, j] != ONE:
                    h = mix(h + np.uint64(np.float32(values[s, j]).view(np.uint32)))
        result[s] = h


class RememberedSums:
    """The sums of candidates' own features, by all that a candidate says. Any number of threads may ask."""

    def __init__(self, operation: Operation, classes: int) -> None:
        vectors, dim = int(operation.vectors), int(operation.dim)
        shapes = ((classes, vectors, 2, dim), (classes, 3, dim), (2,))
        most = MOST_BYTES // (4 * sum(math.prod(shape) for shape in shapes))
        # Memory that is not written yet costs nothing.
        self._sums = Sums(*(np.empty((most, *shape), np.float32) for shape in shapes))
        self._rows = Table({})
        self._lock = threading.Lock()

    def find(self, own: Encoded, work_out: Callable[[NDArray[np.int64], NDArray[np.int32], Sums], None], room: Room) -> Sums:
        """The candidates' sums, one row for each; `work_out` is called for those not remembered: which they are, and their rows."""
        keys = np.empty(len(own.keys), np.uint64)
        with wrapping():
            _candidate_keys(own.keys, own.values, ALL if own.filled is None else own.filled, keys)
        with self._lock:
            rows = self._rows.find(keys)
            missing = np.flatnonzero(rows < 0)
            if len(missing):
                if self._rows.size + len(missing) > len(self._sums.linear):
                    self._rows, missing = Table({}), np.arange(len(keys))
                rows[missing] = self._rows.insert(keys[missing])
                work_out(missing, rows[missing], self._sums)
            # Copying in one go overlaps the visits to memory, which merging row by row would wait for.
            taken = [room.array(name, len(rows), *array.shape[1:]) for name, array in self._sums._asdict().items()]
            for array, out in zip(self._sums, taken, strict=True):
                np.take(array, rows, axis=0, out=out, mode="clip")
        return Sums(*taken)
