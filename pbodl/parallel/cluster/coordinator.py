"""Hands a log out to worker slots as minibatches, and keeps account of them. A `Dispatcher` of the engine moves the bytes.

partition      the log's rows go out in order, one minibatch at a time, to the slot with the least work
back pressure  the schedule limits how many minibatches are under way; rows read ahead wait
staleness      no minibatch goes out while one that is STALENESS rounds older is not acknowledged: this limits how much of the log
               is missing from the weights that a worker pulled
account        the last sequence number and the rows of every slot, to be compared with the shards' ledgers
prior          at the moments of `models.adaptation` the coordinator waits for all minibatches under way, and adapts the prior
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


class Dispatcher(Protocol):
    """Sends work to worker slots. If a slot's process dies, its successor gets the unfinished work, in order."""

    def send(self, slot: int, work: Work) -> Any:
        """Send work to a slot; returns a ticket."""

    def wait(self, tickets: list[Any]) -> tuple[Any, Done]:
        """Wait until the work of one of these tickets is done."""


class Account(msgspec.Struct):
    """What was sent to a slot."""

    sequence: int = 0
    rows: int = 0


class Under(NamedTuple):
    """A minibatch under way."""

    number: int
    slot: int
    start: int
    stop: int
    counted: int  # of these samples, those that count as rows learned


class Coordinator:
    """Learns batches on `slots` worker slots; `seen` rows were learned before. `adapt` adapts the prior."""

    def __init__(
        self, dispatcher: Dispatcher, schedule: Schedule, slots: int, seen: int = 0, adapt: Callable[[], None] | None = None
    ) -> None:
        self._dispatcher, self.schedule, self.seen, self._adapt = dispatcher, schedule, seen, adapt
        self.accounts = {source_of(slot): Account() for slot in range(slots)}
        self._busy = np.zeros(slots, np.int64)
        self._number = 0
        self._acknowledged = 0  # minibatches in this round
        self._round: Round | None = None
        self._variance = 0.0
        self.lost_predictions = 0
        self.staleness: list[int] = []

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        """Learn a batch until all of it is acknowledged; returns the CTR predicted for each row before it was learned."""
        ctr, start = [np.zeros(0)], 0
        while start < len(batch):
            moment = next_moment(self.seen)
            stop = len(batch) if self._adapt is None else batch.until(start, moment - self.seen)
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
            ticket, done = self._dispatcher.wait(list(under))
            self._acknowledge(under.pop(ticket), done, ctr)
        return ctr

    def _now(self, now: float) -> Round:
        """The current round; the schedule gives the next one when all minibatches of a round are acknowledged."""
        if self._round is None or self._acknowledged >= self._round.workers:
            self._round = self.schedule.next(self.seen, now, self._variance)
            self._acknowledged = 0
        return self._round

    def _fresh(self, under: Iterable[Under], workers: int) -> bool:
        oldest = min((one.number for one in under), default=self._number)
        return self._number - oldest < STALENESS * workers

    def _send(self, batch: Batch, start: int, stop: int, workers: int) -> tuple[Any, Under]:
        slot = int(np.argmin(self._busy))
        account = self.accounts[source_of(slot)]
        account.sequence += 1
        account.rows += stop - start
        self._busy[slot] += 1
        self._number += 1
        part = batch.rows(start, stop)
        ticket = self._dispatcher.send(slot, Work(account.sequence, workers, part))
        return ticket, Under(self._number - 1, slot, start, stop, int(np.count_nonzero(part.counted)))

    def _acknowledge(self, one: Under, done: Done, ctr: NDArray[np.float64]) -> None:
        ctr[one.start : one.stop] = done.ctr
        self._busy[one.slot] -= 1
        self.seen += one.counted
        self._acknowledged += 1
        self._variance = done.variance
        self.lost_predictions += int(np.isnan(done.ctr).sum())
        self.staleness.append(done.staleness)


def source_of(slot: int) -> str:
    """The source name in a slot's messages."""
    return f"worker-{slot}"


def schedule_of(workers: int, rows: int, burn_in: Any = None) -> Schedule:
    """The schedule for so many worker slots. Merging depends on the minibatches under way; a slot has DEPTH of them."""
    return Schedule(workers if workers == 1 else DEPTH * workers, rows, burn_in)
