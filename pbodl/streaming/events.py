"""Events of a stream as arrays: many at a time, each bad one set aside with the reason.

An event is a JSON or msgpack object:

    {"event": "impression", "id": "a1", "time": 1731283200.0, "ad": "x", "user": 7, ...}     the schema's fields
    {"event": "click", "id": "a1", "time": 1731283260.0}
    {"time": 1731283200.0, "click": 1, "ad": "x", "user": 7, ...}                            a row that is joined already

The time has the name that the schema gives it, or `time` if the schema has none. A message may hold one event, an array of events,
or JSON lines. A compiled scan (`data.scan`) reads plain events. All others become columns, and are read as tables of a file are: a
dict for each would cost more than learning it.
"""

import contextlib
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import field_seed, hash_array
from pbodl.data.log.jsonl_reader import column_of, plain_column
from pbodl.data.log.row_faults import good_rows
from pbodl.data.scan.event_columns import CLICK, IMPRESSION, JOINED
from pbodl.data.schema import Schema, nearest
from pbodl.data.texts import times as times_of_texts
from pbodl.data.times import parse_times
from pbodl.errors import InputError
from pbodl.streaming.plain_events import PlainScan

KINDS: dict[Any, int] = {"impression": IMPRESSION, "click": CLICK, None: JOINED}
SHOWN = 2000  # characters of a bad event that are kept
MODULES = (msgspec.json, msgspec.msgpack)
UNSOUND = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


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
    runs: tuple[int, int, int]  # how many bad ones follow one another: before the first good one, at most, and after the last

    def __len__(self) -> int:
        return len(self.kinds)


class EventDecoder:
    """Turns messages into events, for one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.time = schema.time or "time"
        names = [field.name for field in schema.fields if field.derive is None]
        names += [name for name in (schema.label, schema.weight, self.time) if name is not None]
        if "event" in names:
            raise InputError("the schema has a column 'event', but in a stream `event` says what an event is; rename the column")
        self._fields = list(dict.fromkeys(names))
        self.names = list(dict.fromkeys(["event", "id", *names]))
        self._lists = {field.name for field in schema.fields if field.kind == "multi"}
        # Columns need not be Python names, so the struct has names of its own.
        own = {name: f"f{number}" for number, name in enumerate(self.names)}
        shape = msgspec.defstruct(
            "Event", [(inner, Any, None) for inner in own.values()], rename={inner: name for name, inner in own.items()}, gc=False
        )
        self._getters = {name: operator.attrgetter(inner) for name, inner in own.items()}
        types = {False: shape, True: list[shape]}  # type: ignore[valid-type]
        self._json, self._msgpack = ({many: module.Decoder(kind) for many, kind in types.items()} for module in MODULES)
        self._plain = PlainScan(schema, self.time)

    def decode(self, contents: list[bytes] | pa.Table) -> Events:
        """The events of some messages, or of a table of a file."""
        if isinstance(contents, pa.Table):
            columns = self._columns_of(contents)
            return self._judged(columns, contents.num_rows, [], lambda row: str(contents.slice(row, 1).to_pylist()[0]))
        if self._plain.fits and contents and (plain := self._plain.scan(contents)) is not None:
            return Events(*plain, [], (0, 0, 0))
        events: list[Any] = []
        bad: list[tuple[int, BadEvent]] = []  # with the number of good ones before it
        for message in contents:
            try:
                events += self._one(message)
            except UNSOUND:
                self._piece_by_piece(message, events, bad)
        columns = {name: list(map(getter, events)) for name, getter in self._getters.items()}
        return self._judged(columns, len(events), bad, lambda row: msgspec.json.encode(events[row]).decode())

    def _one(self, message: bytes) -> Iterable[Any]:
        """The events of a message, if all are sound."""
        form = _form(message)
        if form == "lines":
            return self._json[False].decode_lines(message)
        decoders = self._json if message[:1] in (b"[", b"{") else self._msgpack
        decoded = decoders[form == "list"].decode(message)
        return decoded if isinstance(decoded, list) else [decoded]

    def _piece_by_piece(self, message: bytes, events: list[Any], bad: list[tuple[int, BadEvent]]) -> None:
        """The sound events of a message that is not sound as a whole. MODIFIES: events, bad."""
        form, pieces = _form(message), cast(Sequence[bytes], [message])
        if form == "lines":
            pieces = [line for line in message.splitlines() if line.strip()]
        elif form == "list":
            with contextlib.suppress(*UNSOUND):
                pieces = MODULES[message[:1] != b"["].decode(message, type=list[msgspec.Raw])
        for piece in pieces:
            try:
                events += self._one(bytes(piece))
            except UNSOUND as error:
                bad.append((len(events), BadEvent(f"it is not a JSON or msgpack object: {error}", _shown(bytes(piece)))))

    def _columns_of(self, table: pa.Table) -> dict[str, Any]:
        nothing = pa.nulls(table.num_rows)
        return {name: table.column(name).combine_chunks() if name in table.column_names else nothing for name in self.names}

    def _judged(self, columns: dict[str, Any], n: int, bad: list[tuple[int, BadEvent]], raw: Callable[[int], str]) -> Events:
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
        marked = [(int(good[:place].sum()), event) for place, event in bad]
        marked += [(int(good[:place].sum()), BadEvent(fault, raw(place)[:SHOWN])) for place, fault in sorted(faults.items())]
        marked.sort(key=lambda entry: entry[0])
        return Events(kinds[good], ids[good], times[good], rows, [event for _, event in marked], _runs(marked, int(good.sum())))

    def _rows(self, table: pa.Table, numbers: NDArray[np.int64], faults: dict[int, str], good: NDArray[np.bool_]) -> Batch:
        """The rows of the good events; row i of the table is event numbers[i]. MODIFIES: faults, good."""
        good[list(faults)] = False
        if faults:
            table, numbers = table.take(np.flatnonzero(good[numbers])), numbers[good[numbers]]
        try:
            rows, _, found = good_rows(self.schema, table, True)
        except InputError as error:
            raise InputError(f"the events of the stream do not fit the schema: {error}") from error
        faults |= {int(numbers[row]): fault for row, fault in found.items()}
        good[list(faults)] = False
        return rows

    def _kinds(self, column: Any, faults: dict[int, str]) -> NDArray[np.int8]:
        values = column.to_pylist() if isinstance(column, pa.Array) else column
        try:
            return np.fromiter(map(KINDS.__getitem__, values), np.int8, len(values))
        except (KeyError, TypeError):
            kinds = np.zeros(len(values), np.int8)
            for place, value in enumerate(values):
                known = isinstance(value, str | None) and value in KINDS
                kinds[place] = KINDS[value] if known else CLICK
                if not known:
                    hint = nearest(str(value), ["impression", "click"])
                    faults[place] = f"its event is {value!r:.60}{hint}; it must be 'impression', 'click', or absent in a joined row"
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
        as_text = pa.types.is_string(column.type) and self.schema.time_format is None
        try:
            typed_times = times_of_texts(column.cast(pa.large_string())) if as_text else column
            return parse_times(typed_times, self.time, self.schema.time_format)
        except InputError as error:
            if len(column) <= 1:
                faults.setdefault(first, str(error).removeprefix("row 0: "))
                return np.zeros(len(column))
        half = len(column) // 2
        parts = (self._times(column[:half], faults, first), self._times(column[half:], faults, first + half))
        return np.concatenate(parts)

    def _row_table(self, arrays: dict[str, pa.Array], kinds: NDArray[np.int8]) -> pa.Table:
        """The columns of the schema for all events but clicks; an impression has the label 0."""
        table = pa.table({name: arrays[name] for name in self._fields})
        label = self.schema.label
        if not (kinds == JOINED).any():
            zeros = pa.array(np.zeros(len(kinds), np.int8))
            table = table.set_column(self._fields.index(label), label, zeros)
        elif (kinds != JOINED).any():
            texts = [0 if kind != JOINED else value for kind, value in zip(kinds, arrays[label].to_pylist(), strict=True)]
            table = table.set_column(self._fields.index(label), label, column_of(label, dict(enumerate(texts)), {}, False))
        return table if not (kinds == CLICK).any() else table.take(np.flatnonzero(kinds != CLICK))


def _form(message: bytes) -> str:
    """Whether a message holds a "list" of events, JSON "lines", or "one" event."""
    head = message[0] if message else 0
    if head == ord("[") or 0x90 <= head <= 0x9F or head in (0xDC, 0xDD):
        return "list"
    return "lines" if head == ord("{") and b"\n" in message else "one"


def _runs(marked: list[tuple[int, BadEvent]], good: int) -> tuple[int, int, int]:
    """How many bad events follow one another, from the number of good ones before each."""
    counts = Counter(place for place, _ in marked)
    return counts[0], max(counts.values(), default=0), counts[good]


def _shown(message: bytes) -> str:
    return message[:SHOWN].decode("utf-8", "backslashreplace")
