"""Figures of a model while it learns from a stream: since the start and for the last rows, for all ads and for new ones.

All figures are progressive: each prediction was made before its row was learned.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.schema import Schema
from pbodl.training.novelty import DAY, FirstSeen
from pbodl.training.stream_metrics import Figures, StreamMetrics

WINDOW = 100_000  # rows; the error of their AUC is about 0.003
DIGITS = 6
PREDICTED, CLICK, WEIGHT, NEW = range(4)


class LiveFigures:
    """Collects every learned batch with its predictions.

    >>> from pbodl.data.convert import from_data
    >>> from pbodl.data.schema import Field
    >>> schema = Schema(label="click", fields=[Field("ad", group="ad")])
    >>> figures = LiveFigures(schema, window=2)
    >>> batch = from_data(schema, [{"ad": i, "click": i % 2} for i in range(4)], labelled=True)
    >>> figures.add(batch, np.array([0.9, 0.1, 0.2, 0.8]))
    >>> figures.figures()["progressive"]["auc"], figures.figures()["window"]["auc"]
    (0.25, 1.0)
    """

    def __init__(self, schema: Schema, window: int = WINDOW) -> None:
        self._window = window
        self._first_seen = FirstSeen(schema) if schema.time is not None else None
        self._all, self._new = StreamMetrics(), StreamMetrics()
        self._recent: deque[NDArray] = deque()  # batches, (4, rows) each: predicted, clicks, weights, new
        self._recent_rows = 0

    def add(self, batch: Batch, predicted: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> None:
        """Add a learned batch: the probabilities predicted before learning, and how many rows each row stands for (default: 1)."""
        assert batch.clicks is not None
        weights = np.ones(len(batch)) if weights is None else weights
        new = np.zeros(len(batch), bool) if self._first_seen is None else self._first_seen.ages(batch) < DAY
        self._all.add(predicted, batch.clicks, weights)
        self._new.add(predicted[new], batch.clicks[new], weights[new])
        self._recent.append(np.stack([predicted, batch.clicks, weights, new]))
        self._recent_rows += len(batch)
        while self._recent_rows - self._recent[0].shape[1] >= self._window:
            self._recent_rows -= self._recent.popleft().shape[1]

    def _last_rows(self) -> NDArray:
        return np.concatenate([np.zeros((4, 0)), *self._recent], axis=1)[:, -self._window :]

    def figures(self) -> dict[str, Any]:
        """The figures of a point: {"progressive": figures, "window": figures}, each with `new_ads`."""
        last, recent, new = self._last_rows(), StreamMetrics(), StreamMetrics()
        for metrics, rows in ((recent, last), (new, last[:, last[NEW] > 0])):
            metrics.add(*np.ascontiguousarray(rows[[PREDICTED, CLICK, WEIGHT]]))
        return {
            "progressive": {**_plain(self._all.figures()), "new_ads": _plain(self._new.figures())},
            "window": {**_plain(recent.figures()), "new_ads": _plain(new.figures())},
        }

    def state(self) -> dict[str, NDArray]:
        """The figures' state, as arrays."""
        parts = {"all": self._all.state(), "new": self._new.state()}
        if self._first_seen is not None:
            parts["first_seen"] = self._first_seen.state()
        arrays = {f"{part}.{name}": array for part, own in parts.items() for name, array in own.items()}
        return arrays | {"recent": self._last_rows()}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Continue from a `state()`."""
        self._all.load_state(_part(state, "all."))
        self._new.load_state(_part(state, "new."))
        if self._first_seen is not None:
            self._first_seen.load_state(_part(state, "first_seen."))
        self._recent = deque([np.array(state["recent"])])
        self._recent_rows = state["recent"].shape[1]


def _plain(figures: Figures) -> dict[str, Any]:
    """Rounded figures for JSON: None where there is no number."""
    return {name: None if value != value else round(value, DIGITS) for name, value in figures._asdict().items()}


def _part(state: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
