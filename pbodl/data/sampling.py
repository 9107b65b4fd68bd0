"""Negative sampling and its recalibration (PBODL §4.1): keep every click and a share w of the other rows.

Whether a row is kept is a pure function of (seed, position in the stream), so that a replay keeps the same rows.

Multiple data (PBODL §4.5): several sets of workers learn the same clicks, and each its own sample of the other rows. The parameter
server multiplies what they send. So a row that k of s sets have kept counts to the power k/s, and a click, which all have, to the
power 1. `NegativeSets` does just that, without learning any row twice. The paper counts every set in full: k, and s.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.batch import Batch
from pbodl.errors import InputError
from pbodl.mixing import GOLDEN, mix

CLICKS_PER_NON_CLICK = 0.1  # what "auto" aims at, as the paper advises
UNIT = 2.0**-53
S11 = np.uint64(11)


def recalibrate(ctr: NDArray[np.float64], kept: float) -> NDArray[np.float64]:
    """The CTR of the whole stream from that of a stream where a share `kept` of the negatives is left: q = p/(p + (1-p)/w).

    >>> recalibrate(np.array([0.5]), 0.1).round(4).tolist()
    [0.0909]
    """
    return ctr if kept == 1.0 else ctr / (ctr + (1.0 - ctr) / kept)


def check_rate(kept: float | str) -> float:
    """`kept` itself, if it is a share that can be kept."""
    if isinstance(kept, str) or not 0.0 < kept <= 1.0:
        raise InputError(f"negative_rate is {kept!r}; it must be above 0 and at most 1 (1 keeps every row)")
    return float(kept)


def auto_rate(ctr: float) -> float:
    """The share of negatives to keep so that clicks to non-clicks are about 0.1; 1 where they already are that frequent.

    >>> auto_rate(0.17), round(auto_rate(0.01), 3)
    (1.0, 0.101)
    """
    return min(1.0, ctr / max(1.0 - ctr, 1e-12) / CLICKS_PER_NON_CLICK)


@jit
def is_kept(position, seed, rate):
    """Whether the negative at a position of the stream is learned from."""
    return np.float64(mix(mix(seed + GOLDEN) ^ position) >> S11) * UNIT < rate


@jit
def times_kept(position, seed, rate, sets):
    """In how many of the sets the negative at a position of the stream is."""
    count = 0
    for number in range(sets):
        count += is_kept(position, seed + np.uint64(number), rate)
    return count


@jit
def _keep(clicks, positions, seed, rate, sets, kept):
    """MODIFIES: kept."""
    for i in range(len(clicks)):
        kept[i] = sets if clicks[i] > 0 else times_kept(positions[i], seed, rate, sets)


def kept_rows(clicks: NDArray[np.float32], position: int, seed: int, rate: float, sets: int = 1) -> NDArray[np.bool_]:
    """Which rows of a batch that starts at `position` of the stream are learned from, in any of the sets."""
    if rate >= 1.0:
        return np.ones(len(clicks), dtype=np.bool_)
    return sets_with(clicks, np.arange(position, position + len(clicks), dtype=np.uint64), seed, rate, sets) > 0


def sets_with(clicks: NDArray[np.float32], positions: NDArray[np.uint64], seed: int, rate: float, sets: int) -> NDArray[np.int32]:
    """In how many of the sets each row is; clicks are in all."""
    kept = np.empty(len(clicks), np.int32)
    with np.errstate(over="ignore"):
        _keep(clicks, positions, np.uint64(seed), rate, sets, kept)
    return kept


class NegativeSets(NamedTuple):
    """The sets of workers that learn from a stream: how many, and whether each counts in full, as in the paper."""

    sets: int = 1
    paper: bool = False

    def share(self, rate: float) -> float:
        """The share of the negatives that some set has.

        >>> NegativeSets(2).share(0.5)
        0.75
        """
        return rate if self.sets == 1 else 1.0 - (1.0 - rate) ** self.sets

    def plain(self) -> list[int]:
        """What a run keeps of them: with one set, it is the same how much each counts.

        >>> NegativeSets(1, paper=True).plain() == ONE_SET.plain(), NegativeSets(2, paper=True).plain()
        (True, [2, 1])
        """
        return [self.sets, int(self.paper and self.sets > 1)]

    def powers(self, clicks: NDArray[np.float32], positions: NDArray[np.uint64], seed: int, rate: float) -> NDArray[np.float32]:
        """How much each row at some positions of the stream counts."""
        kept = sets_with(clicks, positions, seed, rate, self.sets).astype(np.float32)
        return kept if self.paper else kept / np.float32(self.sets)


ONE_SET = NegativeSets()


def selected(batch: Batch, kept: NDArray[np.bool_]) -> Batch:
    """The samples of a batch that are kept; the batch itself if all are."""
    return batch if kept.all() else batch.take(np.flatnonzero(kept))
