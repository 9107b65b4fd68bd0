"""Messages of a plain schema to arrays by the compiled scan; None where `events` must look closer."""

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import NAME_SEED, field_seed, hash_integers, hash_value, wrapping
from pbodl.data.scan.event_scan import CLICK, EventNames, Found, scan_messages
from pbodl.data.schema import Schema
from pbodl.data.times import hours_of_day

BYTES = 100  # of an event: a first guess of how many there are


class PlainScan:
    """Reads messages of events whose fields are all categories of one value."""

    def __init__(self, schema: Schema, time: str) -> None:
        read = [field.name for field in schema.fields if field.derive is None]
        special = ["event", "id", time, schema.label]
        self.fits = (
            all(field.kind == "category" for field in schema.fields)
            and schema.weight is None
            and schema.time_format is None
            and not set(special) & set(read)
        )
        self._schema = schema
        columns = {name: place for place, name in enumerate(read)}
        self._places = [columns.get(field.name, -1) if field.derive is None else -1 for field in schema.fields]
        names = np.array([field_seed(name) for name in [*special, *read]], np.uint64)
        # A field's seed is the hash of its name, so the names are found by the seeds.
        self._names = EventNames(
            names, names, np.array([hash_value(name, None) for name in read], np.uint64),
            np.array([hash_value("event", kind) for kind in ("impression", "click")], np.uint64), np.uint64(NAME_SEED),
            np.frombuffer(b"truefalse", np.uint8),
        )  # fmt: skip

    def scan(self, messages: list[bytes]) -> tuple[NDArray, NDArray, NDArray, Batch] | None:
        """Kinds, ids, times and rows, as `events.Events` has them."""
        content = b"".join(messages)
        data, ends = np.frombuffer(content, np.uint8), np.array(list(accumulate(map(len, messages))), np.int64)
        room = len(content) // BYTES + 16
        while True:
            found = _room(room, len(self._names.missing))
            with wrapping():
                events, rows = scan_messages(data, ends, self._names, found)
            if events >= 0:
                break
            if rows == 0:
                return None
            room *= 4
        kinds, times = found.kinds[:events], found.times[:events]
        for place in np.flatnonzero(found.spans[:events, 0] >= 0).tolist():
            times[place] = float(content[slice(*found.spans[place].tolist())])
        return kinds, found.ids[:events], times, self._rows(found, rows, times[kinds != CLICK])

    def _rows(self, found: Found, rows: int, times: NDArray[np.float64]) -> Batch:
        width = len(self._places)
        keys = np.empty((rows, width), np.uint64)
        for field, place in enumerate(self._places):
            # The one derivation there is: the hour of day.
            hours = hash_integers(hours_of_day(times), field_seed(self._schema.fields[field].name)) if place < 0 else None
            keys[:, field] = found.keys[:rows, place] if hours is None else hours
        if self._schema.time is None:
            times = np.zeros(rows)
        return Batch(
            keys.reshape(-1), np.ones(rows * width, np.float32), np.tile(np.arange(width, dtype=np.int32), rows),
            np.arange(0, rows * width + 1, width, dtype=np.int64), found.labels[:rows].copy(), times, np.ones(rows, np.float32),
        )  # fmt: skip


def _room(events: int, fields: int) -> Found:
    return Found(
        np.empty(events, np.int8), np.empty(events, np.uint64), np.empty(events), np.empty((events, 2), np.int64),
        np.empty(events, np.float32), np.empty((events, fields), np.uint64),
        np.zeros(32, np.uint8),
    )  # fmt: skip
