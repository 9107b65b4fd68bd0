"""What a learner shows while it works: /metrics for Prometheus on 127.0.0.1, points for the dashboard, facts for publications."""

import time
from collections.abc import Iterator
from typing import Any

from pbodl.errors import InputError
from pbodl.publishing.curves import Curves
from pbodl.publishing.publisher import Publisher
from pbodl.streaming.sources.event_source import EventSource
from pbodl.streaming.stream_learner import StreamLearner

EVERY = 2.0  # seconds between refreshes
# Values that go up and down; all others only grow.
GAUGES = {
    "waiting", "remembered", "features", "log_loss", "ctr", "auc", "watermark", "lag", "event_lag_seconds", "events_per_second",
    "packs_ahead", "version", "held", "snapshot_seconds", "join_bytes",
}  # fmt: skip


class Board:
    """The learner's figures."""

    def __init__(self, learner: StreamLearner, publisher: Publisher | None, port: int | None) -> None:
        self._learner, self._publisher = learner, publisher
        self._curves = Curves(learner.folder)
        self._curves.rewind(learner.model.rows_learned)
        self._shown_at, self._events, self._rows = time.monotonic(), learner.events, learner.model.rows_learned
        self.values: dict[str, Any] = {}
        self._server = _serve(self, port)

    def facts(self) -> dict[str, Any]:
        """Facts about this moment, for a publication."""
        watermark = self._learner.join.watermark
        return {"events": self._learner.events, "watermark": watermark if watermark == watermark else None}

    def refresh_when_due(self, source: EventSource, packs_ahead: int, snapshot_seconds: float) -> None:
        if time.monotonic() - self._shown_at >= EVERY:
            self.refresh(source, packs_ahead, snapshot_seconds)

    def refresh(self, source: EventSource, packs_ahead: int, snapshot_seconds: float) -> None:
        """Update all figures, and add a point to the curves."""
        learner, now = self._learner, time.monotonic()
        seconds, rows = max(now - self._shown_at, 1e-9), learner.model.rows_learned
        values = learner.metrics()
        watermark = values["watermark"]
        values |= {
            "events_per_second": (learner.events - self._events) / seconds,
            "lag": source.lag(learner.position),
            "event_lag_seconds": None if watermark is None else time.time() - watermark,
            "packs_ahead": packs_ahead,
            "snapshot_seconds": snapshot_seconds,
            "version": None if self._publisher is None else self._publisher.version,
            "join_bytes": learner.join.rows.bytes,
            "reconnects": getattr(source, "reconnects", 0),
        }
        self.values = values
        summary = learner.tracker.summary()
        figures = {name: summary[name] for name in ("rows", "ctr", "auc", "log_loss", "ne", "calibration", "new_ads")}
        curve = learner.tracker.curve()
        models = {learner.config.kind: {"progressive": figures, "window": curve[-1] if curve else figures}}
        point = {"time": time.time(), "rows": rows, "rows_per_second": (rows - self._rows) / seconds, "stream_time": watermark}
        point |= {"lag": values["event_lag_seconds"], "packs_ahead": packs_ahead, "models": models, "held": values["held"]}
        self._curves.append(point)
        self._shown_at, self._events, self._rows = now, learner.events, rows

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class Collector:
    """Gives Prometheus the board's figures of the last refresh."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        values = dict(self._board.values)
        reason = values.pop("held", None)
        held = GaugeMetricFamily("pbodl_online_held", "Whether publishing is held, and why", labels=["reason"])
        held.add_metric([reason or ""], float(reason is not None))
        yield held
        for name, value in values.items():
            if value is not None:
                family = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
                yield family(f"pbodl_online_{name}", f"See docs/guide/operating.md: {name}", value=float(value))


def _serve(board: Board, port: int | None) -> Any:
    if port is None:
        return None
    try:
        import prometheus_client
    except ImportError as error:
        raise InputError("--metrics-port needs the Prometheus client: pip install 'pbodl[serve]'") from error
    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector(board))
    try:
        return prometheus_client.start_http_server(port, "127.0.0.1", registry)[0]
    except OSError as error:
        raise InputError(f"--metrics-port {port} cannot be opened on 127.0.0.1: {error.strerror}; choose another one") from error
