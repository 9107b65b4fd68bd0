"""From the values of a request to feature keys: the same keys as from `data.dict_rows`, for a thousand candidates at once.

Candidates have the fields of group `ad`; they share all other fields, and those derived from the time. They are read column by
column, and the texts of a column are joined and hashed in one call. A cross with a part from the candidates is theirs, too.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from threading import RLock
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.arrow_columns import number_features
from pbodl.data.dict_rows import from_rows
from pbodl.data.features.crosses import cross_keys, crosses_of
from pbodl.data.features.nested import objects_of
from pbodl.data.features.number_curves import curve_features
from pbodl.data.features.positions import reference_positions
from pbodl.data.features.tokens import pieces
from pbodl.data.features.vectors import component_keys, parse_vector
from pbodl.data.hashing import canonical_text, field_seed, hash_integers, hash_span, hash_texts, hash_value, wrapping
from pbodl.data.schema import Field, Schema
from pbodl.data.times import UNITS
from pbodl.errors import InputError

OWN_GROUP = "ad"
BETWEEN = "\0"
SLOTS = 2_000_000  # candidates times values of the longest list: every candidate has room for that many

T = TypeVar("T")


class Encoded(NamedTuple):
    """The features of samples, in slots: a slot belongs to one field for all samples."""

    keys: NDArray[np.uint64]  # (samples, slots)
    values: NDArray[np.float32]  # (samples, slots)
    fields: NDArray[np.int32]  # (slots,)
    filled: NDArray[np.bool_] | None  # (samples, slots); None: all are
    plain: bool = False  # known to have one feature to a field, with the value 1


class CandidateColumn(NamedTuple):
    """The features of one field."""

    keys: NDArray[np.uint64]  # (samples, slots of this field)
    values: NDArray[np.float32] | None = None  # None: ones
    filled: NDArray[np.bool_] | None = None  # None: all


# The encoder of each schema that a predictor serves. It lives as long as one of them, however many there are.
_encoders: WeakValueDictionary[Schema, "Encoder"] = WeakValueDictionary()
_lock = RLock()


def encoder_of(schema: Schema) -> "Encoder":
    """The encoder of a schema; the same one for as long as somebody holds it."""
    encoder = _encoders.get(schema)
    if encoder is None:
        with _lock:
            encoder = _encoders.get(schema)
            if encoder is None:
                encoder = _encoders[schema] = Encoder(schema)
    return encoder


class Encoder:
    """Turns the parts of a request into features. It keeps whatever else is made of its schema, so that nothing is made twice."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._made: dict[Callable[[Schema], Any], Any] = {}
        read = np.flatnonzero([field.group == OWN_GROUP and field.source is not None for field in schema.fields]).astype(np.int32)
        self._crosses = [(place, parts) for place, parts in crosses_of(schema) if set(parts) & set(read.tolist())]
        self.own_fields = np.append(read, np.array([place for place, _ in self._crosses], np.int32))
        self.shared_fields = np.setdiff1d(np.arange(len(schema.fields), dtype=np.int32), self.own_fields)
        self.own = [schema.fields[place] for place in read.tolist()]
        self.own_columns = list(dict.fromkeys(str(field.source) for field in self.own))
        self.plain = len(self.own) > 0 and all(field.kind == "category" and field.column is None for field in self.own)
        self._seeds = np.array([field_seed(field.key_name) for field in self.own], dtype=np.uint64)
        self._derived = any(field.derive is not None for field in schema.fields)
        shared = [schema.fields[place] for place in self.shared_fields.tolist()]
        self.objects = objects_of(str(field.source) for field in schema.fields if field.source is not None)
        self.positions = reference_positions(schema)
        self.shared_names = {field.source for field in shared if field.source is not None}
        if schema.time is not None:
            self.shared_names.add(schema.time)
        # A schema has at least one field: if no field is shared, there is no schema. Only derived fields need the time.
        about_time: dict[str, Any] = {} if self._derived else {"time": None, "time_format": None, "time_unit": None}
        if about_time and schema.time is not None and schema.time not in schema.sources:
            about_time["retired"] = (*schema.retired, schema.time)  # a request may have it nevertheless
        self._shared_schema = msgspec.structs.replace(schema, fields=tuple(shared), weight=None, **about_time) if shared else None

    def once(self, make: Callable[[Schema], T]) -> T:
        """What `make` makes of the schema. It is made once, and then lives as long as the encoder."""
        made = self._made.get(make)
        if made is None:
            with _lock:
                made = self._made.get(make)
                if made is None:
                    made = self._made[make] = make(self.schema)
        return made

    def encode_shared(self, values: Mapping[str, Any]) -> Encoded:
        """The features that all candidates share, as one sample; fields that are not given are missing, positions the reference."""
        if self._shared_schema is None:
            return Encoded(np.zeros((1, 0), np.uint64), np.zeros((1, 0), np.float32), np.zeros(0, np.int32), None)
        if self.positions:
            values = {**values, **{name: slot for name, slot in self.positions.items() if values.get(name) is None}}
        column = self._shared_schema.time
        if column is not None and values.get(column) is None:
            values = {**values, column: _now(self.schema)}
        try:
            batch = from_rows(self._shared_schema, [values], labelled=False)
        except InputError as error:
            raise InputError(str(error).removeprefix("row 0: ").removeprefix("row 0, ")) from None
        return Encoded(batch.keys[None], batch.values[None], self.shared_fields[batch.fields], None)

    def encode_own(self, rows: Sequence[tuple]) -> Encoded:
        """The candidates' own features; a row holds the values of `own_columns`."""
        n, width = len(rows), len(self.own_columns)
        flat = list(chain.from_iterable(rows))
        if self.plain:
            keys = self._all_texts(flat)
            if keys is not None:
                return self.from_keys(keys.reshape(n, width))
        places = [self.own_columns.index(str(field.source)) for field in self.own]
        columns = [READERS[field.kind](field, flat[place::width]) for place, field in zip(places, self.own, strict=True)]
        return _stacked(columns, self.own_fields[: len(self.own)], n)

    def crossed(self, shared: Encoded, own: Encoded) -> Encoded:
        """The candidates' own features, with their crosses."""
        if not self._crosses:
            return own
        keys, values, fields, filled = own.keys, own.values, own.fields, own.filled
        for place, parts in self._crosses:
            of_parts = []
            for part in parts:
                encoded = own if part in own.fields else shared
                column = encoded.keys[:, int(np.argmax(encoded.fields == part))]
                of_parts.append(np.broadcast_to(column, len(keys)))
            keys = np.column_stack([keys, cross_keys(self.schema.fields[place].key_name, of_parts)])
            values = np.column_stack([values, np.ones(len(keys), np.float32)])
            fields = np.append(fields, np.int32(place))
            filled = None if filled is None else np.column_stack([filled, np.ones(len(keys), bool)])
        return Encoded(keys, values, fields, filled, own.plain)

    def from_keys(self, keys: NDArray[np.uint64]) -> Encoded:
        """The candidates' own features, where all are categories, by their keys."""
        return Encoded(keys, np.ones(keys.shape, np.float32), self.own_fields[: keys.shape[1]], None, True)

    def _all_texts(self, flat: list[Any]) -> NDArray[np.uint64] | None:
        """The keys of all values, if all are texts without the separator."""
        try:
            return _hash_joined(BETWEEN.join(flat), len(flat), self._seeds)
        except TypeError:
            return None


@jit
def _hash_between(data, ends, seeds, keys):
    """The keys of texts that end at `ends`, with one byte in between; the seeds take turns. MODIFIES: keys."""
    start, turn = 0, 0
    for i in range(len(keys)):
        end = ends[i] if i < len(ends) else len(data)
        keys[i] = hash_span(data, start, end, seeds[turn])
        start = end + 1
        turn = turn + 1 if turn + 1 < len(seeds) else 0


def _hash_joined(text: str, n: int, seeds: NDArray[np.uint64]) -> NDArray[np.uint64] | None:
    """The keys of n joined texts; None if one of them contains the separator."""
    data = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    ends = np.flatnonzero(data == 0)
    if n == 0 or len(ends) != n - 1:
        return None
    keys = np.empty(n, np.uint64)
    with wrapping():
        _hash_between(data, ends, seeds, keys)
    return keys


def _read_category(field: Field, column: Sequence[Any]) -> CandidateColumn:
    seeds = np.array([field_seed(field.key_name)], dtype=np.uint64)
    keys = None
    try:
        keys = _hash_joined(BETWEEN.join(column), len(column), seeds)
    except TypeError:
        if all(type(value) is int and -(2**63) <= value < 2**63 for value in column):
            keys = hash_integers(np.array(column, dtype=np.int64), seeds[0])
    if keys is None:
        texts = [canonical_text(value) for value in column]
        keys = hash_texts(texts, seeds, np.zeros(len(texts), np.int32))
    return CandidateColumn(keys[:, None])


def _read_number(field: Field, column: Sequence[Any]) -> CandidateColumn:
    numbers = np.array([math.nan if value is None else value for value in column], dtype=np.float64)
    if np.isinf(numbers).any():
        place = int(np.argmax(np.isinf(numbers)))
        raise InputError(f"candidates[{place}]: number field {field.name!r} is infinite; it must be finite, or null for missing")
    if field.is_curve:
        return CandidateColumn(*curve_features(field, numbers))
    keys, values = number_features(field, numbers)
    return CandidateColumn(keys[:, None], None if values is None else values[:, None])


def _read_lists(field: Field, column: Sequence[Any]) -> CandidateColumn:
    """A slot for each distinct value of the longest list; null is missing, an empty list has no feature."""
    lists = (pieces(value, field.split) if isinstance(value, str) and value else value for value in column)
    counts = [{b"": 1} if value is None or value == "" else Counter(map(canonical_text, value)) for value in lists]
    lengths = np.array([len(count) for count in counts], dtype=np.int64)
    longest = int(lengths.max(initial=0))
    if longest * len(lengths) > SLOTS:
        place = int(np.argmax(lengths))
        raise InputError(
            f"candidates[{place}]: list field {field.name!r} has {longest:,} values; with {len(lengths):,} candidates, a list may"
            f" have at most {SLOTS // len(lengths):,}"
        )
    filled = np.arange(longest) < lengths[:, None]
    keys, values = np.zeros(filled.shape, np.uint64), np.ones(filled.shape, np.float32)
    texts = list(chain.from_iterable(counts))
    keys[filled] = hash_texts(texts, np.array([field_seed(field.key_name)], np.uint64), np.zeros(len(texts), np.int32))
    values[filled] = list(chain.from_iterable(count.values() for count in counts))
    return CandidateColumn(keys, values, filled)


def _read_vectors(field: Field, column: Sequence[Any]) -> CandidateColumn:
    """A slot for each component; a missing vector has its feature in the first slot."""
    if field.length * len(column) > SLOTS:
        raise InputError(
            f"vector field {field.name!r} has {field.length:,} numbers; a request may have at most "
            f"{SLOTS // field.length:,} candidates"
        )
    keys, values = np.tile(component_keys(field), (len(column), 1)), np.ones((len(column), field.length), np.float32)
    filled = np.ones(keys.shape, bool)
    for place, value in enumerate(column):
        try:
            vector = parse_vector(field, value)
        except InputError as error:
            raise InputError(f"candidates[{place}]: {error}") from None
        if vector is None:
            keys[place, 0], filled[place, 1:] = hash_value(field.key_name, None), False
        else:
            values[place] = vector
    return CandidateColumn(keys, values, None if filled.all() else filled)


READERS = {"category": _read_category, "number": _read_number, "multi": _read_lists, "vector": _read_vectors}


def _stacked(columns: list[CandidateColumn], fields: NDArray[np.int32], n: int) -> Encoded:
    """The columns' slots side by side."""
    slots = [column.keys.shape[1] for column in columns]
    keys, values = np.empty((n, sum(slots)), np.uint64), np.ones((n, sum(slots)), np.float32)
    filled = np.ones(keys.shape, bool)
    first = 0
    for column, width in zip(columns, slots, strict=True):
        keys[:, first : first + width] = column.keys
        if column.values is not None:
            values[:, first : first + width] = column.values
        if column.filled is not None:
            filled[:, first : first + width] = column.filled
        first += width
    ragged = any(column.filled is not None for column in columns)
    plain = not ragged and all(width == 1 and column.values is None for column, width in zip(columns, slots, strict=True))
    return Encoded(keys, values, np.repeat(fields, slots), filled if ragged else None, plain)


def _now(schema: Schema) -> float | str:
    if schema.time_format is not None:
        return time.strftime(schema.time_format, time.gmtime())
    return time.time() * UNITS[schema.time_unit or "s"]
