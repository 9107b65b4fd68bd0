"""Events of a stream as arrays: many at a time, each bad one set aside with the reason.

An event is a JSON or msgpack object:

    {"event": "impression", "id": "a1", "time": 1731283200.0, "ad": "x", "user": 7, ...}     the schema's fields
    {"event": "click", "id": "a1", "time": 1731283260.0}
    {"time": 1731283200.0, "click": 1, "ad": "x", "user": 7, ...}                            a row that is joined already

For the outcome "conversion", the events are clicks, with the schema's fields, and conversions, which stand where clicks stand here.
The time has the name that the schema gives it, or `time` if the schema has none. A message may hold one event, an array of events,
or JSON lines; a line of a file, one event or an array. What becomes of an event depends on its own bytes alone, and not on what was
read together with it: messages and lines are split before they are judged.

A compiled scan (`data.scan`) reads plain events. All others become columns, and are read as tables of a file are: a dict for each
would cost more than learning it.
"""

import contextlib
import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import concat
from pbodl.data.features.former_names import renamed_table
from pbodl.data.features.nested import nested_value
from pbodl.data.features.outcome import outcome_of
from pbodl.data.hashing import field_seed, hash_array
from pbodl.data.log.jsonl_reader import column_of, plain_column
from pbodl.data.log.lines import LineBlock
from pbodl.data.log.row_blocks import RowBlock
from pbodl.data.log.row_faults import good_rows
from pbodl.data.sampling import selected
from pbodl.data.scan.event_columns import CLICK, IMPRESSION, JOINED
from pbodl.data.schema import Schema, nearest
from pbodl.data.texts import times as times_of_texts
from pbodl.data.times import is_text, parse_times
from pbodl.errors import InputError
from pbodl.streaming.event_texts import EventTexts
from pbodl.streaming.plain_events import PlainScan

OUTCOMES = {"click": ("impression", "click"), "conversion": ("click", "conversion")}  # what is shown, and what comes of it
SHOWN = 2000  # characters of a bad event that are kept
Contents = list[bytes] | LineBlock | RowBlock  # messages of a broker, lines of JSON, or rows of a table


class BadEvent(NamedTuple):
    """An event, or a whole message, that was set aside."""

    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class Events:
    """Events in their order; those that are not clicks have a row each."""

    kinds: NDArray[np.int8]  # [n]
    ids: NDArray[np.uint64]  # [n] hashed; 0 where a joined row has none
    times: NDArray[np.float64]  # [n]
    rows: Batch  # `clicks` are the joined rows' labels, 0 for impressions
    bad: list[BadEvent]
    before: list[int]  # for each bad one, the number of good ones before it
    raw: Callable[[int], str]  # a good event by its number, for people

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def runs(self) -> tuple[int, int, int]:
        """How many bad events follow one another: before the first good one, at most, and after the last."""
        counts = Counter(self.before)
        return counts[0], max(counts.values(), default=0), counts[len(self)]

    def and_bad(self, refused: dict[int, str]) -> "Events":
        """These events, and among the bad some of them as well: reasons by number."""
        entries = [((place, 0), event) for place, event in zip(self.before, self.bad, strict=True)]
        entries += [((place, 1), BadEvent(reason, self.raw(place)[:SHOWN])) for place, reason in refused.items()]
        before, bad = in_order(entries, np.ones(len(self), bool))
        return replace(self, bad=bad, before=before)


def in_order(entries: list[tuple[tuple[int, int], BadEvent]], good: NDArray[np.bool_]) -> tuple[list[int], list[BadEvent]]:
    """Bad events in their order, each with the number of good ones before it.

    An entry has the key (number, 1) if it is the event of this number itself, and (number, 0) if it stands before that event.
    """
    entries = sorted(entries, key=lambda entry: entry[0])
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(good)])
    return [int(before[place]) for (place, _), _ in entries], [event for _, event in entries]


class EventDecoder:
    """Turns messages, lines and rows into events, for one schema.

    capacity  most features that an event may have: as many as the model's table has rows
    outcome   what may come of an event with fields: a click of an impression, or a conversion of a click
    """

    def __init__(self, schema: Schema, capacity: int | None = None, outcome: str = "click") -> None:
        if outcome not in OUTCOMES:
            raise InputError(f"--outcome is {outcome!r}; allowed are 'click' and 'conversion'")
        self._events = OUTCOMES[outcome]
        self._kinds_by_name: dict[Any, int] = {self._events[0]: IMPRESSION, self._events[1]: CLICK, None: JOINED}
        self.schema, self._capacity = schema, capacity
        self.time = schema.time or "time"
        names = schema.sources
        self._outcome = outcome_of(schema.label)
        # A computed label is computed here; what learns from the rows finds 0 and 1 in its column.
        self._learned = schema if self._outcome is None else msgspec.structs.replace(schema, label=schema.label_column)
        names += [name for name in (schema.label_column, schema.weight, self.time) if name is not None]
        if "event" in names:
            raise InputError("the schema has a column 'event', but in a stream `event` says what an event is; rename the column")
        self._fields = list(dict.fromkeys(names))
        self._former = schema.former_columns
        self.names = list(
            dict.fromkeys(["event", "id", *names, *(alias for aliases in self._former.values() for alias in aliases)])
        )
        self._lists = {field.source for field in schema.fields if field.kind in ("multi", "vector")}
        # Columns need not be Python names, so the struct has names of its own.
        nested = {name: name.split(".")[0] for name in self.names if "." in name}
        own = {name: f"f{number}" for number, name in enumerate(dict.fromkeys([*self.names, *nested.values()]))}
        shape = msgspec.defstruct(
            "Event", [(inner, Any, None) for inner in own.values()], rename={inner: name for name, inner in own.items()}, gc=False
        )
        self._getters = {name: operator.attrgetter(inner) for name, inner in own.items() if name in self.names}
        self._outer = {name: (outer, operator.attrgetter(own[outer])) for name, outer in nested.items()}
        self._texts = EventTexts(shape)
        self._plain = PlainScan(schema, self.time, self._events)
        self._is_plain = self._plain.fits and (capacity is None or len(schema.fields) <= capacity)

    def decode(self, contents: Contents | pa.Table) -> Events:
        """The events of messages, of lines, or of rows."""
        if isinstance(contents, pa.Table):
            table, rows = contents, contents.num_rows
            contents = RowBlock(rows, table, np.arange(rows), {}, lambda row: str(table.slice(row, 1).to_pylist()[0]))
        if isinstance(contents, RowBlock):
            return self._of_rows(contents)
        if self._is_plain and len(contents) and (plain := self._plain.scan(contents)) is not None:
            given = contents
            return Events(*plain, [], [], lambda number: self._closer(given).raw(number))
        return self._closer(contents)

    def _closer(self, contents: list[bytes] | LineBlock) -> Events:
        """The events of messages or lines of any kind, through Python objects."""
        found = self._texts.lines(contents) if isinstance(contents, LineBlock) else self._texts.messages(contents)
        columns = {name: list(map(getter, found.events)) for name, getter in self._getters.items()}
        for name, (outer, getter) in self._outer.items():
            columns[name] = [
                nested_value({outer: getter(event)}, name) if value is None else value
                for value, event in zip(columns[name], found.events, strict=True)
            ]
        for name, aliases in self._former.items():
            for alias in aliases:
                former = columns.pop(alias)
                columns[name] = [other if own is None else own for own, other in zip(columns[name], former, strict=True)]
        bad = [(place, BadEvent(*reason_and_raw)) for place, *reason_and_raw in found.bad]
        return self._judged(columns, len(found.events), bad, found.raw)

    def _of_rows(self, block: RowBlock) -> Events:
        numbers = np.searchsorted(block.places, list(block.faults)).tolist()
        bad = [
            (number, BadEvent(fault, block.raw(place)[:SHOWN]))
            for number, (place, fault) in zip(numbers, block.faults.items(), strict=True)
        ]
        return self._judged(self._columns_of(block.table), block.table.num_rows, bad, lambda row: block.raw(int(block.places[row])))

    def _columns_of(self, table: pa.Table) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        table = renamed_table(self.schema, table)
        for name in dict.fromkeys(["event", "id", *self._fields]):
            column = table.column(name).combine_chunks() if name in table.column_names else pa.nulls(table.num_rows)
            if name in ("event", "id", self.time) and is_text(column.type):
                texts = pc.cast(column, pa.large_string())
                column = pc.if_else(pc.equal(texts, ""), pa.nulls(len(texts), texts.type), texts)
            columns[name] = column
        return columns

    def _judged(self, columns: dict[str, Any], n: int, bad: list[tuple[int, BadEvent]], raw: Callable[[int], str]) -> Events:
        """The good events, and all bad ones: those of `bad`, each with the number of events before it, and those found here."""
        faults: dict[int, str] = {}
        kinds = self._kinds(columns["event"], faults)
        arrays = {name: self._array(name, column, faults) for name, column in columns.items() if name != "event"}
        self._check_ids(arrays["id"], kinds, faults)
        table = self._row_table(arrays, kinds)
        times = self._times(arrays[self.time], faults)
        good = np.ones(n, dtype=bool)
        rows = self._rows(table, np.flatnonzero(kinds != CLICK), faults, good)
        ids = hash_array(arrays["id"], field_seed("id"))
        if arrays["id"].null_count:
            ids[arrays["id"].is_null().to_numpy(zero_copy_only=False)] = 0
        if faults and n > 1 and any(_is_mixed(column) for column in columns.values()):
            # The other events have made texts of its values: say what is wrong with it alone.
            faults = {place: self._alone(columns, place) or fault for place, fault in faults.items()}
        entries = [((place, 0), event) for place, event in bad]
        entries += [((place, 1), BadEvent(fault, raw(place)[:SHOWN])) for place, fault in faults.items()]
        before, all_bad = in_order(entries, good)
        numbers = np.flatnonzero(good)
        return Events(kinds[good], ids[good], times[good], rows, all_bad, before, lambda number: raw(int(numbers[number])))

    def _alone(self, columns: dict[str, Any], place: int) -> str:
        """What is wrong with one event."""
        bad = self._judged({name: [column[place]] for name, column in columns.items()}, 1, [], str).bad
        return bad[0].reason if bad else ""

    def _rows(self, table: pa.Table, numbers: NDArray[np.int64], faults: dict[int, str], good: NDArray[np.bool_]) -> Batch:
        """The rows of the good events; row i of the table is event numbers[i]. MODIFIES: faults, good."""
        good[list(faults)] = False
        if faults:
            table, numbers = table.take(np.flatnonzero(good[numbers])), numbers[good[numbers]]
        rows, found = self._batch(table)
        faults |= {int(numbers[row]): fault for row, fault in found.items()}
        good[list(faults)] = False
        lengths = np.diff(rows.indptr)
        if self._capacity is not None and (lengths > self._capacity).any():
            numbers, fits = numbers[good[numbers]], lengths <= self._capacity
            faults |= {
                int(numbers[row]): f"it has {lengths[row]} features, more than the model's capacity of {self._capacity}"
                for row in np.flatnonzero(~fits).tolist()
            }
            rows = selected(rows, fits)
            good[list(faults)] = False
        return rows

    def _batch(self, table: pa.Table) -> tuple[Batch, dict[int, str]]:
        """The batch of the rows that can be learned, and the faults of the others.

        A type that a column cannot have is the fault of all rows that have it; halving finds them.
        """
        if not table.num_rows:
            table = pa.table({name: pa.array([], pa.string()) for name in table.column_names})
        try:
            rows, _, found = good_rows(self._learned, table, True)
            return rows, found
        except InputError as error:
            if table.num_rows == 1:
                return self._batch(table[:0])[0], {0: str(error).removeprefix("row 0: ")}
        half = table.num_rows // 2
        (first, faults), (second, more) = self._batch(table[:half]), self._batch(table[half:])
        return concat([first, second]), faults | {half + row: fault for row, fault in more.items()}

    def _kinds(self, column: Any, faults: dict[int, str]) -> NDArray[np.int8]:
        values = column.to_pylist() if isinstance(column, pa.Array) else column
        try:
            return np.fromiter(map(self._kinds_by_name.__getitem__, values), np.int8, len(values))
        except (KeyError, TypeError):
            kinds = np.zeros(len(values), np.int8)
            for place, value in enumerate(values):
                known = isinstance(value, str | None) and value in self._kinds_by_name
                kinds[place] = self._kinds_by_name[value] if known else CLICK
                if not known:
                    hint, (shown, outcome) = nearest(str(value), list(self._events)), self._events
                    faults[place] = (
                        f"its event is {value!r:.60}{hint}; it must be {shown!r}, {outcome!r}, or absent in a joined row"
                    )
            return kinds

    def _array(self, name: str, column: Any, faults: dict[int, str]) -> pa.Array:
        if isinstance(column, pa.Array):
            return column
        listed = name in self._lists
        array = plain_column(column, listed)
        return column_of(name, dict(enumerate(column)), faults, listed) if array is None else array

    def _check_ids(self, ids: pa.Array, kinds: NDArray[np.int8], faults: dict[int, str]) -> None:
        if ids.null_count:
            missing = ids.is_null().to_numpy(zero_copy_only=False)
            for place in np.flatnonzero(missing & (kinds != JOINED)).tolist():
                faults.setdefault(place, "it has no id; impressions and clicks are matched by their ids")

    def _times(self, column: pa.Array, faults: dict[int, str], first: int = 0) -> NDArray[np.float64]:
        """The times of the events from number `first` on; where the parser finds a fault, halving finds all. MODIFIES: faults."""
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.string())  # so that each is told
        as_text = is_text(column.type) and self.schema.time_format is None
        try:
            typed_times = times_of_texts(column.cast(pa.large_string()), self.schema.time_unit) if as_text else column
            return parse_times(typed_times, self.time, self.schema.time_format, self.schema.time_unit)
        except InputError as error:
            if len(column) <= 1:
                faults.setdefault(first, str(error).removeprefix("row 0: "))
                return np.zeros(len(column))
        half = len(column) // 2
        parts = (self._times(column[:half], faults, first), self._times(column[half:], faults, first + half))
        return np.concatenate(parts)

    def _labels(self, column: pa.Array) -> list[Any]:
        """The labels of joined rows; None where one cannot be computed."""
        values = column.to_pylist()
        if self._outcome is None:
            return values
        labels: list[Any] = [None] * len(values)
        for place, value in enumerate(values):
            with contextlib.suppress(InputError):
                labels[place] = self._outcome.of_value(value, place)
        return labels

    def _row_table(self, arrays: dict[str, pa.Array], kinds: NDArray[np.int8]) -> pa.Table:
        """The columns of the schema for all events but clicks; an impression has the label 0."""
        table = pa.table({name: arrays[name] for name in self._fields})
        label = self._learned.label
        if not (kinds == JOINED).any():
            zeros = pa.array(np.zeros(len(kinds), np.int8))
            table = table.set_column(self._fields.index(label), label, zeros)
        elif (kinds != JOINED).any():
            texts = [0 if kind != JOINED else value for kind, value in zip(kinds, self._labels(arrays[label]), strict=True)]
            table = table.set_column(self._fields.index(label), label, column_of(label, dict(enumerate(texts)), {}, False))
        elif self._outcome is not None:
            table = table.set_column(self._fields.index(label), label, pa.array(self._labels(arrays[label]), pa.float64()))
        return table if not (kinds == CLICK).any() else table.take(np.flatnonzero(kinds != CLICK))


def _is_mixed(column: Any) -> bool:
    """Whether a column of Python values has more than one type."""
    return isinstance(column, list) and len(set(map(type, column)) - {type(None)}) > 1
