"""How new is an ad? `FirstSeen` remembers when each ad first appeared, so that figures can be split by age.

The first category field of the group "ad" identifies the ad; without one, no ad is ever new. An ad is *new* for a day
after it first appeared, once the stream itself is older than a day: before that, every ad would be new.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.batch import Batch
from pbodl.data.schema import Schema
from pbodl.data.table.feature_table import Table

DAY = 86400.0
HOUR = 3600.0
AGES = (HOUR, 6 * HOUR, DAY, 3 * DAY, np.inf)  # upper bounds of the age groups
AGE_NAMES = ("under 1 h", "1 to 6 h", "6 to 24 h", "1 to 3 days", "over 3 days")


def ad_field(schema: Schema) -> int | None:
    """The index of the field that identifies ads; None if there is none."""
    ads = [
        i for i, field in enumerate(schema.fields) if field.group == "ad" and field.kind == "category" and field.source is not None
    ]
    return ads[0] if ads else None


@jit
def _one_each(fields, indptr, field, entries):
    """The index of each sample's feature of the field; False if a sample has none, or several. MODIFIES: entries."""
    for sample in range(len(entries)):
        found = 0
        for j in range(indptr[sample], indptr[sample + 1]):
            if fields[j] == field:
                entries[sample] = j
                found += 1
        if found != 1:
            return False
    return True


@jit
def _ages(rows, times, old_size, settled, first_seen, ages):
    """Ages from the time `settled` on; rows from `old_size` on are numbered in order of appearance. MODIFIES: first_seen, ages."""
    known = old_size
    for i in range(len(rows)):
        if rows[i] == known:
            first_seen[known] = times[i]
            known += 1
        ages[i] = max(times[i] - first_seen[rows[i]], 0.0) if times[i] >= settled else np.inf


class FirstSeen:
    """When each ad was first seen."""

    def __init__(self, schema: Schema) -> None:
        self._field = ad_field(schema)
        self._table = Table({})
        self._layout: tuple[NDArray | None, NDArray | None] = None, None  # fields and indptr of the last batch
        self._found: NDArray[np.int64] | None = None  # indices of its ads
        self.start = np.nan  # of the stream

    def ages(self, batch: Batch) -> NDArray[np.float64]:
        """Seconds since each sample's ad first appeared; infinite while the stream is less than a day old."""
        # A sample with several features of that field (a list), or none, does not identify its ad: it counts as old.
        ages = np.full(len(batch), np.inf)
        entries = self._entries(batch) if self._field is not None else None
        if entries is None:
            return ages
        if np.isnan(self.start):
            self.start = float(batch.times[0])
        old_size = self._table.size
        rows = self._table.insert(batch.keys[entries])
        _ages(rows, batch.times, old_size, self.start + DAY, self._table.last_seen, ages)
        return ages

    def _entries(self, batch: Batch) -> NDArray[np.int64] | None:
        """The indices of the samples' ads, if each sample has one."""
        layout = batch.fields, batch.indptr
        if any(one is not other for one, other in zip(layout, self._layout, strict=True)):  # most chunks of a log share theirs
            entries = np.empty(len(batch), np.int64)
            self._layout, self._found = layout, entries if _one_each(*layout, self._field, entries) else None
        return self._found

    def state(self) -> dict[str, NDArray]:
        """Its arrays."""
        return {"keys": self._table.keys.copy(), "times": self._table.last_seen.copy(), "start": np.array(self.start)}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Continue from a `state()`."""
        self._table = Table({})
        self._table.insert(state["keys"])
        self._table.last_seen[:] = state["times"]
        self.start = float(state["start"])
