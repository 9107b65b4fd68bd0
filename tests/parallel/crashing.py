"""A cluster in one thread whose parts are killed at chosen moments: what Ray does with calls and restarts, without Ray."""

import random
from pathlib import Path
from typing import Any

from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.coordinator import source_of
from pbodl.parallel.cluster.durable_shard import DurableShard, write_first
from pbodl.parallel.cluster.sharding import deal, empty_part
from pbodl.parallel.cluster.work_format import Done, Work, decode_done, decode_work, encode_done, encode_work
from pbodl.parallel.cluster.worker_slot import WorkerSlot
from pbodl.parallel.cluster_prior import adapt_cluster
from pbodl.parallel.message import Message, encode
from pbodl.system.tensors import unpack


class Killed(Exception):
    """The process that was asked is gone; whether it did what it was asked, nobody knows."""


class Crashing:
    """A dispatcher (`coordinator.Dispatcher`) that kills shards and slots with probability `risk` before and after every call."""

    def __init__(self, model: DeepProbit, slots: int, shards: int, folder: Path, risk: float = 0.0, seed: int = 0) -> None:
        self._model, self._shards, self._folder, self._risk = model, shards, folder, risk
        self._chance = random.Random(seed)
        for shard in deal(model, shards):
            write_first(shard, folder / str(shard.number))
        self.hosts = [self._host(number) for number in range(shards)]
        self.slots = [self._slot(number) for number in range(slots)]
        self._sent: dict[tuple[int, int], bytes] = {}
        self.killed = {"shard": 0, "slot": 0}
        self._priors = 0

    def _host(self, number: int) -> DurableShard:
        return DurableShard(empty_part(self._model, self._shards), number, self._folder / str(number))

    def _slot(self, number: int) -> WorkerSlot:
        return WorkerSlot(self._model, source_of(number), self._shards, self._ask)

    def _unlucky(self) -> bool:
        return self._chance.random() < self._risk

    def _ask(self, calls: Any) -> list[Any]:
        answers = []
        for number, (name, given) in enumerate(calls):
            if self._unlucky():
                self._restart(number)
            answer = getattr(self.hosts[number], name)(*given)
            if self._unlucky():  # it was done, but the answer is lost: the call is made again
                self._restart(number)
                answer = getattr(self.hosts[number], name)(*given)
            answers.append(answer)
            if self._unlucky():
                raise Killed  # the slot, between two shards
        return answers

    def _restart(self, number: int) -> None:
        self.killed["shard"] += 1
        self.hosts[number].journal.close()
        self.hosts[number] = self._host(number)

    def adapt(self) -> None:
        """Adapt the prior, as `on_ray` does; what is interrupted is asked again."""

        def evidence() -> list[Any]:
            return [unpack(answer)["evidence"] for answer in self._until_answered(("evidence", ()))]

        def push(message: Message) -> None:
            self._until_answered(("push", (encode(message),)))

        self._priors = adapt_cluster(self._model, evidence, push, self._priors)

    def _until_answered(self, call: Any) -> list[Any]:
        while True:
            try:
                return self._ask([call] * self._shards)
            except Killed:
                continue

    def send(self, slot: int, work: Work) -> tuple[int, int]:
        self._sent[slot, work.sequence] = encode_work(work)
        return slot, work.sequence

    def wait(self, tickets: list[tuple[int, int]]) -> tuple[tuple[int, int], Done]:
        slot = self._chance.choice(tickets)[0]
        ticket = min(one for one in tickets if one[0] == slot)  # a slot's work is done in order
        while True:
            try:
                done = encode_done(self.slots[slot].learn(decode_work(self._sent[ticket])))
                if self._unlucky():
                    raise Killed  # after all of it, before its answer
                del self._sent[ticket]
                return ticket, decode_done(done)
            except Killed:
                self.killed["slot"] += 1
                self.slots[slot] = self._slot(slot)
