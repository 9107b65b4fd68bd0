"""What a learner shows while it works: /metrics for Prometheus, on 127.0.0.1, and the facts that go with each publication."""

import time
from typing import Any

from pbodl.errors import InputError
from pbodl.streaming.events import Events
from pbodl.streaming.learner import Learner
from pbodl.streaming.publish import Publisher
from pbodl.streaming.source import Source

EVERY = 2.0  # seconds between refreshments


class Board:
    """The learner's figures."""

    def __init__(self, learner: Learner, publisher: Publisher | None, port: int | None) -> None:
        self._learner, self._publisher = learner, publisher
        self._gauges, self._server = _serve(port)
        self._shown_at = time.monotonic()
        self._before = learner.events
        self.rate = 0.0  # events a second, lately

    def note(self, events: Events) -> None:
        """Told of each pack."""

    def facts(self) -> dict[str, Any]:
        """What a publication says of its moment."""
        return {"events": self._learner.events, "watermark": self._learner.metrics()["watermark"]}

    def refresh_when_due(self, source: Source) -> None:
        if time.monotonic() - self._shown_at >= EVERY:
            self.refresh(source)

    def refresh(self, source: Source) -> None:
        """Bring all figures up to now."""
        now = time.monotonic()
        self.rate = (self._learner.events - self._before) / max(now - self._shown_at, 1e-9)
        self._before, self._shown_at = self._learner.events, now

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()


def _serve(port: int | None) -> tuple[dict[str, Any], Any]:
    if port is None:
        return {}, None
    try:
        import prometheus_client
    except ImportError as error:
        raise InputError("--metrics-port needs the Prometheus client: pip install 'pbodl[serve]'") from error
    registry = prometheus_client.CollectorRegistry()
    server, _ = prometheus_client.start_http_server(port, "127.0.0.1", registry)
    return {}, server
