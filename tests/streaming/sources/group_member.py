"""A learner of a Kafka group, in a thread or in a process of its own that can be stopped.

    python -m tests.streaming.sources.group_member ADDRESS

The process reads until a line arrives: `save` saves, and if a word follows, it waits for another line while it writes; `leave`
saves and ends. It tells how many events it has read, when it writes, and at last what it has learned.
"""

import json
import select
import sys
import threading
from collections.abc import Callable

import msgspec

from pbodl.streaming.sources.event_source import Away, Lost, Pack
from pbodl.streaming.sources.kafka_topic import KafkaTopic

PATIENCE = 300.0  # seconds; a busy machine takes its time


def ids(pack: Pack) -> list[str]:
    events = [msgspec.msgpack.decode(content) for content in pack.contents]
    return [event["id"] for some in events for event in (some if isinstance(some, list) else [some])]


class GroupLearner:
    """Reads, and saves when it is told to; goes back to what it saved when it loses partitions, as `pbodl online` does."""

    def __init__(self, address: str) -> None:
        self.topic = KafkaTopic(address)
        self.position = self.topic.start("start")
        self.snapshots = [(list[str](), self.position)]
        self.since: list[str] = []
        self.losses = self.voids = 0

    @property
    def learned(self) -> list[str]:
        return self.snapshots[-1][0]

    def read(self) -> None:
        try:
            pack = self.topic.read(self.position, 0.05)
            self.since, self.position = self.since + ids(pack), pack.position
        except Lost as loss:
            self._return(loss)

    def save(self, meanwhile: Callable[[], None] = lambda: None) -> bool:
        try:
            with self.topic.saving(self.position):
                self.snapshots.append((self.learned + self.since, self.position))
                meanwhile()
            self.since = []
            return True
        except Away:
            return False
        except Lost as loss:
            self._return(loss)
            return False

    def _return(self, loss: Lost) -> None:
        if loss.void:
            self.snapshots.pop()
            self.voids += 1
        self.since, self.position, self.losses = [], self.snapshots[-1][1], self.losses + 1


class Member:
    """A learner in a thread, which saves now and then."""

    def __init__(self, address: str, every: int = 3) -> None:
        self._learner = GroupLearner(address)
        self._stop, self._every = threading.Event(), every
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._stop.is_set() or self._learner.since:
            self._learner.read()
            turn += 1
            if turn % self._every == 0 or self._stop.is_set():
                self._learner.save()
        self._learner.topic.close()

    @property
    def learned(self) -> list[str]:
        return self._learner.learned

    @property
    def losses(self) -> int:
        return self._learner.losses

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


def _told(wait: float) -> str | None:
    return sys.stdin.readline().strip() if select.select([sys.stdin], [], [], wait)[0] else None


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def _main(address: str) -> None:
    learner, known = GroupLearner(address), 0

    def write() -> None:
        _say(writing=True)
        _told(PATIENCE)

    while True:
        word = _told(0.0)
        if word is None:
            learner.read()
            if len(learner.since) != known:
                known = len(learner.since)
                _say(read=known)
        elif word.startswith("save"):
            learner.save(write if word != "save" else lambda: None)
            known = len(learner.since)
            _say(saved=len(learner.learned))
        else:
            break
    while learner.since:
        learner.save()
    learner.topic.close()
    _say(learned=learner.learned, losses=learner.losses, voids=learner.voids)


if __name__ == "__main__":
    _main(sys.argv[1])
