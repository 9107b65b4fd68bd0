"""A cluster that learns from a stream, in one thread, whose parts are killed at chosen moments: what Ray does, without Ray."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.durable_shard import DurableShard, write_first
from pbodl.parallel.cluster.sharding import deal, empty_part
from pbodl.streaming.cluster.partition_learner import PartitionLearner
from pbodl.streaming.cluster.stream_worker import PartitionLane, StreamWorker, WorkerSettings
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamOptions
from pbodl.streaming.stream_reader import ReadStep
from pbodl.training.config import Config
from tests.streaming.traffic import decoded


class ProcessKilled(Exception):
    """A process of the cluster is gone."""


def dealt(events: list[dict[str, Any]], partitions: int) -> list[list[dict[str, Any]]]:
    """The events of each partition: an impression and its click are together."""
    parts: list[list[dict[str, Any]]] = [[] for _ in range(partitions)]
    for event in events:
        parts[int(event["id"][1:]) % partitions].append(event)
    return parts


class LocalCluster:
    """Workers that read lists of events in packs of random sizes, and shards with journals; `risk` is that of dying at a call."""

    def __init__(
        self, config: Config, join: StreamOptions, parts: Sequence[list[dict]], folder: Path, settings: WorkerSettings,
        risk: float = 0.0, seed: int = 0,
    ) -> None:  # fmt: skip
        model = config.build(float(config.training.negative_rate))
        assert isinstance(model, DeepProbit)
        self.config, self.join, self.parts, self.settings, self.model = config, join, parts, settings, model
        self._folder, self._risk, self.chance = folder, risk, random.Random(seed)
        for shard in deal(model, settings.shards):
            write_first(shard, folder / str(shard.number))
        self.hosts = [self._host(number) for number in range(settings.shards)]
        # What a snapshot holds of every partition.
        self.records = [(self._learner(part).record()) for part in range(len(parts))]
        self.epoch, self.killed = 0, {"shard": 0, "worker": 0}
        self.workers = [self._started(number) for number in range(settings.workers)]

    def _host(self, number: int) -> DurableShard:
        return DurableShard(empty_part(self.model, self.settings.shards), number, self._folder / str(number))

    def _learner(self, part: int) -> PartitionLearner:
        return PartitionLearner(f"p{part}", self.config, self.model, self.join, StreamPosition({"at": (0,)}))

    def start(self, number: int) -> StreamWorker:
        """A new process for a worker: it continues from the records."""
        lanes = []
        for part in range(number, len(self.parts), self.settings.workers):
            learner = self._learner(part)
            learner.continue_record(*self.records[part])
            lanes.append(PartitionLane(learner))
        self.epoch += 1
        return StreamWorker(self.model, lanes, self.settings, self.epoch, self.ask)

    def _started(self, number: int) -> StreamWorker:
        while True:
            try:
                return self.start(number)
            except ProcessKilled:
                self.killed["worker"] += 1

    def _unlucky(self) -> bool:
        return self.chance.random() < self._risk

    def ask(self, calls: Any) -> list[Any]:
        """Call all shards; any of them, and the caller, may die before, in between and after."""
        answers = []
        for number, (name, given) in enumerate(calls):
            if self._unlucky():
                self.restart_shard(number)
            answer = getattr(self.hosts[number], name)(*given)
            if self._unlucky():  # it was done, but the answer is lost: the call is made again
                self.restart_shard(number)
                answer = getattr(self.hosts[number], name)(*given)
            answers.append(answer)
            if self._unlucky():
                raise ProcessKilled
        return answers

    def restart_shard(self, number: int) -> None:
        self.killed["shard"] += 1
        self.hosts[number].journal.close()
        self.hosts[number] = self._host(number)

    def read(self, lane: PartitionLane) -> None:
        """Read the next events of a partition, or find that there are none."""
        part = int(lane.learner.name[1:])
        start = int(lane.learner.position.marks["at"][0])
        events = self.parts[part][start : start + self.chance.randrange(1, 200)]
        if not events:
            lane.ended = True
            return
        lane.take(ReadStep(decoded(events), StreamPosition({"at": (start + len(events),)}), 0))

    def step(self, number: int) -> None:
        """One turn of a worker, which may die in it."""
        worker = self.workers[number]
        try:
            for lane in worker.lanes:
                if not lane.ended:
                    self.read(lane)
                if (learned := worker.begin(lane)) is not None:
                    worker.finish(learned)
        except ProcessKilled:
            self.killed["worker"] += 1
            self.workers[number] = self._started(number)

    def run(self, save_risk: float = 0.02) -> None:
        """Learn everything, in random turns, with a snapshot now and then."""
        while not all(lane.done for worker in self.workers for lane in worker.lanes):
            self.step(self.chance.randrange(len(self.workers)))
            if self.chance.random() < save_risk:
                self.save()

    def save(self) -> None:
        """Records as a snapshot keeps them: of a moment in which all shards agree; else it is void."""
        for worker in self.workers:
            for lane in worker.lanes:
                if not lane.redo:
                    self.records[int(lane.learner.name[1:])] = lane.learner.record()
