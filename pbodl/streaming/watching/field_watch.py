"""How the values of each field drift: a stability index against the windows before, new values, missing values.

Every value falls into one of BINS bins of its field by its key, numbers that multiply by sign and size. One compiled loop counts a
batch. A window of WINDOW rows is compared with the reference, a slowly changing mean of the windows before it:
    index = Σ (q - p) log(q / p)      p, q the shares of the bins in the reference and now
Below 0.1 a field is stable, above 0.25 it has drifted. Bins of keys join values by chance, so an index may be a little too small,
never too large. A value is new if it adds a feature to the table.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.baselines.online_baseline import OnlineBaseline
from pbodl.data.batch import Batch
from pbodl.data.hashing import hash_value, wrapping
from pbodl.mixing import mix
from pbodl.models.deep_probit import DeepProbit

WINDOW = 50_000  # rows
ENOUGH = 5_000  # rows of an unfinished window that are compared
MEMORY = 0.05  # weight of the newest window in the reference
BINS = 64
COLUMNS = ("values", "missing", "new")  # of `shares`
RowModel = DeepProbit | OnlineBaseline  # models that learn row by row, into a table
STATE = ("reference", "bins", "shares", "last", "rows")


@jit
def count_values(keys, values, fields, missing, multiplied, bins, shares):
    """Count the values of a batch by field. MODIFIES: bins (fields, BINS), shares (fields, 3)."""
    for j in range(len(keys)):
        f = fields[j]
        shares[f, 0] += 1.0
        if keys[j] == missing[f]:
            shares[f, 1] += 1.0
            bins[f, 0] += 1.0
        elif multiplied[f]:
            x = np.float64(values[j])
            size = 1 if x == 0.0 else min(max(int(np.floor(2.0 * np.log2(abs(x)))) + 16, 1), 31)
            bins[f, size + (32 if x < 0.0 else 0)] += 1.0
        else:
            bins[f, 1 + np.int64(mix(keys[j]) % np.uint64(BINS - 1))] += 1.0


class FieldWatch:
    """Counts the values that a model learns from."""

    def __init__(self, model: RowModel) -> None:
        self._model = model
        fields = model.schema.fields
        self.names = [field.name for field in fields]
        self._missing = np.array([hash_value(field.key_name, None) for field in fields], np.uint64)
        self._multiplied = np.array([field.is_scaled or field.kind == "vector" for field in fields], np.bool_)
        n = len(fields)
        self.reference, self.bins = np.zeros((n, BINS)), np.zeros((n, BINS))  # the reference holds shares
        self.shares, self.last = (
            np.zeros((n, len(COLUMNS))),
            np.zeros((n, len(COLUMNS))),
        )  # counts now, and in the last whole window
        self.rows = np.zeros(2)  # of this window, and windows so far
        self._drift = np.zeros(n)  # of the last whole window
        self._size, self._dropped = self._table()

    def _table(self) -> tuple[int, int]:
        table = self._model.table
        return table.size, table.evicted + table.expired

    def after(self, batch: Batch) -> None:
        """Count a batch that the model has just learned."""
        with wrapping():
            count_values(batch.keys, batch.values, batch.fields, self._missing, self._multiplied, self.bins, self.shares)
        (size, dropped), old = self._table(), self._size
        if dropped == self._dropped and size > old:  # after rows were dropped, nobody knows which are new
            self.shares[:, 2] += np.bincount(self._model.table.field[old:], minlength=len(self.names))
        self._size, self._dropped = size, dropped
        self.rows[0] += len(batch)
        if self.rows[0] >= WINDOW:
            self._end_window()

    def _end_window(self) -> None:
        now = _normal(self.bins)
        if self.rows[1]:
            self._drift = self.drift(self.bins)
        weight = max(MEMORY, 1.0 / (self.rows[1] + 1.0))
        self.reference += weight * (now - self.reference)
        self.last = self.shares.copy()
        self.bins[:], self.shares[:] = 0.0, 0.0
        self.rows[:] = 0.0, self.rows[1] + 1.0

    def drift(self, bins: NDArray[np.float64]) -> NDArray[np.float64]:
        """The stability index of each field's counts against the reference."""
        total = bins.sum(axis=1, keepdims=True)
        small = 0.5 / np.maximum(total, 1.0)
        p, q = self.reference + small, _normal(bins) + small
        p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
        return np.where(total[:, 0] > 0, ((q - p) * np.log(q / p)).sum(axis=1), 0.0)

    def lines(self) -> list[dict[str, Any]]:
        """For each field: drift, and shares of missing and new values, in this window if it has enough rows, else in the last."""
        fresh = self.rows[0] >= ENOUGH or not self.rows[1]
        shares = self.shares if fresh else self.last
        drift = self.drift(self.bins) if fresh else self._drift
        lines = []
        for index, name in enumerate(self.names):
            values, missing, new = shares[index]
            known = values > 0 and self.rows[1] > 0
            lines.append({
                "field": name, "drift": float(drift[index]) if known else None,
                "missing": float(missing / values) if values else None, "new": float(new / values) if values else None,
            })  # fmt: skip
        return lines

    def state(self) -> dict[str, NDArray]:
        """The counts, as arrays."""
        return {name: np.array(getattr(self, name)) for name in STATE} | {"drift": self._drift.copy()}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Continue from a `state()`; counts of another number of fields begin anew."""
        if len(state["reference"]) == len(self.names):
            for name in STATE:
                getattr(self, name)[:] = state[name]
            self._drift = np.array(state["drift"])


def _normal(bins: NDArray[np.float64]) -> NDArray[np.float64]:
    return bins / np.maximum(bins.sum(axis=1, keepdims=True), 1.0)
