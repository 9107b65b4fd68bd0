"""When how many workers learn how many rows at a time.

At the start every message moves the same few weights a long way, and messages made side by side would all make the same correction.
The paper therefore trains the first days with one thread (burning, PBODL §4.2). The ramp does so by degrees, and is always on: all
workers together take at most a twentieth of the rows seen so far, first by fewer workers, then by smaller minibatches.
"""

from typing import NamedTuple

from pbodl.errors import InputError
from pbodl.models.clock import Duration

RAMP = 0.05
SMALLEST = 64  # rows of a minibatch while the ramp adds workers
MOST_WORKERS, MOST_ROWS = 4096, 65536


class Round(NamedTuple):
    workers: int
    rows: int  # for each


class Schedule:
    """The rounds of `workers` workers with minibatches of `rows` rows, after a burn-in by one worker, in rows or in time.

    >>> schedule = Schedule(16, 256)
    >>> [schedule.next(seen, now=0.0) for seen in (0, 10_000, 1_000_000)]
    [Round(workers=1, rows=64), Round(workers=7, rows=71), Round(workers=16, rows=256)]
    """

    def __init__(self, workers: int, rows: int, burn_in: Duration | None = None) -> None:
        for name, value, most in (("workers", workers, MOST_WORKERS), ("rows of a minibatch", rows, MOST_ROWS)):
            if not 1 <= value <= most:
                raise InputError(f"{name} is {value}; it must be a whole number from 1 to {most}")
        self.workers, self.rows, self.burn_in = workers, rows, burn_in
        self._began: float | None = None

    def next(self, seen: int, now: float) -> Round:
        """What to do when `seen` rows were learned, and the next one is of the time `now`."""
        if self._began is None:
            self._began = now
        if self.burn_in is not None and (seen if self.burn_in.in_rows else now - self._began) < self.burn_in.amount:
            return Round(1, self.rows)
        room = int(RAMP * seen)
        active = max(1, min(self.workers, room // SMALLEST))
        return Round(active, max(min(self.rows, SMALLEST), min(self.rows, room // active)))
