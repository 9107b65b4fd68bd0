"""Progressive figures of a run: overall, by period of the stream, on new ads, and by the age of the ad."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.batch import Batch
from pbodl.data.schema import Schema
from pbodl.models.clock import Duration
from pbodl.training.novelty import AGE_NAMES, AGES, DAY, FirstSeen
from pbodl.training.stream_metrics import Figures, Judged, StreamMetrics, judged

POINTS = 24  # points of the learning curve in a period
NAMES = ("overall", "new_overall", "period", "new_period", "point")


@jit
def _by_age(weights, loss, ages, sums):
    """Sum weight and loss by the age of the ad, where it is known. MODIFIES: sums (AGES, 2)."""
    for i in range(len(ages)):
        group = 0
        while group < len(AGES) and ages[i] >= AGES[group]:
            group += 1
        if group < len(AGES):
            sums[group, 0] += weights[i]
            sums[group, 1] += weights[i] * loss[i]


class Tracker:
    """Takes every learned batch with its predictions, and keeps the figures that a run reports.

    `period` is the length of one line of figures, in time (if the schema has a time) or in rows.
    """

    def __init__(self, schema: Schema, period: Duration) -> None:
        self._period = period
        self._first_seen = FirstSeen(schema) if schema.time is not None else None
        self._metrics = {name: StreamMetrics() for name in NAMES}
        self._ages = np.zeros((len(AGES), 2))  # weight, loss
        self._rows = 0
        self._clock = -np.inf
        self.periods: list[dict[str, Any]] = []
        self.points: list[dict[str, Any]] = []
        self._current = {"period": np.nan, "point": np.nan}

    def add(self, batch: Batch, predicted: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
        """Count a learned batch: the predictions made before learning, and the number of rows that each row represents."""
        clock = self._marks(batch)
        ages = self._first_seen.ages(batch) if self._first_seen is not None else np.full(len(batch), np.inf)
        point = np.floor(clock / (self._period.amount / POINTS))
        edges = [0, *(np.flatnonzero(np.diff(point)) + 1).tolist(), len(batch)]
        assert batch.clicks is not None
        rows = judged(predicted, batch.clicks, weights)
        for start, stop in pairwise(edges):
            self._turn(point[start])
            self._count(rows.taken(slice(start, stop)), ages[start:stop])

    def _marks(self, batch: Batch) -> NDArray[np.float64]:
        marks = self._rows + np.arange(len(batch), dtype=np.float64) if self._period.in_rows else batch.times
        clock = np.maximum.accumulate(np.maximum(marks, self._clock))
        self._rows += len(batch)
        self._clock = float(clock[-1])
        return clock

    def _turn(self, point: float) -> None:
        """Close the current point and period if `point` lies beyond them."""
        if point != self._current["point"]:
            self._close("point", self.points, POINTS)
        if point // POINTS != self._current["period"]:
            self._close("period", self.periods, 1)
        self._current = {"point": point, "period": point // POINTS}

    def _close(self, name: str, lines: list[dict[str, Any]], per_period: int) -> None:
        if self._metrics[name].sums[0] > 0:
            lines.append(self._line(name, per_period))
        self._metrics[name].clear()
        if name == "period":
            self._metrics["new_period"].clear()

    def _line(self, name: str, per_period: int) -> dict[str, Any]:
        line = {"start": self._current[name] * self._period.amount / per_period, **plain(self._metrics[name].figures())}
        if name == "period":
            line["new_ads"] = plain(self._metrics["new_period"].figures())
        return line

    def _count(self, rows: Judged, ages: NDArray[np.float64]) -> None:
        new = rows.taken(ages < DAY)
        for name in NAMES:
            self._metrics[name].count(new if name.startswith("new") else rows)
        _by_age(rows.weights, rows.loss, ages, self._ages)

    def overall(self) -> Figures:
        """Figures of the whole stream so far."""
        return self._metrics["overall"].figures()

    def summary(self) -> dict[str, Any]:
        """All figures so far, the unfinished period included, as plain data."""
        periods = list(self.periods)
        if self._metrics["period"].sums[0] > 0:
            periods.append(self._line("period", 1))
        ages = [
            {"age": name, "rows": float(weight), "log_loss": float(loss / weight)}
            for name, (weight, loss) in zip(AGE_NAMES, self._ages, strict=True)
            if weight > 0
        ]
        return {**plain(self.overall()), "new_ads": plain(self._metrics["new_overall"].figures()), "days": periods, "ages": ages}

    def curve(self) -> list[dict[str, Any]]:
        """The learning curve: figures of consecutive short periods."""
        return [*self.points, self._line("point", POINTS)] if self._metrics["point"].sums[0] > 0 else list(self.points)

    def reliability(self, of_period: bool = False) -> list[dict[str, float]]:
        """Mean prediction and mean outcome, grouped by the prediction; of the whole stream, or of the current period."""
        rows = self._metrics["period" if of_period else "overall"].reliability
        return [{"weight": float(w), "predicted": float(p / w), "observed": float(c / w)} for w, p, c in rows if w > 0]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Plain data and arrays from which `load_state` continues."""
        facts = {"rows": self._rows, "clock": self._clock, "current": self._current, "periods": self.periods, "points": self.points}
        arrays = {f"{name}.{key}": array for name, metrics in self._metrics.items() for key, array in metrics.state().items()}
        if self._first_seen is not None:
            arrays |= {f"first_seen.{key}": array for key, array in self._first_seen.state().items()}
        return facts, arrays | {"ages": self._ages.copy()}

    def load_state(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> None:
        """Continue from a `state()`."""
        for name, metrics in self._metrics.items():
            metrics.load_state(_part(arrays, name))
        if self._first_seen is not None:
            self._first_seen.load_state(_part(arrays, "first_seen"))
        self._ages[:] = arrays["ages"]
        self._rows, self._clock, self._current = facts["rows"], facts["clock"], dict(facts["current"])
        self.periods, self.points = list(facts["periods"]), list(facts["points"])


def plain(figures: Figures) -> dict[str, Any]:
    """Figures for JSON: None instead of NaN."""
    return {name: None if value != value else value for name, value in figures._asdict().items()}


def _part(arrays: Mapping[str, NDArray], name: str) -> dict[str, NDArray]:
    return {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}
