"""Readable names of features, whose keys are hashes.

With `--keep-names` a run stores a file of key, field and value beside its snapshots, and the checksum of that file in another one.
Names are for people: no prediction depends on them, and a damaged file stops nothing.
"""

import functools
import hashlib
import io
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from pbodl.data.arrow_columns import key_columns
from pbodl.data.features.tokens import split_texts
from pbodl.data.features.vectors import component_keys
from pbodl.data.hashing import SCALE_TEXT, canonical_text, field_seed, hash_array, hash_integers, hash_value
from pbodl.data.numbers import USUAL, bucket, buckets, parse_number, parse_numbers, shares
from pbodl.data.schema import Field, Schema
from pbodl.data.table.feature_table import Table
from pbodl.data.times import derived, is_text, parse_times
from pbodl.errors import InputError
from pbodl.system.atomic_files import write_file

FILE = "names.parquet"
CHECKSUM = f"{FILE}.blake2b"
MISSING = "(missing)"
SCALED = "(its number)"
CAPACITY = 2_000_000
BETWEEN = " × "
LONGEST = 200  # maximum letters of a stored value


class NameStore:
    """The names of the features seen so far, at most `capacity`; once `full`, it ignores further names.

    >>> store = NameStore(Schema(label="click", fields=[Field("ad"), Field("price", kind="number")]))
    >>> store.add(pa.table({"ad": ["a", "b", "a"], "price": [3.0, None, 12.5]}))
    >>> sorted(store.names())
    ['ad=(missing)', 'ad=a', 'ad=b', 'price=(missing)', 'price=12.5 to 15', 'price=3 to 3.76']
    >>> store.name(hash_value("ad", "b"))
    'ad=b'
    """

    def __init__(self, schema: Schema, capacity: int = CAPACITY) -> None:
        self._schema = schema
        self._capacity = capacity
        self._index = Table({})
        self._fields: list[int] = []
        self._values: list[str] = []
        self.changed = True  # since the last save
        self._on_disk = ""  # checksum of the file
        for index, field in enumerate(schema.fields):
            self._enter(index, [hash_value(field.key_name, None)], [MISSING])
            if field.is_scaled:
                self._enter(index, [hash_value(field.key_name, SCALE_TEXT)], [SCALED])
            if field.kind == "vector":
                self._enter(index, component_keys(field), [f"[{place}]" for place in range(field.length)])
            if field.is_curve:
                knots = hash_integers(np.arange(len(field.edges)), field_seed(field.key_name))
                self._enter(index, knots, [f"{edge:g}" for edge in field.edges])

    def __len__(self) -> int:
        return len(self._values)

    @property
    def full(self) -> bool:
        return len(self) >= self._capacity

    def add(self, data: pa.Table | pa.RecordBatch) -> None:
        """Add the names of all values in a part of the log."""
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        for index, field in enumerate(self._schema.fields):
            if self.full:
                return
            if field.derive is not None:
                found = np.unique(derived(field.derive, self._times(table)))
                self._enter(index, hash_integers(found, field_seed(field.key_name)), found.tolist())
            elif field.cross:
                self._enter_cross(index, field, table)
            elif field.kind in ("category", "multi"):
                distinct = _distinct(_as_lists(table.column(field.source), field))
                self._enter(index, hash_array(distinct, field_seed(field.key_name)), distinct)
            elif field.kind == "number" and field.transform == "buckets":
                numbers = parse_numbers(_joined(table.column(field.source)), field.name)
                found = np.unique(buckets(numbers[~np.isnan(numbers)], field.resolution, field.edges))
                names = [bucket_name(int(b), field.resolution, field.edges) for b in found]
                self._enter(index, hash_integers(found, field_seed(field.key_name)), names)

    def _times(self, table: pa.Table) -> NDArray[np.float64]:
        """The times of the rows, if a field is derived from them."""
        if not any(field.derive for field in self._schema.fields):
            return np.zeros(table.num_rows)
        column = _joined(table.column(self._schema.time))
        return parse_times(column, str(self._schema.time), self._schema.time_format, self._schema.time_unit)

    def _enter_cross(self, index: int, field: Field, table: pa.Table) -> None:
        """Add the combinations of a cross; its parts have their names already."""
        columns = key_columns(self._schema, table, self._times(table))
        keys, first = np.unique(columns[index].keys, return_index=True)
        own = [columns[self._schema.field_index(name)] for name in field.cross]
        of_parts = [(column.keys if column.codes is None else column.keys[column.codes])[first] for column in own]
        names = [[self._value(int(key)) for key in of_part] for of_part in of_parts]
        self._enter(index, keys, [BETWEEN.join(combination) for combination in zip(*names, strict=True)])

    def _value(self, key: int) -> str:
        row = int(self._index.find(np.array([key], dtype=np.uint64))[0])
        return "?" if row < 0 else self._values[row]

    def _enter(self, field: int, keys: NDArray[np.uint64] | list[int], values: pa.Array | list) -> None:
        keys = np.asarray(keys, dtype=np.uint64)
        new = np.flatnonzero(self._index.find(keys) < 0)[: max(0, self._capacity - len(self))]
        old_size = self._index.size
        rows = self._index.insert(keys[new])
        for index, row in zip(new.tolist(), rows.tolist(), strict=True):
            if row == old_size:  # not the second of two values with the same text, such as 1 and 1.0
                old_size += 1
                value = values[index]
                self._fields.append(field)
                self._values.append(_text(value.as_py() if isinstance(value, pa.Scalar) else value))
                self.changed = True

    def name(self, key: int) -> str | None:
        """`field=value` of a key; None if the key is unknown."""
        row = int(self._index.find(np.array([key], dtype=np.uint64))[0])
        return None if row < 0 else self._named(row)

    def names(self) -> list[str]:
        """All names in order of appearance."""
        return [self._named(row) for row in range(len(self))]

    def _named(self, row: int) -> str:
        return f"{self._schema.fields[self._fields[row]].name}={self._values[row]}"

    def save(self, run: str | Path) -> None:
        """Write the names into the run folder, if any are new."""
        if not self.changed:
            return
        fields = pa.DictionaryArray.from_arrays(pa.array(self._fields, pa.int32()), [field.name for field in self._schema.fields])
        table = pa.table({"key": self._index.keys.copy(), "field": fields, "value": pa.array(self._values, pa.string())})
        content = io.BytesIO()
        pa.parquet.write_table(table, content)
        # First the checksums of the new file and of the one before: whichever a kill leaves in place is known.
        digest = _digest(content.getbuffer())
        write_file(Path(run) / CHECKSUM, f"{digest}\n{self._on_disk}\n".encode())
        write_file(Path(run) / FILE, content.getbuffer())
        self.changed, self._on_disk = False, digest


def load_names(run: str | Path, schema: Schema) -> NameStore | None:
    """The names stored in a run; None if it stores none."""
    path = Path(run) / FILE
    if not path.exists():
        return None
    try:
        content = path.read_bytes()
        if (known := _digests(run)) and _digest(content) not in known:
            raise ValueError(f"it does not match its checksum in {CHECKSUM}")
        table = pa.parquet.read_table(pa.BufferReader(content))
        keys, fields, values = (table.column(name) for name in ("key", "field", "value"))
        indices = {field.name: index for index, field in enumerate(schema.fields)}
        store = NameStore(schema)
        store._index = Table({})
        store._index.insert(keys.to_numpy())
        store._fields = [indices[name] for name in fields.to_pylist()]
        store._values = values.to_pylist()
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"{path} is damaged ({type(error).__name__}: {error}); delete it, and the run collects names anew"
        ) from error
    store.changed, store._on_disk = False, _digest(content)
    return store


def migrate_names(run: str | Path, names: Mapping[str, str]) -> None:
    """Rename the fields of a run's stored names, after a migration; those of fields that are gone go. A damaged file stays."""
    path = Path(run) / FILE
    if not path.exists():
        return
    try:
        table = pa.parquet.read_table(path)
        fields = [names.get(name) for name in table.column("field").to_pylist()]
    except (OSError, pa.ArrowException, KeyError) as error:
        warnings.warn(f"{path} is damaged ({error}); names of features begin anew when it is deleted", stacklevel=2)
        return
    kept = pa.array([name is not None for name in fields])
    table = table.set_column(1, "field", pa.array(fields).dictionary_encode()).filter(kept)
    content = io.BytesIO()
    pa.parquet.write_table(table, content)
    write_file(Path(run) / CHECKSUM, f"{_digest(content.getbuffer())}\n{''.join(_digests(run)[:1])}\n".encode())
    write_file(path, content.getbuffer())


def readable_names(run: str | Path, schema: Schema) -> NameStore | None:
    """As `load_names`; a damaged file is told, and counts as none."""
    try:
        return load_names(run, schema)
    except InputError as error:
        warnings.warn(str(error), stacklevel=2)
        return None


def kept_names(run: str | Path, schema: Schema) -> NameStore | None:
    """As `load_names`, for the writer of a run: a damaged file is told and set aside, and the names begin anew."""
    try:
        return load_names(run, schema)
    except InputError as error:
        path = Path(run) / FILE
        aside = path.with_name(f"{FILE}.damaged")
        path.replace(aside)
        warnings.warn(f"{str(error).partition(';')[0]}; it is set aside as {aside.name}, and names begin anew", stacklevel=2)
        return NameStore(schema)


def look_up(run: str | Path, keys: NDArray[np.uint64]) -> dict[int, str]:
    """The values of some keys, as far as the run has stored their names; a lookup does not read the whole file."""
    path = Path(run) / FILE
    if not path.exists():
        return {}
    try:
        about = path.stat()
        if not _is_sound(os.fspath(path), about.st_ino, about.st_mtime_ns, about.st_size):
            raise ValueError(f"it does not match its checksum in {CHECKSUM}")
        wanted = pc.field("key").isin(pa.array(keys, pa.uint64()))
        found = pa.parquet.read_table(path, columns=["key", "value"], filters=wanted, use_threads=False)
    except (OSError, pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(
            f"{path} is damaged ({type(error).__name__}: {error}); delete it, and the run collects names anew"
        ) from error
    return dict(zip(found.column("key").to_pylist(), found.column("value").to_pylist(), strict=True))


@functools.lru_cache(maxsize=8)
def _is_sound(path: str, *version: int) -> bool:
    """Whether a version of a file matches its checksum, if that is known."""
    known = _digests(Path(path).parent)
    return not known or _digest(Path(path).read_bytes()) in known


def _digests(run: str | Path) -> list[str]:
    """The checksums that the file of names may have; none if there are none."""
    try:
        return (Path(run) / CHECKSUM).read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []


def _digest(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def feature_key(field: Field, text: str) -> int:
    """The key of the feature with the value `text` in the field; an empty text stands for a missing value."""
    if text in ("", MISSING):
        return hash_value(field.key_name, None)
    if field.cross:
        raise InputError(f"{field.name} is a cross of {', '.join(field.cross)}; look at these, or explain a row")
    if field.is_scaled:
        return hash_value(field.key_name, SCALE_TEXT)
    if field.kind == "number":
        try:
            number = parse_number(text)
            if field.is_curve:  # the nearest edge
                return hash_value(field.key_name, max(shares(number, field.edges), key=lambda each: each[1])[0])
            return hash_value(field.key_name, bucket(number, field.resolution, field.edges))
        except (ValueError, OverflowError) as error:
            raise InputError(f"{field.name} is a number field, and {text!r} is not a number") from error
    if field.kind == "vector":
        text = text.strip("[]")
        if not text.isdecimal() or int(text) >= field.length:
            raise InputError(f"{field.name} is a vector of {field.length} numbers; name one of them, [0] to [{field.length - 1}]")
    return hash_value(field.key_name, text)


def bucket_name(index: int, resolution: int = USUAL, edges: Sequence[float] = ()) -> str:
    """The range of numbers in a bucket.

    >>> bucket_name(0), bucket_name(8), bucket_name(-8)
    ('-0.189 to 0.189', '3 to 3.76', '-3.76 to -3')
    """
    if edges:
        ends = [f"{edge:.4g}" for edge in edges]
        return (
            f"below {ends[0]}"
            if index == 0
            else f"{ends[-1]} or more"
            if index == len(edges)
            else f"{ends[index - 1]} to {ends[index]}"
        )
    low, high = (math.exp2(edge / resolution) - 1.0 for edge in (abs(index), abs(index) + 1))
    if index == 0:
        low = -high
    return f"{-high:.3g} to {-low:.3g}" if index < 0 else f"{low:.3g} to {high:.3g}"


def _text(value: object) -> str:
    text = canonical_text(value).decode("utf-8", "backslashreplace")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    """The distinct values of a column, or of its lists, without nulls."""
    values = _joined(column)
    if pa.types.is_nested(values.type):
        values = values.flatten()
    values = pc.unique(values)
    return (values.dictionary_decode() if pa.types.is_dictionary(values.type) else values).drop_null()


def _as_lists(column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    """The column of a list field as lists."""
    if field.kind == "multi" and is_text(column.type):
        return pa.chunked_array([split_texts(_joined(column), field.split)])
    return column


def _joined(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
