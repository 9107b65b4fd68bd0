"""What a learner shows while it works: /metrics for Prometheus, points for the dashboard, facts for publications."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pbodl.errors import InputError
from pbodl.publishing.curves import Curves
from pbodl.publishing.publisher import Publisher
from pbodl.publishing.watch_file import write_watch
from pbodl.streaming.stream_learner import StreamLearner
from pbodl.streaming.watching.weight_watch import WeightWatch
from pbodl.system.extras import install_line
from pbodl.system.setbacks import Setbacks
from pbodl.training.stream_status import Show
from pbodl.training.tracker import plain

EVERY = 2.0  # seconds between refreshes
LOOPBACK = "127.0.0.1"
# Values that go up and down; all others only grow.
GAUGES = {
    "waiting", "remembered", "features", "log_loss", "ctr", "auc", "watermark", "lag", "event_lag_seconds", "events_per_second",
    "packs_ahead", "version", "held", "snapshot_seconds", "join_bytes", "martingale_ratio", "clicks_silent", "known_log_loss",
    "known_calibration",
}  # fmt: skip


WATCH_EVERY = 10.0  # seconds between writes of what is watched
ABOUT_FIELDS = {
    "drift": "Stability index of a field's values against the rows before",
    "missing": "Share of rows in which a field is missing",
    "new": "Share of a field's values that were never seen before",
}


class Board:
    """The learner's figures, for a page of metrics and for the curves."""

    def __init__(
        self, learner: StreamLearner, publisher: Publisher | None, page: "MetricsPage", show: Show = lambda values: None
    ) -> None:
        self._learner, self._publisher, self._page, self._show = learner, publisher, page, show
        self.setbacks = page.setbacks
        self._curves, self._movers = Curves(learner.folder), WeightWatch(learner.model)
        self._watched_at = float("-inf")
        with self.setbacks.tolerating("writing the curves"):
            self._curves.rewind(learner.model.rows_learned)
        self._shown_at, self._events, self._rows = time.monotonic(), learner.events, learner.model.rows_learned

    def facts(self) -> dict[str, Any]:
        """Facts about this moment, for a publication."""
        watermark = self._learner.join.watermark
        return {"events": self._learner.events, "watermark": watermark if watermark == watermark else None}

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._shown_at >= EVERY

    def refresh(self, lag: int | None, packs_ahead: int, snapshot_seconds: float) -> None:
        """Update all figures, and add a point to the curves."""
        learner, now = self._learner, time.monotonic()
        seconds, rows = max(now - self._shown_at, 1e-9), learner.model.rows_learned
        values = learner.metrics()
        watermark = values["watermark"]
        values |= {
            "events_per_second": (learner.events - self._events) / seconds,
            "lag": lag,
            "event_lag_seconds": None if watermark is None else time.time() - watermark,
            "packs_ahead": packs_ahead,
            "snapshot_seconds": snapshot_seconds,
            "version": None if self._publisher is None else self._publisher.version,
            "join_bytes": learner.join.rows.bytes,
            "martingale_ratio": learner.honesty.ratio,
        }
        self._page.values, self._page.watch = values, self._watch(watermark)
        self._show({**values, "rows_per_second": (rows - self._rows) / seconds, "away": self._page.away})
        summary = learner.tracker.summary()
        figures = {name: summary[name] for name in ("rows", "ctr", "auc", "log_loss", "ne", "calibration", "new_ads")}
        curve = learner.tracker.curve()
        known = plain(learner.known_in_time.figures())
        models = {
            learner.config.kind: {"progressive": figures, "window": curve[-1] if curve else figures},
            "known in time": {"progressive": known, "window": known},
        }
        point = {"time": time.time(), "rows": rows, "rows_per_second": (rows - self._rows) / seconds, "stream_time": watermark}
        point |= {"lag": values["event_lag_seconds"], "packs_ahead": packs_ahead, "models": models, "held": values["held"]}
        self._shown_at, self._events, self._rows = now, learner.events, rows
        with self.setbacks.tolerating("writing the curves"):
            self._curves.append(point)

    def _watch(self, watermark: float | None) -> dict[str, Any]:
        """What is watched besides the figures; written into the run every few seconds."""
        learner = self._learner
        watch = {
            "time": time.time(),
            "fields": learner.fields.lines(),
            "movers": self._movers.top(watermark),
            "martingale": learner.honesty.ratio,
            "reliability": learner.tracker.reliability(of_period=True),
            "delays": learner.join.curve(),
        }
        if time.monotonic() - self._watched_at >= WATCH_EVERY:
            self._watched_at = time.monotonic()
            with self.setbacks.tolerating("writing what is watched"):
                write_watch(learner.folder, watch)
        return watch


class WatchedSource(Protocol):
    """What the page shows of a source, or of all sources of a cluster."""

    @property
    def away(self) -> str | None: ...

    @property
    def reconnects(self) -> int: ...


class MetricsPage:
    """Serves /metrics, from before the first answer of the broker to the end.

    values  the learner's figures of the last refresh
    watch   what it watches besides, as in `publishing.watch_file`
    """

    def __init__(self, source: "WatchedSource", setbacks: Setbacks, port: int | None, host: str = LOOPBACK) -> None:
        self._source, self.setbacks = source, setbacks
        self.values: dict[str, Any] = {}
        self.watch: dict[str, Any] = {}
        self._server = _serve(self, port, host)

    @property
    def away(self) -> str | None:
        """Why the broker does not answer, while that lasts."""
        return self._source.away

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def collect(self) -> Iterator[Any]:
        """The figures, as Prometheus wants them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        def state(name: str, about: str, reason: str | None) -> Any:
            family = GaugeMetricFamily(f"pbodl_online_{name}", about, labels=["reason"])
            family.add_metric([reason or ""], float(reason is not None))
            return family

        values = dict(self.values)
        yield state("held", "Whether publishing is held, and why", values.pop("held", None))
        yield state("broker_away", "Whether the broker does not answer, and why", self._source.away)
        failures = CounterMetricFamily("pbodl_online_setbacks", "Failures that learning has survived", labels=["what"])
        for what, count in self.setbacks.counts.items():
            failures.add_metric([what], count)
        yield failures
        yield from watched_families(dict(self.watch))
        values["reconnects"] = self._source.reconnects
        for name, value in values.items():
            if value is not None:
                family = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
                yield family(f"pbodl_online_{name}", f"See docs/guide/operating.md: {name}", value=float(value))


def watched_families(watch: Mapping[str, Any]) -> Iterator[Any]:
    """What a learner watches, as Prometheus wants it."""
    from prometheus_client.core import GaugeMetricFamily

    def gauge(name: str, about: str, labels: Sequence[str], samples: Iterable[tuple[list[str], float | None]]) -> Any:
        family = GaugeMetricFamily(f"pbodl_online_{name}", about, labels=labels)
        for values, number in samples:
            if number is not None:
                family.add_metric(values, number)
        return family

    for name, about in ABOUT_FIELDS.items():
        lines = (([line["field"]], line[name]) for line in watch.get("fields", []))
        yield gauge(f"field_{name}", about, ["field"], lines)
    for name in ("predicted", "observed"):
        groups = (([str(number)], group[name]) for number, group in enumerate(watch.get("reliability", [])))
        yield gauge(f"reliability_{name}", f"Clicks {name}, by groups of similar predictions", ["group"], groups)
    ages = (([f"{point['age']:.0f}"], point["share"]) for point in watch.get("delays", []))
    yield gauge("delay_share", "Share of an impression's clicks that have come by an age in seconds", ["age"], ages)
    movers = (([mover["field"], mover["key"]], mover["now"] - mover["before"]) for mover in watch.get("movers", []))
    yield gauge("mover", "Change of a weight since the day began", ["field", "feature"], movers)


def _serve(page: MetricsPage, port: int | None, host: str) -> Any:
    if port is None:
        return None
    try:
        import prometheus_client
    except ImportError as error:
        raise InputError(f"--metrics-port needs the Prometheus client; run: {install_line('serve')}") from error
    registry = prometheus_client.CollectorRegistry()
    registry.register(page)
    try:
        return prometheus_client.start_http_server(port, host, registry)[0]
    except (OSError, OverflowError) as error:
        told = getattr(error, "strerror", None) or error
        raise InputError(f"--metrics-port {port} cannot be opened on {host}: {told}; choose another one") from error
