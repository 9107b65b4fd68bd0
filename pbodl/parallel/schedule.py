"""How many workers learn how many rows at a time: burn-in, ramp and brake.

At the start every message moves the same few weights a long way, and messages made at the same time would all make the same
correction. The paper therefore trains the first days with one thread (burning, PBODL §4.2). The ramp does this gradually, and is
always on: all workers together take at most a hundredth of the rows seen so far, first with fewer workers, then with smaller
minibatches.

The brake handles messages that overshoot anyway. The predictive variance falls as a model learns; if it rises sharply, or slowly
but far, all workers together take half as many rows from then on, and a warning says so.
"""

import math
import warnings
from collections import deque
from typing import NamedTuple

from pbodl.errors import InputError
from pbodl.models.clock import Duration

RAMP = 0.01
SMALLEST = 64  # rows of a minibatch while the ramp adds workers
RISE = 1.5  # factor over the lowest predictive variance of the last rounds that counts as overshooting
MEMORY = 20  # rounds to remember: over longer times new ads raise the variance, too
SETTLING = 10  # rounds that the running mean needs to forget the old prior
FAR = 3.0  # factor over the lowest predictive variance of all that counts as overshooting, however slow the rise
MOST_WORKERS, MOST_ROWS = 4096, 65536


def check_workers(workers: int) -> None:
    """Refuse a number of workers that is out of range."""
    _check_count("workers", workers, MOST_WORKERS)


def _check_count(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InputError(f"{name} is {value}; it must be a whole number from 1 to {most}")


class Round(NamedTuple):
    """How many workers learn at the same time, and how many rows each."""

    workers: int
    rows: int


class Schedule:
    """The rounds of `workers` workers with minibatches of `rows` rows, after a burn-in by one worker, in rows or in time.

    >>> schedule = Schedule(16, 256)
    >>> [schedule.next(seen, now=0.0, variance=0.1) for seen in (0, 50_000, 1_000_000)]
    [Round(workers=1, rows=64), Round(workers=7, rows=71), Round(workers=16, rows=256)]
    """

    def __init__(self, workers: int, rows: int, burn_in: Duration | None = None) -> None:
        check_workers(workers)
        _check_count("rows of a minibatch", rows, MOST_ROWS)
        self.workers, self.rows, self.burn_in = workers, rows, burn_in
        self.brakes = 0  # how often the rows of a round were halved
        self._began: float | None = None
        self._workers = 1  # of the last round
        self._variances: deque[float] = deque(maxlen=MEMORY)
        self._lowest = math.inf  # of all since the last brake
        self._settling = 0  # rounds left until the variance is that of the new prior

    def next(self, seen: int, now: float, variance: float) -> Round:
        """The round after `seen` rows, given the time `now` of the next row and the predictive variance."""
        if self._began is None:
            self._began = now
        if self.workers == 1:
            return Round(1, self.rows)
        if self.burn_in is not None and (seen if self.burn_in.in_rows else now - self._began) < self.burn_in.amount:
            return Round(1, self.rows)
        if self._workers > 1:
            self._watch(variance, seen)
        room = int(min(RAMP * seen, self.workers * self.rows) / 2**self.brakes)
        smallest = min(self.rows, SMALLEST)
        self._workers = active = max(1, min(self.workers, room // smallest))
        return Round(active, max(smallest, min(self.rows, room // active)))

    def start_anew(self) -> None:
        """Note a new prior, which changes all variances: for a while only a rise by FAR counts, then the watch starts afresh."""
        self._variances.clear()
        self._settling = SETTLING

    def _forget(self) -> None:
        self._variances.clear()
        self._lowest = math.inf

    def _watch(self, variance: float, seen: int) -> None:
        if self._settling and variance <= FAR * self._lowest:
            self._settling -= 1
            if not self._settling:
                self._forget()
            return
        lowest = min(self._variances, default=math.inf)
        if not variance <= min(RISE * lowest, FAR * self._lowest):
            self.brakes += 1
            warnings.warn(
                f"the workers' messages overshoot: after {seen:,} rows the predictive variance has risen from "
                f"{self._lowest:.3g} to {variance:.3g}; from here on they take half as many rows at a time. Fewer workers "
                "or smaller minibatches avoid this",
                stacklevel=3,
            )
            self._forget()
            self._settling = 0
        if math.isfinite(variance) and variance > 0.0:
            self._variances.append(variance)
            self._lowest = min(self._lowest, variance)
