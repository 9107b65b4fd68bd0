"""Writes bad events with their reasons, exactly once each to a file or a Kafka topic, at least once each to a Redis stream.

Letters for a Kafka topic wait for the next snapshot, which holds them too. They are sent after it, in a transaction with their
count: whether a process dies before or after that, the next one knows what is still to be sent.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pbodl.data.log.quarantine import BadRow, Quarantine
from pbodl.streaming.events import BadEvent
from pbodl.streaming.sources.event_sink import Sink, open_sink

if TYPE_CHECKING:
    from pbodl.streaming.sources import kafka_sink

MANY = 10_000  # letters that wait for a snapshot; more are a reason for one


class DeadLetters:
    """The dead letters of a run. `written` of them are written already; what a file holds beyond them will be written again.

    run      the run's own name, which no other has; without one, a Kafka topic gets letters at once, and at least once
    waiting  letters at the end of the written ones that the snapshot holds: perhaps they were not sent
    """

    def __init__(self, target: str | Path, source: str, written: int, run: str = "", waiting: Iterable[Sequence[str]] = ()) -> None:
        self._source, self._written = source, written
        self.waiting = [BadEvent(*letter) for letter in waiting]
        self._box: kafka_sink.KafkaLetters | None = None
        self._sink: Sink | None = None
        self._file: Quarantine | None = None
        if str(target).startswith("kafka://") and run:
            from pbodl.streaming.sources.kafka_sink import KafkaLetters

            self._box = KafkaLetters(str(target), f"pbodl-letters-{run}")
            self.saved()
        elif "://" in str(target):
            self._sink = open_sink(str(target), 1)
        else:
            self._file = Quarantine(target, written)

    def write(self, bad: Sequence[BadEvent]) -> None:
        """Write bad events, or keep them for the next snapshot."""
        if not bad:
            return
        if self._file is not None:
            self._file.write([BadRow(self._source, "letter", self._written + n, *event) for n, event in enumerate(bad, 1)])
        elif self._sink is not None:
            self._sink.send([self._plain(event) for event in bad])
        else:
            self.waiting += bad
        self._written += len(bad)

    @property
    def are_many(self) -> bool:
        """Whether it is time for a snapshot, so that they can be sent."""
        return len(self.waiting) >= MANY

    def saved(self) -> None:
        """The snapshot has the letters that wait: send them."""
        if self._box is not None:
            self._box.send([self._plain(event) for event in self.waiting], self._written)
        self.waiting = []

    def _plain(self, event: BadEvent) -> dict[str, Any]:
        return {"source": self._source, "reason": event.reason, "raw": event.raw}

    def close(self) -> None:
        for target in (self._file, self._sink, self._box):
            if target is not None:
                target.close()
