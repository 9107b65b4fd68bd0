"""Deals a log out to lanes as minibatches, and keeps account of them; whatever carries them is the engine's business.

partition      the log's rows go out in their order, a minibatch at a time, to the lane that has least to do
back pressure  at most as many minibatches are under way as the schedule allows; what is read ahead waits
staleness      none goes out while one that is STALENESS rounds older is not acknowledged: the weights that a worker pulled
               miss at most so much of the log
account        for every lane the last sequence number and the rows dealt, to be held against the shards' ledgers
prior          at the moments of `models.adaptation` all that is under way is waited for, and the prior adapted
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.models.adaptation import next_moment
from pbodl.parallel.cluster.work_format import Done, Work
from pbodl.parallel.cluster.worker_slot import DEPTH
from pbodl.parallel.schedule import Round, Schedule

STALENESS = 4  # rounds


class Carrier(Protocol):
    """What brings work to lanes. If a lane's process dies, its unfinished work is carried to the successor, in order."""

    def send(self, lane: int, work: Work) -> Any:
        """Give work to a lane; returns a ticket."""

    def wait(self, tickets: list[Any]) -> tuple[Any, Done]:
        """Wait until one of these is done."""


class Account(msgspec.Struct):
    """What was dealt to a lane."""

    sequence: int = 0
    rows: int = 0


class Under(NamedTuple):
    """A minibatch under way."""

    number: int
    lane: int
    start: int
    stop: int


class Coordinator:
    """Learns batches by `lanes` lanes that `dispatch` reaches; `seen` rows were learned before. `adapt` adapts the prior."""

    def __init__(
        self, carrier: Carrier, schedule: Schedule, lanes: int, seen: int = 0, adapt: Callable[[], None] | None = None
    ) -> None:
        self._carrier, self.schedule, self.seen, self._adapt = carrier, schedule, seen, adapt
        self.accounts = {source_of(lane): Account() for lane in range(lanes)}
        self._busy = np.zeros(lanes, np.int64)
        self._number = 0
        self._acknowledged = 0  # since the schedule was asked
        self._round: Round | None = None
        self._variance = 0.0
        self.lost_predictions = 0
        self.staleness: list[int] = []

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        """Learn a batch, all of it acknowledged; the CTR predicted for each row before it was learned."""
        ctr, start = [np.zeros(0)], 0
        while start < len(batch):
            moment = next_moment(self.seen)
            stop = len(batch) if self._adapt is None else min(len(batch), start + moment - self.seen)
            ctr.append(self._learn(batch.rows(start, stop)))
            if self._adapt is not None and self.seen == moment:
                self._adapt()
                self.schedule.start_anew()
            start = stop
        return np.concatenate(ctr)

    def _learn(self, batch: Batch) -> NDArray[np.float64]:
        ctr = np.empty(len(batch))
        under: dict[Any, Under] = {}
        start = 0
        while start < len(batch) or under:
            workers, rows = self._now(float(batch.times[min(start, len(batch) - 1)]))
            if start < len(batch) and len(under) < workers and self._fresh(under.values(), workers):
                stop = min(start + rows, len(batch))
                ticket, sent = self._send(batch, start, stop, workers)
                under[ticket] = sent
                start = stop
                continue
            ticket, done = self._carrier.wait(list(under))
            self._acknowledge(under.pop(ticket), done, ctr)
        return ctr

    def _now(self, now: float) -> Round:
        """The schedule's round; asked anew when one round's minibatches are acknowledged."""
        if self._round is None or self._acknowledged >= self._round.workers:
            self._round = self.schedule.next(self.seen, now, self._variance)
            self._acknowledged = 0
        return self._round

    def _fresh(self, under: Iterable[Under], workers: int) -> bool:
        oldest = min((one.number for one in under), default=self._number)
        return self._number - oldest < STALENESS * workers

    def _send(self, batch: Batch, start: int, stop: int, workers: int) -> tuple[Any, Under]:
        lane = int(np.argmin(self._busy))
        account = self.accounts[source_of(lane)]
        account.sequence += 1
        account.rows += stop - start
        self._busy[lane] += 1
        self._number += 1
        ticket = self._carrier.send(lane, Work(account.sequence, workers, batch.rows(start, stop)))
        return ticket, Under(self._number - 1, lane, start, stop)

    def _acknowledge(self, one: Under, done: Done, ctr: NDArray[np.float64]) -> None:
        ctr[one.start : one.stop] = done.ctr
        self._busy[one.lane] -= 1
        self.seen += one.stop - one.start
        self._acknowledged += 1
        self._variance = done.variance
        self.lost_predictions += int(np.isnan(done.ctr).sum())
        self.staleness.append(done.staleness)


def source_of(lane: int) -> str:
    """The name that a lane's messages carry."""
    return f"lane-{lane}"


def schedule_of(workers: int, rows: int, burn_in: Any = None) -> Schedule:
    """The schedule of so many lanes: what counts for merging are the minibatches under way, and a lane has DEPTH of them."""
    return Schedule(workers if workers == 1 else DEPTH * workers, rows, burn_in)
