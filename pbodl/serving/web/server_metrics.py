"""A server's metrics for Prometheus. Several worker processes add up their counts in the folder `PROMETHEUS_MULTIPROC_DIR`."""

import os
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from pbodl.serving.models.predictor_source import PredictorSource
from pbodl.serving.models.served_models import ServedModels
from pbodl.serving.ranking.decision_log import DecisionLog

SECONDS = (0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0)
SMOOTHING = 0.02  # share of the newest request in the prediction mean
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
GUARDS = ("rejected_embedding", "rejected_linear", "rejected_dense")


class ServerMetrics:
    """The metrics of a worker."""

    def __init__(self, models: ServedModels, log: DecisionLog | None = None) -> None:
        self._together = FOLDER in os.environ
        registry = CollectorRegistry()
        self.requests = Counter("pbodl_requests", "Requests by endpoint and status.", ["endpoint", "status"], registry=registry)
        self.seconds = Histogram(
            "pbodl_request_seconds",
            "Time from the first byte of a score request to its answer.",
            registry=registry,
            buckets=SECONDS,
        )
        self.rank_seconds = Histogram(
            "pbodl_rank_seconds",
            "Time from the first byte of a rank request to its answer.",
            registry=registry,
            buckets=SECONDS,
        )
        self.answers = Counter(
            "pbodl_answers", "Requests answered, by model, where there are several.", ["name"], registry=registry
        )
        self.shadow_failures = Counter(
            "pbodl_shadow_failures", "Requests that a challenger could not score.", ["name"], registry=registry
        )
        self.candidates = Counter("pbodl_candidates", "Candidates scored.", registry=registry)
        self.prediction_mean = Gauge(
            "pbodl_prediction_mean", "Mean of recently predicted CTRs, before exploration.",
            registry=registry, multiprocess_mode="mostrecent",
        )  # fmt: skip
        self._mean: float | None = None
        self._registry = registry
        self._model = _ModelCollector(models, log)

    def scored(self, n: int, ctr_sum: float, name: str | None = None) -> None:
        """Count an answered request; `name` is that of the model, where there are several."""
        if name:
            self.answers.labels(name).inc()
        self.candidates.inc(n)
        if n:
            mean = ctr_sum / n
            self._mean = mean if self._mean is None else self._mean + SMOOTHING * (mean - self._mean)
            self.prediction_mean.set(self._mean)

    def text(self) -> bytes:
        """All metrics, in the format of Prometheus."""
        shown = self._registry
        if self._together:
            shown = CollectorRegistry()
            MultiProcessCollector(shown)
        about_model = CollectorRegistry()
        about_model.register(self._model)
        return generate_latest(shown) + generate_latest(about_model)


class _ModelCollector:
    """Metrics of the model, collected on request."""

    def __init__(self, models: ServedModels, log: DecisionLog | None) -> None:
        self._models, self._log = models, log

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        if self._log is not None:
            for what, count in (("logged", self._log.logged), ("dropped", self._log.dropped)):
                yield CounterMetricFamily(f"pbodl_decisions_{what}", f"Impressions of decisions that were {what}.", value=count)
        if self._models.several:
            yield from _side_by_side(self._models)
        if (source := self._models.default) is not None:
            yield from self._of_default(source)

    def _of_default(self, source: PredictorSource) -> Iterator[Metric]:
        for trouble, count in source.troubles.items():
            yield CounterMetricFamily(f"pbodl_publications_{trouble}", f"Publications that were {trouble}.", value=count)
        predictor = source.predictor
        if predictor is None:
            return
        version, counters = predictor.version, predictor.version.counters
        yield GaugeMetricFamily("pbodl_model_version", "The version served.", value=version.number)
        yield GaugeMetricFamily(
            "pbodl_model_age_seconds", "Seconds since the version was published.", value=time.time() - version.published_at
        )
        yield GaugeMetricFamily("pbodl_model_rows_learned", "Rows that the model has learned from.", value=counters["rows_learned"])
        yield GaugeMetricFamily("pbodl_model_features", "Features that the model knows.", value=counters["features"])
        guards = CounterMetricFamily(
            "pbodl_model_rejected_updates", "Updates that a guard rejected, by part of the model.", labels=["part"]
        )
        for name in GUARDS:
            guards.add_metric([name.removeprefix("rejected_")], counters[name])
        yield guards
        for name in ("evicted", "expired"):
            yield CounterMetricFamily(f"pbodl_model_{name}_features", f"Features {name} so far.", value=counters[name])


def _side_by_side(models: ServedModels) -> Iterator[Metric]:
    """Metrics of all models, by name."""
    loaded = GaugeMetricFamily("pbodl_named_model_loaded", "Whether a model is loaded.", labels=["name"])
    version = GaugeMetricFamily("pbodl_named_model_version", "The version served.", labels=["name"])
    age = GaugeMetricFamily("pbodl_named_model_age_seconds", "Seconds since the version was published.", labels=["name"])
    for name, source in models.sources.items():
        predictor = source.predictor
        loaded.add_metric([name], predictor is not None)
        if predictor is not None:
            version.add_metric([name], predictor.version.number)
            age.add_metric([name], time.time() - predictor.version.published_at)
    yield from (loaded, version, age)
