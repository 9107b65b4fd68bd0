"""Arrow tables to batches, column by column.

When every field gives one feature per sample, the keys form a matrix (samples x fields) that is filled column by column. With
`multi` fields the samples have different lengths: a first pass counts, a second puts each feature at its sample's cursor.
"""

import functools
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.batch import Batch
from pbodl.data.features.crosses import cross_keys, crosses_of
from pbodl.data.features.former_names import named_columns, renamed_table
from pbodl.data.features.nested import flattened_table
from pbodl.data.features.number_curves import curve_features
from pbodl.data.features.outcome import clicks_of
from pbodl.data.features.tokens import holds_lists, split_texts
from pbodl.data.features.vectors import component_keys, parse_vectors
from pbodl.data.hashing import SCALE_TEXT, field_seed, hash_array, hash_coded, hash_integers, hash_value, wrapping
from pbodl.data.labels import parse_weights
from pbodl.data.numbers import buckets, logarithms, multipliers, parse_numbers
from pbodl.data.schema import Field, Schema, nearest
from pbodl.data.texts import is_text
from pbodl.data.texts import numbers as numbers_of_texts
from pbodl.data.times import derived, parse_times
from pbodl.errors import InputError
from pbodl.mixing import mix

BLOCK = 2048


class KeyColumn(NamedTuple):
    """The features of one field: one per sample, or, for `multi`, those from indptr[i] to indptr[i + 1]."""

    keys: NDArray[np.uint64]
    codes: NDArray[np.int32] | None = None  # sample i has keys[codes[i]]; without it, keys[i]
    values: NDArray[np.float32] | None = None  # ones
    indptr: NDArray[np.int64] | None = None  # one per sample


def from_table(schema: Schema, table: pa.Table, labelled: bool) -> Batch:
    """The batch of an Arrow table; columns that the schema does not name are ignored."""
    n, table = table.num_rows, renamed_table(schema, flattened_table(table, named_columns(schema)))
    needed = labelled or any(field.derive for field in schema.fields)
    times = np.zeros(n)
    if schema.time is not None and (needed or schema.time in table.column_names):
        times = parse_times(_column(table, schema.time, "time column"), schema.time, schema.time_format, schema.time_unit)
    columns = key_columns(schema, table, times)
    clicks = clicks_of(schema.label, _column(table, schema.label_column, "label column")) if labelled else None
    weights = np.ones(n, dtype=np.float32)
    if schema.weight is not None and labelled:
        weights = parse_weights(_column(table, schema.weight, "weight column"), schema.weight)
    if any(column.indptr is not None for column in columns):
        keys, values, fields, indptr = _assemble(columns, n)
    else:
        keys, values, fields, indptr = _stack(columns, n)
    return Batch(keys, values, fields, indptr, clicks, times, weights)


def key_columns(schema: Schema, table: pa.Table, times: NDArray[np.float64]) -> list[KeyColumn]:
    """The features of each field, those of crosses last computed."""
    columns = [KeyColumn(np.empty(0, np.uint64)) if field.cross else _read(field, table, times) for field in schema.fields]
    for place, parts in crosses_of(schema):
        keys = [column.keys if column.codes is None else column.keys[column.codes] for column in (columns[part] for part in parts)]
        columns[place] = KeyColumn(cross_keys(schema.fields[place].key_name, keys))
    return columns


def _column(table: pa.Table, name: str, what: str) -> pa.Array:
    if name not in table.column_names:
        raise InputError(
            f"the data has no {what} {name!r}{nearest(name, table.column_names)}; its columns are: {', '.join(table.column_names)}"
        )
    if table.column_names.count(name) > 1:
        raise InputError(f"the data has more than one column {name!r}")
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    elif pa.types.is_string(column.type):
        # Chunks that fit in 32-bit offsets each may not fit together.
        column = column.cast(pa.large_string())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _read(field: Field, table: pa.Table, times: NDArray[np.float64]) -> KeyColumn:
    seed = field_seed(field.key_name)
    if field.derive is not None:
        return KeyColumn(hash_integers(derived(field.derive, times), seed))
    source = str(field.source)
    values = _column(table, source, "column")
    if field.is_category:
        if pa.types.is_nested(values.type):
            raise InputError(f"field {field.name!r} holds {values.type}, not one value; for lists declare kind='multi'")
        return KeyColumn(*hash_coded(values, seed))
    if field.kind == "multi":
        return _read_lists(field, values, seed)
    if field.kind == "vector":
        return _read_vectors(field, values)
    if is_text(values.type):
        values = numbers_of_texts(pc.cast(values, pa.large_string()))
    numbers = parse_numbers(values, source)
    if field.is_curve:
        keys, shares, filled = curve_features(field, numbers)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(filled.sum(axis=1))])
        return KeyColumn(keys[filled], values=shares[filled], indptr=indptr)
    keys, multiplied = number_features(field, numbers)
    return KeyColumn(keys, values=multiplied)


def number_features(field: Field, numbers: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.float32] | None]:
    """The keys of numbers in buckets or as multipliers (NaN is missing), and the multipliers; None for ones."""
    missing = np.isnan(numbers)
    if field.transform == "buckets":
        inside = buckets(np.where(missing, 0.0, numbers), field.resolution, field.edges)
        keys, values = hash_integers(inside, field_seed(field.key_name)), None
    else:
        numbers = logarithms(numbers) if field.transform == "log" else numbers
        keys = np.full(len(numbers), hash_value(field.key_name, SCALE_TEXT), dtype=np.uint64)
        values = multipliers(np.where(missing, 1.0, numbers), field.name)
    keys[missing] = hash_value(field.key_name, None)
    return keys, values


def _read_lists(field: Field, values: pa.Array, seed: np.uint64) -> KeyColumn:
    """One feature per distinct value of a list, with its count; null is missing, an empty list no feature."""
    missing = np.uint64(hash_value(field.key_name, None))
    if is_text(values.type):
        values = split_texts(values, field.split)
    if pa.types.is_null(values.type):
        return KeyColumn(np.full(len(values), missing))
    if not holds_lists(values.type):
        raise InputError(f"field {field.name!r} is declared kind='multi' but holds {values.type}; it must hold lists")
    keys = hash_array(values.flatten(), seed)
    lengths = pc.fill_null(pc.cast(pc.list_value_length(values), pa.int64()), 0).to_numpy()
    nulls = pc.is_null(values).to_numpy(zero_copy_only=False)
    longest = int(lengths.max(initial=0))
    slots = np.full(1 << max(1, (2 * longest - 1).bit_length()), -1, dtype=np.int64)
    distinct = np.empty(len(keys) + int(nulls.sum()), dtype=np.uint64)
    counts = np.empty(len(distinct), dtype=np.float32)
    indptr = np.zeros(len(values) + 1, dtype=np.int64)
    with wrapping():
        size = _merge_repeats(keys, lengths, nulls, missing, slots, distinct, counts, indptr)
    return KeyColumn(distinct[:size], None, counts[:size], indptr)


def _read_vectors(field: Field, values: pa.Array) -> KeyColumn:
    """One feature per number of a vector, whose value it is; null is missing."""
    numbers, there = parse_vectors(field, values)
    if there.all():
        indptr = np.arange(0, numbers.size + 1, field.length, dtype=np.int64)
        return KeyColumn(np.tile(component_keys(field), len(numbers)), None, numbers.reshape(-1), indptr)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.where(there, field.length, 1))])
    keys, multiplied = np.empty(indptr[-1], np.uint64), np.ones(indptr[-1], np.float32)
    missing = np.zeros(indptr[-1], bool)
    missing[indptr[:-1][~there]] = True
    keys[missing] = hash_value(field.key_name, None)
    keys[~missing], multiplied[~missing] = np.tile(component_keys(field), len(numbers)), numbers.reshape(-1)
    return KeyColumn(keys, None, multiplied, indptr)


@jit
def _merge_repeats(keys, lengths, nulls, missing, slots, distinct, counts, indptr):
    """Distinct keys of each list in order of first arrival, and how often each came. Returns the number of distinct keys.

    `slots` is a small open-addressing table of indices into `distinct`. It need not be cleared between lists: an index before the
    first of the present list belongs to another list. MODIFIES: slots, distinct, counts, indptr.
    """
    mask = np.uint64(slots.shape[0] - 1)
    size = place = 0
    for i in range(lengths.shape[0]):
        first = size
        if nulls[i]:
            distinct[size] = missing
            counts[size] = 1.0
            size += 1
        for j in range(place, place + lengths[i]):
            slot = np.int64(mix(keys[j]) & mask)
            while slots[slot] >= first and distinct[slots[slot]] != keys[j]:
                slot = (slot + 1) & np.int64(mask)
            if slots[slot] >= first:
                counts[slots[slot]] += 1.0
            else:
                slots[slot] = size
                distinct[size] = keys[j]
                counts[size] = 1.0
                size += 1
        place += lengths[i]
        indptr[i + 1] = size
    return size


def _stack(columns: list[KeyColumn], n: int) -> tuple:
    """One feature per field and sample: a matrix, read row by row."""
    width = len(columns)
    keys = np.empty((n, width), dtype=np.uint64)
    # By blocks of rows, so that the cache lines of the matrix stay in the cache until all their columns are written.
    for start in range(0, n, BLOCK):
        block = slice(start, start + BLOCK)
        for field, column in enumerate(columns):
            if column.codes is None:
                keys[block, field] = column.keys[block]
            else:
                _deal(column.keys, column.codes[block], keys[block], field)
    values, fields, indptr = _regular(n, width)
    if any(column.values is not None for column in columns):
        values = values.copy()
        for field, column in enumerate(columns):
            if column.values is not None:
                values[field::width] = column.values
    return keys.reshape(-1), values, fields, indptr


@functools.lru_cache(maxsize=1)
def _regular(n: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int64]]:
    """Values, fields and indptr of n samples of `width` plain features; all chunks share them: nobody writes into a batch."""
    fields = np.tile(np.arange(width, dtype=np.int32), n)
    return np.ones(n * width, dtype=np.float32), fields, np.arange(0, n * width + 1, width, dtype=np.int64)


@jit
def _deal(column_keys, codes, keys, field):
    """MODIFIES: keys[:, field]."""
    for i in range(len(codes)):
        keys[i, field] = column_keys[codes[i]]


def _assemble(columns: list[KeyColumn], n: int) -> tuple:
    """Samples of different lengths: count, then put each field's features at the sample's cursor."""
    lengths = np.zeros(n, dtype=np.int64)
    for column in columns:
        lengths += 1 if column.indptr is None else np.diff(column.indptr)
    indptr = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    keys = np.empty(indptr[-1], dtype=np.uint64)
    values = np.ones(indptr[-1], dtype=np.float32)
    fields = np.empty(indptr[-1], dtype=np.int32)
    cursor = indptr[:-1].copy()
    for field, column in enumerate(columns):
        source = np.arange(n + 1, dtype=np.int64) if column.indptr is None else column.indptr
        plain = column.keys if column.codes is None else column.keys[column.codes]
        factors = np.ones(len(plain), dtype=np.float32) if column.values is None else column.values
        _place(plain, factors, source, field, cursor, keys, values, fields)
    return keys, values, fields, indptr


@jit
def _place(column_keys, column_values, source, field, cursor, keys, values, fields):
    """Copy one field's features to each sample's cursor. MODIFIES: cursor, keys, values, fields."""
    for i in range(cursor.shape[0]):
        place = cursor[i]
        for j in range(source[i], source[i + 1]):
            keys[place] = column_keys[j]
            values[place] = column_values[j]
            fields[place] = field
            place += 1
        cursor[i] = place
