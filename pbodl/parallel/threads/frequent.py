"""The rows that every thread has a copy of: those of the features that many samples have.

Two threads that write the same row take its cache lines from each other. Rows that at least one sample in a hundred has, such as
those of the position or the hour, are few, but get two thirds of all updates. Which rows are frequent changes, at least with the
hour, so they are counted in samples from all over the batch that is about to be learned.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.kernels.arguments import Features
from pbodl.kernels.thread_blocks import Copied

SAMPLES = 256  # samples to count in
FREQUENT = 3  # samples that must have a feature to make it frequent
VERY = 0.1  # share of the samples from which on a row is exchanged after every block
MOST = 192  # rows to copy at most
SLOTS = 2048


class Frequent(NamedTuple):
    """The frequent rows of a batch."""

    copied: Copied
    share: NDArray[np.float64]  # the share of the samples that have each row


def frequent_rows(features: Features) -> Frequent:
    """The most frequent rows of a batch, estimated from some of its samples.

    >>> rows, one = np.tile(np.array([7, 8, 9], np.int32), 50), np.ones(150, np.float32)
    >>> rows[2::3] = np.arange(100, 150)
    >>> found = frequent_rows(Features(np.arange(0, 153, 3), rows, one, one, np.tile(np.arange(3, dtype=np.int32), 50)))
    >>> found.copied.rows.tolist(), found.copied.fields.tolist(), found.share.tolist()
    ([7, 8], [0, 1], [1.0, 1.0])
    """
    samples = min(SAMPLES, len(features.indptr) - 1)
    asked = np.linspace(0, len(features.indptr) - 1, samples, endpoint=False).astype(np.int64)
    begins, lengths = features.indptr[asked], features.indptr[asked + 1] - features.indptr[asked]
    entries = np.arange(lengths.sum()) + np.repeat(begins - np.cumsum(lengths) + lengths, lengths)
    rows, first, times = np.unique(features.rows[entries], return_index=True, return_counts=True)
    often = np.argsort(-times, kind="stable")[:MOST]
    often = often[times[often] >= FREQUENT]
    # Two rows may need the same slot: the more frequent one gets it.
    _, kept = np.unique(rows[often] % SLOTS, return_index=True)
    often = often[np.sort(kept)]
    slots = np.full((SLOTS, 2), -1, np.int32)
    slots[rows[often] % SLOTS] = np.stack([rows[often], np.arange(len(often))], axis=1)
    share = times[often] / samples
    copied = Copied(rows[often], features.fields[entries[first[often]]], slots, np.int64((share >= VERY).sum()))
    return Frequent(copied, share)
