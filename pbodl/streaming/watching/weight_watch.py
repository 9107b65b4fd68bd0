"""Which features move most: their weights today against those at the start of the day.

At the first look of a day (of the stream, or of the clock without a time) the keys and weights of all rows are remembered, twelve
bytes for each. A look finds the rows of these keys again, since rows may have moved, and takes place once a minute at most.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.streaming.watching.field_watch import RowModel

DAY = 86400.0
EVERY = 60.0  # seconds between looks
TOP = 10
MOST = 5_000_000  # rows: in a larger table, only the first ones are watched


class WeightWatch:
    """The weights at the start of the day."""

    def __init__(self, model: RowModel, every: float = EVERY) -> None:
        self._model, self._every = model, every
        self._day = self._looked_at = float("-inf")
        self._keys: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._weights: NDArray[np.float32] = np.zeros(0, np.float32)
        self._found: list[dict[str, Any]] = []

        state = model.table.state()
        self._name = next((name for name in ("linear_mean", "mean") if name in state), None)

    def _column(self) -> NDArray[np.float32]:
        return np.zeros(0, np.float32) if self._name is None else self._model.table.column(self._name)[:, 0]

    def top(self, now: float | None) -> list[dict[str, Any]]:
        """The features whose weights have changed most since the day began, at the stream's time `now`."""
        day = np.floor((time.time() if now is None else now) / DAY)
        if day != self._day:
            self._keys, self._weights = self._model.table.keys[:MOST].copy(), self._column()[:MOST].copy()
            self._day, self._found, self._looked_at = day, [], time.monotonic()
        elif time.monotonic() - self._looked_at >= self._every:
            self._looked_at, self._found = time.monotonic(), self._look()
        return self._found

    def _look(self) -> list[dict[str, Any]]:
        table = self._model.table
        rows = table.find(self._keys[: len(self._weights)])
        there = np.flatnonzero(rows >= 0)
        if not len(there):
            return []
        now, before = self._column()[rows[there]], self._weights[there]
        change = np.abs(now - before)
        best = np.argpartition(-change, min(TOP, len(change)) - 1)[:TOP]
        best = best[np.argsort(-change[best], kind="stable")]
        fields = self._model.schema.fields
        return [
            {
                "field": fields[table.field[rows[there[place]]]].name, "key": f"{int(self._keys[there[place]]):016x}",
                "count": int(table.count[rows[there[place]]]), "before": float(before[place]), "now": float(now[place]),
            }
            for place in best.tolist()
            if change[place] > 0
        ]  # fmt: skip
