"""A stream worker: reads some partitions, joins their events, and learns their rows with the weights of the shards.

For each minibatch it pulls weights, learns on its local copy, and pushes a message; the source of the message is the partition. The
worker writes nothing down. A successor claims the partitions from all shards. From then on they refuse messages of its predecessor,
which may only have been taken for dead. They also tell how many rows of each partition they have learned. Since a worker pushes a
message to all shards before it makes the next one, the answers differ by one message at most. If they do, the successor learns just
the rows of that message again: shards that have it drop it as a repeat, the others apply it.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.models.clock import Duration
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.work_format import decode_pulled
from pbodl.parallel.cluster.worker_slot import Ask
from pbodl.parallel.merge import DEFAULT
from pbodl.parallel.message import Message, encode, split
from pbodl.parallel.schedule import Schedule
from pbodl.parallel.worker import Worker, plan
from pbodl.streaming.cluster.partition_learner import PartitionLearner
from pbodl.streaming.join.click_join import Joined, first_of
from pbodl.streaming.join.join_rules import JOINED
from pbodl.streaming.stream_reader import ReadStep
from pbodl.streaming.watchdog import StretchEvidence, Watchdog
from pbodl.training.stream_metrics import StreamMetrics

logger = logging.getLogger(__name__)
REMEMBERED = 8  # minibatches by which a worker judges how many others learn at the same time


class WorkerSettings(NamedTuple):
    """How the workers of a cluster learn together."""

    workers: int = 1
    shards: int = 1
    rows: int = 512  # of a minibatch, at most
    merge: str = DEFAULT
    half: bool = True  # messages travel in 16 bits
    burn_in: Duration | None = None  # while all workers together take as many rows at a time as one would


class LearnedMinibatch(NamedTuple):
    """A minibatch that was learned, and whose message has yet to be pushed."""

    lane: "PartitionLane"
    joined: Joined
    message: Message
    ctr: NDArray[np.float64]
    version: int  # of shard 0 when the weights were pulled


class PartitionLane:
    """A partition in the hands of a worker."""

    def __init__(
        self, learner: PartitionLearner, accept_leap: bool = False, dead: Callable[[Any], None] = lambda bad: None
    ) -> None:
        self.learner, self._accept_leap, self._dead = learner, accept_leap, dead
        self.sequence = 0  # of the last message that all shards have
        self.redo = 0  # rows of a message that only some of them have
        self.ended = False  # its source has ended

    def take(self, step: ReadStep) -> None:
        """Join events that were read."""
        events = self.learner.screened(step.events, self._accept_leap)
        self._dead(events.bad)
        self.learner.take(events, step.position, step.gaps)

    @property
    def done(self) -> bool:
        """Whether nothing is left to learn."""
        return self.ended and not self.learner.pending and not self.learner.replaying


class StreamWorker:
    """Learns the rows of its partitions. `epoch` is above that of every predecessor; `ask` calls all shards.

    limit  rows that all workers learn together before they stop: then the prior is adapted
    """

    def __init__(self, model: DeepProbit, lanes: list[PartitionLane], settings: WorkerSettings, epoch: int, ask: Ask) -> None:
        self.lanes, self.settings, self._ask = lanes, settings, ask
        self._epoch = str(epoch).encode()
        self._worker = Worker(model, "", settings.merge)
        self.schedule = Schedule(settings.workers, settings.rows, settings.burn_in)
        self.seen, self.limit = 0, float("inf")
        self.clock, self.variance = 0.0, 0.0
        self._others: deque[int] = deque([settings.workers - 1], REMEMBERED)
        self.metrics, self._watched = StreamMetrics(), Watchdog(model)
        self.lost_predictions = 0
        for lane in lanes:
            self._claim(lane)

    def _claim(self, lane: PartitionLane) -> None:
        """Become the only one who sends messages of a partition, and find out where its shards stand."""
        name = lane.learner.name.encode()
        answers = self._ask([("claim", (name, self._epoch))] * self.settings.shards)
        stands = [msgspec.json.decode(answer, type=tuple[int, int]) for answer in answers]
        (lane.sequence, rows), (newest, most) = min(stands), max(stands)
        assert newest - lane.sequence <= 1
        lane.redo = most - rows
        lane.learner.skip_to(rows)

    def _room(self) -> int:
        """Rows that this worker may take at a time: all workers together take what the schedule allows."""
        together = self.schedule.next(self.seen, self.clock, self.variance)
        return max(1, min(self.settings.rows, together.workers * together.rows // self.settings.workers))

    def begin(self, lane: PartitionLane) -> LearnedMinibatch | None:
        """Learn the next rows of a partition, if there are any and if the limit is not reached."""
        learner, most = lane.learner, lane.redo or self._room()
        if not learner.pending or (lane.redo and learner.pending < lane.redo):
            return None
        if not lane.redo and self.settings.workers == 1:
            most = int(min(most, max(self.limit - self.seen, 1)))
        joined = learner.next(most)
        task, name = plan(joined.batch, self.settings.shards), learner.name.encode()
        calls = [("pull", (name, task.keys_of(shard).tobytes())) for shard in range(self.settings.shards)]
        pulled, applied = zip(*map(decode_pulled, self._ask(calls)), strict=True)
        self.seen, self.variance, self.clock = pulled[0].rows_learned, pulled[0].predictive_variance, float(joined.batch.times[0])
        if self.seen >= self.limit and not lane.redo:
            return None
        assert {lane.sequence, lane.sequence + bool(lane.redo)} >= set(applied), (learner.name, lane.sequence, applied)
        self._worker.source, self._worker.sequence = learner.name, lane.sequence
        message, ctr = self._worker.learn(task, pulled, self.together)
        return LearnedMinibatch(lane, joined, message, ctr, pulled[0].version)

    @property
    def together(self) -> int:
        """How many workers learn at the same time, this one among them: by the messages that came between its last ones."""
        return min(self.settings.workers, 1 + max(self._others))

    def finish(self, learned: LearnedMinibatch) -> None:
        """Push the message; when this returns, all shards have it."""
        lane, joined = learned.lane, learned.joined
        parts = [encode(part, self.settings.half) for part in split(learned.message, self.settings.shards)]
        versions = self._ask([("push", (part, self._epoch)) for part in parts])
        self._others.append(max(0, int.from_bytes(versions[0], "little") - learned.version))
        lane.sequence += 1
        lane.learner.learned(joined, None if lane.redo else learned.ctr)
        self.seen += learned.message.counted
        if lane.redo:
            # Some shards had learned these rows: predicting them again would flatter the figures.
            self.lost_predictions += lane.redo
            lane.redo = 0
            return
        self._count(joined, learned.ctr)
        ctr, clicks, weights = lane.learner.take_final()
        if len(ctr):
            self.metrics.add(ctr, clicks, weights)

    def _count(self, joined: Joined, ctr: NDArray[np.float64]) -> None:
        """Count rows that came joined in the figures, and show the watchdog what is known of others at their first age."""
        first, rows = first_of(joined), joined.roles == JOINED
        batch = joined.batch.take(first)
        self._watched.count(batch, ctr[first] * joined.came[first])
        if rows.any():
            self.metrics.add(ctr[rows], joined.batch.clicks[rows], joined.stands_for[rows])  # type: ignore[index]

    def take_evidence(self) -> tuple[dict[str, NDArray], StretchEvidence]:
        """The figures and the watchdog's evidence since the last call."""
        metrics, evidence = self.metrics.state(), self._watched.evidence()
        self.metrics.clear()
        self._watched = Watchdog(self._worker.local)
        return metrics, evidence


def figures_of(counters: Mapping[str, Any], metrics: StreamMetrics) -> dict[str, Any]:
    """Counters with the progressive figures of all workers."""
    figures = metrics.figures()
    return dict(counters) | {
        "log_loss": figures.log_loss if figures.rows else None,
        "ctr": figures.ctr if figures.rows else None,
        "auc": figures.auc if figures.auc == figures.auc else None,
    }
