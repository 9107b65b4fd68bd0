"""Waiting for a broker that does not answer: it is told on the terminal, and a signal ends it."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from pbodl.streaming.sources.event_source import Away, EventSource
from pbodl.system.patience import Stopped, unless_stopped
from pbodl.system.stop_signals import StopRequest

T = TypeVar("T")
PAUSE = 0.25  # seconds between two attempts
REMIND = 30.0  # seconds between two lines on the terminal
logger = logging.getLogger(__name__)


class Broker:
    """A source, and how long it has been away."""

    def __init__(self, source: EventSource, stop: StopRequest) -> None:
        self.source, self.stop = source, stop
        self._since: float | None = None  # when it was first seen away
        self._told = 0.0

    def ask(self, call: Callable[[], T]) -> T:
        """An answer of the source, for which it waits as long as it takes; `Stopped` if a signal arrives first."""
        while True:
            try:
                answer = unless_stopped(call, self.stop)
                self.tell()
                return answer
            except Away:
                self.tell()
                if self.stop.wait(PAUSE):
                    raise Stopped from None

    def tell(self) -> None:
        """Tell that the source is away, now and then, and that it answers again."""
        reason, now = self.source.away, time.monotonic()
        if reason is None:
            if self._since is not None:
                logger.warning("%s answers again after %.0f s", self.source.name, now - self._since)
            self._since = None
        elif self._since is None or now - self._told >= REMIND:
            self._since, self._told = self._since or now, now
            logger.warning("waiting: %s (Ctrl-C or SIGTERM stops)", reason)
