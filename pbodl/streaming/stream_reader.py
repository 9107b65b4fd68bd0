"""Reads a source on and on, and decodes what it reads; runs in the background (`system.read_ahead`)."""

import logging
import time
from collections.abc import Generator
from typing import NamedTuple

from pbodl.errors import InputError
from pbodl.streaming.events import EventDecoder, Events
from pbodl.streaming.sources.event_source import EventSource, StreamPosition

logger = logging.getLogger(__name__)
AHEAD = 4  # packs to read before they are learned: the broker can keep the rest
WAIT = 0.2  # seconds that a read waits for events
LAG_EVERY = 2.0  # seconds between two questions how far behind the reader is


class ReadStep(NamedTuple):
    """A pack that was read and decoded."""

    events: Events
    position: StreamPosition
    gaps: int  # accepted before it


class StreamReader:
    """Reads a source from a position on.

    accept_gap  continue behind lost events
    until_end   end when the source has no more events
    lag         how much followed the position lately, if that is known
    """

    def __init__(self, source: EventSource, decoder: EventDecoder, accept_gap: bool = False, until_end: bool = False) -> None:
        self.source, self._decoder = source, decoder
        self._accept_gap, self._until_end = accept_gap, until_end
        self.lag: int | None = None

    def steps(self, position: StreamPosition) -> Generator[ReadStep | None, None, None]:
        """Decoded packs of the source; None while there are no events."""
        asked_at = float("-inf")
        while True:
            if time.monotonic() - asked_at >= LAG_EVERY:  # here and not where rows are learned, which never waits for a broker
                self.lag, asked_at = self.source.lag(position), time.monotonic()
            pack = self.source.read(position, WAIT)
            if pack.gap is not None and not self._accept_gap:
                raise InputError(f"{self.source.name} has lost events: {pack.gap}. Continue behind the gap with --accept-gap")
            if pack.gap is not None:
                logger.warning("%s has lost events: %s", self.source.name, pack.gap)
            position = pack.position
            if pack:
                yield ReadStep(self._decoder.decode(pack.contents), position, int(pack.gap is not None))
            elif self._until_end and self.source.ended(position):
                return
            else:
                yield None
