"""When how many workers learn how many rows at a time.

At the start every message moves the same few weights a long way, and messages made side by side would all make the same correction.
The paper therefore trains the first days with one thread (burning, PBODL §4.2). The ramp does so by degrees: all workers together
take at most a twentieth of the rows seen so far, first by fewer workers, then by smaller minibatches.
"""

import math
from typing import NamedTuple

from pbodl.errors import InputError

RAMP = 0.05
SMALLEST = 64  # rows of a minibatch while the ramp adds workers


class Round(NamedTuple):
    workers: int
    rows: int  # for each


def next_round(seen: int, workers: int, rows: int) -> Round:
    """How many workers learn next, and how many rows each, when `seen` rows were learned.

    >>> next_round(0, 16, 256), next_round(10_000, 16, 256), next_round(1_000_000, 16, 256)
    (Round(workers=1, rows=64), Round(workers=7, rows=71), Round(workers=16, rows=256))
    """
    room = int(RAMP * seen)
    active = max(1, min(workers, room // SMALLEST))
    return Round(active, max(min(rows, SMALLEST), min(rows, room // active)))


def rows_before(workers: int) -> int:
    """How many rows must be learned before the ramp allows this many workers.

    >>> rows_before(7), next_round(rows_before(7), 16, 64).workers, next_round(rows_before(7) - 1, 16, 64).workers
    (8960, 7, 6)
    """
    return math.ceil(workers * SMALLEST / RAMP)


def check_workers(workers: int) -> int:
    if not 1 <= workers <= 4096:
        raise InputError(f"workers is {workers}; it must be a whole number from 1 to 4096")
    return workers
