"""Writes bad events with their reasons to a file, exactly once each, or to a stream or topic, at least once each."""

from collections.abc import Sequence
from pathlib import Path

from pbodl.data.log.quarantine import BadRow, Quarantine
from pbodl.streaming.events import BadEvent
from pbodl.streaming.sources.event_sink import Sink, open_sink


class DeadLetters:
    """The dead letters of a run. `sent` of them are written already; what a file holds beyond them will be written again."""

    def __init__(self, target: str | Path, source: str, sent: int) -> None:
        self._source, self._sent = source, sent
        self._sink: Sink | None = open_sink(str(target), 1) if "://" in str(target) else None
        self._file = Quarantine(target, sent) if self._sink is None else None

    def write(self, bad: Sequence[BadEvent]) -> None:
        """Write bad events."""
        if not bad:
            return
        if self._file is not None:
            self._file.write([BadRow(self._source, "letter", self._sent + n, *event) for n, event in enumerate(bad, 1)])
        elif self._sink is not None:
            self._sink.send([{"source": self._source, "reason": event.reason, "raw": event.raw} for event in bad])
        self._sent += len(bad)

    def close(self) -> None:
        for target in (self._file, self._sink):
            if target is not None:
                target.close()
