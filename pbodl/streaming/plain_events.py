"""The compiled scan of messages and lines of a plain schema; None where `events` must look closer."""

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.features.crosses import cross_keys, crosses_of
from pbodl.data.features.outcome import outcome_of
from pbodl.data.hashing import field_seed, hash_integers, hash_value, wrapping
from pbodl.data.log.lines import LineBlock
from pbodl.data.scan.event_columns import CLICK, EventColumns
from pbodl.data.scan.object_walk import NO_ROOM, names_of, scan_lines, scan_messages
from pbodl.data.schema import Schema
from pbodl.data.times import UNITS, derived, in_range

BYTES = 100  # of an event: a first guess at how many there are


class PlainScan:
    """Reads events whose fields are all categories of one value."""

    def __init__(self, schema: Schema, time: str, events: tuple[str, str]) -> None:
        read = schema.sources
        special = ["event", "id", time, schema.label_column]
        self.fits = (
            all(field.is_category and field.column is None for field in schema.fields)
            and schema.weight is None
            and outcome_of(schema.label) is None
            and not any("." in name for name in read)
            and schema.time_format is None
            and not set(special) & set(read)
        )
        self._schema, self._scale = schema, UNITS[schema.time_unit or "s"]
        self._columns = [-1 if field.source is None else read.index(field.source) for field in schema.fields]
        given = [field for field in schema.fields if field.source is not None]
        self._json, self._msgpack = (names_of(special, given, is_json) for is_json in (True, False))
        self._kind_keys = np.array([hash_value("event", kind) for kind in events], np.uint64)
        self._width = len(read)

    def scan(self, contents: list[bytes] | LineBlock) -> tuple[NDArray, NDArray, NDArray, Batch] | None:
        """Kinds, ids, times and rows of messages or lines, as `events.Events` has them; None if this is not a plain case."""
        by_line = isinstance(contents, LineBlock)
        content = contents.data if isinstance(contents, LineBlock) else b"".join(contents)
        ends = contents.ends[1:] if isinstance(contents, LineBlock) else np.array(list(accumulate(map(len, contents))), np.int64)
        data = np.frombuffer(content, np.uint8)
        room, n = len(content) // BYTES + 16, NO_ROOM
        while n == NO_ROOM:
            keys = np.empty((room, self._width), np.uint64)
            found = EventColumns(
                np.empty(room, np.int8), np.empty(room, np.uint64), np.empty(room), np.empty((room, 2), np.int64),
                np.empty(room, np.float32), self._kind_keys,
            )  # fmt: skip
            digits = np.zeros(32, np.uint8)
            with wrapping():
                if by_line:
                    n = scan_lines(data, ends, self._json, keys, found, digits)
                else:
                    n = scan_messages(data, ends, self._json, self._msgpack, keys, found, digits)
            room *= 4
        if n < 0:
            return None
        kinds, times = found.kinds[:n], found.times[:n]
        for event in np.flatnonzero(found.spans[:n, 0] >= 0).tolist():
            times[event] = float(content[slice(*found.spans[event].tolist())])
        times = times / self._scale
        if not in_range(times).all():
            return None
        shown = np.flatnonzero(kinds != CLICK)
        return kinds, found.ids[:n], times, self._rows(keys[shown], found.labels[shown], times[shown])

    def _rows(self, read: NDArray[np.uint64], labels: NDArray[np.float32], times: NDArray[np.float64]) -> Batch:
        rows, width = len(read), len(self._columns)
        keys = np.empty((rows, width), np.uint64)
        for field, column in enumerate(self._columns):
            if column >= 0:
                keys[:, field] = read[:, column]
            elif what := self._schema.fields[field].derive:
                keys[:, field] = hash_integers(derived(what, times), field_seed(self._schema.fields[field].key_name))
        for field, parts in crosses_of(self._schema):
            keys[:, field] = cross_keys(self._schema.fields[field].key_name, [keys[:, part] for part in parts])
        if self._schema.time is None:
            times = np.zeros(rows)
        return Batch(
            keys.reshape(-1), np.ones(rows * width, np.float32), np.tile(np.arange(width, dtype=np.int32), rows),
            np.arange(0, rows * width + 1, width, dtype=np.int64), labels, times, np.ones(rows, np.float32),
        )  # fmt: skip
