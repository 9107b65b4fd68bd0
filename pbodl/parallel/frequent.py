"""Which rows every thread has a copy of: those of the features that many samples have.

Two threads that write the same row take its cache lines from each other; the few rows that one sample in a hundred has, or more,
such as those of the position or the hour, are two thirds of all that are touched. What is frequent changes, with the hour if with
nothing else, so the samples that are about to be learned are asked, all through the batch.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.kernels.embedding import Features
from pbodl.kernels.threads import Copied

SAMPLES = 256  # that are asked
FREQUENT = 3  # of them, that have the feature
VERY = 0.1  # share of the samples above which a row is exchanged after every block
MOST = 192
SLOTS = 2048


class Frequent(NamedTuple):
    copied: Copied
    share: NDArray[np.float64]  # of the samples that have each


def frequent_rows(features: Features) -> Frequent:
    """The most frequent rows of a batch, as a few of its samples have them.

    >>> rows, one = np.tile(np.array([7, 8, 9], np.int32), 50), np.ones(150, np.float32)
    >>> rows[2::3] = np.arange(100, 150)
    >>> found = frequent_rows(Features(np.arange(0, 153, 3), rows, one, one, np.tile(np.arange(3, dtype=np.int32), 50)))
    >>> found.copied.rows.tolist(), found.copied.fields.tolist(), found.share.tolist()
    ([7, 8], [0, 1], [1.0, 1.0])
    """
    samples = min(SAMPLES, len(features.indptr) - 1)
    asked = np.linspace(0, len(features.indptr) - 1, samples, endpoint=False).astype(np.int64)
    most = int((features.indptr[asked + 1] - features.indptr[asked]).sum())
    rows, fields, times = np.empty((3, most), np.int32)
    distinct = _count(features, asked, np.full(1 << (2 * most).bit_length(), -1, np.int32), rows, fields, times)
    enough = np.flatnonzero(times[:distinct] >= FREQUENT)
    often = enough[np.argsort(-times[enough], kind="stable")[:MOST]]
    # Two rows may want the same slot: the more frequent has it.
    _, kept = np.unique(rows[often] % SLOTS, return_index=True)
    often = often[np.sort(kept)]
    places = np.full((SLOTS, 2), -1, np.int32)
    places[rows[often] % SLOTS] = np.stack([rows[often], np.arange(len(often))], axis=1)
    share = times[often] / samples
    return Frequent(Copied(rows[often], fields[often], places, np.int64((share >= VERY).sum())), share)


@jit
def _count(features, samples, slots, rows, fields, times):
    """The distinct rows of some samples, their fields, and how often each is met; how many. MODIFIES: slots, rows, fields, times.

    `slots`, a power of two and more than there are entries, hold the row's place among the distinct ones, or -1.
    """
    mask, distinct = len(slots) - 1, 0
    for s in samples:
        for j in range(features.indptr[s], features.indptr[s + 1]):
            slot = features.rows[j] & mask
            while slots[slot] >= 0 and rows[slots[slot]] != features.rows[j]:
                slot = (slot + 1) & mask
            if slots[slot] < 0:
                slots[slot], rows[distinct], fields[distinct], times[distinct] = distinct, features.rows[j], features.fields[j], 0
                distinct += 1
            times[slots[slot]] += 1
    return distinct
