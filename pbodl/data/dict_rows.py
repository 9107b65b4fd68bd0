"""Dicts to batches, for `learn_one` and for requests; fast for one sample.

The texts of all features are gathered in Python, then hashed in one call.
"""

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.features.crosses import cross_keys, crosses_of
from pbodl.data.features.former_names import renamed_row
from pbodl.data.features.nested import flattened, objects_of
from pbodl.data.features.outcome import outcome_of
from pbodl.data.features.tokens import pieces
from pbodl.data.features.vectors import parse_vector
from pbodl.data.hashing import SCALE_TEXT, canonical_text, field_seed, hash_texts
from pbodl.data.labels import check_label, check_weight
from pbodl.data.numbers import bad_number, bucket, check_multiplier, logarithm, parse_number, shares
from pbodl.data.schema import Field, Schema, nearest
from pbodl.data.times import UNITS, derived, in_range, parse_times
from pbodl.errors import InputError

Row = Mapping[str, Any]


class Plan(NamedTuple):
    """What is derived from a schema, once."""

    seeds: NDArray[np.uint64]  # [fields]
    steps: tuple[tuple[str, Field | None], ...]  # column ("" for none); its field, unless that is a plain category
    columns: frozenset[str]  # the fields that are read from the row, without optional ones
    known: frozenset[str]  # these, and label, time and weight
    indices: NDArray[np.int32]  # 0, 1, 2, ... for each field
    derived: frozenset[str]  # what fields derive from the time
    objects: frozenset[str]  # what holds the columns that have names with dots
    ragged: bool  # samples differ in length
    renamed: bool  # fields have former names


@functools.lru_cache(maxsize=256)
def _plan(schema: Schema) -> Plan:
    fields = schema.fields
    plain = [field.is_category and field.source is not None for field in fields]
    columns = frozenset(field.source for field in fields if field.source is not None)
    required = columns - {field.source for field in fields if field.optional}
    special = {schema.label, schema.label_column, schema.time, schema.weight}
    former = [alias for aliases in schema.former_columns.values() for alias in aliases]
    known = {name for name in special if name is not None} | {field.name for field in fields if field.derive is not None}
    return Plan(
        np.array([field_seed(field.key_name) for field in fields], dtype=np.uint64),
        tuple((field.source or "", None if simple else field) for field, simple in zip(fields, plain, strict=True)),
        required,
        columns | known | set(schema.retired),
        np.arange(len(fields), dtype=np.int32),
        frozenset(field.derive for field in fields if field.derive is not None),
        objects_of(name for name in columns | special | {*former} if name is not None),
        any(field.has_several for field in fields),
        bool(schema.former_columns),
    )


def from_rows(schema: Schema, rows: Sequence[Row], labelled: bool) -> Batch:
    """The batch of a list of dicts; a field that is not in the dict is missing."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f"row {number} is of type {type(row).__name__}; every row must be a dict")
    plan = _plan(schema)
    given = rows
    if plan.objects:
        rows = [flattened(row, plan.objects) for row in rows]
    if plan.renamed:
        rows = [renamed_row(schema, row) for row in rows]
    times = _times(schema, rows, labelled)
    moments = {what: derived(what, times).tolist() for what in plan.derived}
    texts: list[bytes] = []
    multipliers: dict[int, float] = {}  # by index of the feature, where it is not 1
    ends = [0]  # after each field of each row
    for number, row in enumerate(rows):
        if not plan.columns <= row.keys():
            _refuse_slips(plan, row, number, given[number])
        for name, field in plan.steps:
            if field is None:
                try:
                    texts.append(canonical_text(row.get(name)))
                except InputError as error:
                    raise InputError(f"row {number}, field {name!r}: {error}") from None
            elif field.derive is not None:
                texts.append(b"%d" % moments[field.derive][number])
            elif field.cross:
                texts.append(b"")  # its key is made from those of its parts
            else:
                READERS[field.kind](field, row.get(name), number, texts, multipliers)
            if plan.ragged:
                ends.append(len(texts))
    n, width = len(rows), len(schema.fields)
    fields = plan.indices.copy() if n == 1 else np.tile(plan.indices, n)
    indptr = np.arange(0, n * width + 1, width, dtype=np.int64)
    if plan.ragged:
        fields = np.repeat(fields, np.diff(ends))
        indptr = np.array(ends, dtype=np.int64)[::width].copy()
    values = np.ones(len(texts), dtype=np.float32)
    for place, multiplier in multipliers.items():
        values[place] = multiplier
    keys = hash_texts(texts, plan.seeds, fields)
    if crosses := crosses_of(schema):
        places = np.array(ends[:-1], dtype=np.int64) if plan.ragged else np.arange(len(texts))
        places = places.reshape(n, width)
        for field_index, parts in crosses:
            of_parts = [keys[places[:, part]] for part in parts]
            keys[places[:, field_index]] = cross_keys(schema.fields[field_index].key_name, of_parts)
    return Batch(
        keys,
        values,
        fields,
        indptr,
        _clicks(schema, rows) if labelled else None,
        times,
        _weights(schema, rows, labelled),
    )


def _read_number(field: Field, value: Any, number: int, texts: list[bytes], multipliers: dict[int, float]) -> None:
    try:
        quantity = parse_number(value)
    except (ValueError, TypeError) as error:
        raise bad_number(number, str(field.source), value) from error
    if math.isinf(quantity):
        raise bad_number(number, str(field.source), value)
    if math.isnan(quantity):
        texts.append(b"")
    elif field.transform == "buckets":
        texts.append(b"%d" % bucket(quantity, field.resolution, field.edges))
    elif field.transform == "curve":
        for index, share in shares(quantity, field.edges):
            multipliers[len(texts)] = share
            texts.append(b"%d" % index)
    else:
        quantity = logarithm(quantity) if field.transform == "log" else quantity
        multipliers[len(texts)] = check_multiplier(quantity, number, field.name)
        texts.append(SCALE_TEXT.encode())


def _read_list(field: Field, value: Any, number: int, texts: list[bytes], multipliers: dict[int, float]) -> None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        texts.append(b"")
        return
    if isinstance(value, str):
        if not value:
            texts.append(b"")
            return
        value = pieces(value, field.split)
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise InputError(
            f"row {number}: field {field.name!r} is declared kind='multi' but holds {value!r:.60}; "
            "it must be a list of values, or a text"
        )
    try:
        counts = Counter(canonical_text(item) for item in value)
    except InputError as error:
        raise InputError(f"row {number}, field {field.name!r}: {error}") from None
    for text, count in counts.items():
        if count > 1:
            multipliers[len(texts)] = count
        texts.append(text)


def _read_vector(field: Field, value: Any, number: int, texts: list[bytes], multipliers: dict[int, float]) -> None:
    try:
        vector = parse_vector(field, value)
    except InputError as error:
        raise InputError(f"row {number}: {error}") from None
    if vector is None:
        texts.append(b"")
        return
    for index, component in enumerate(vector.tolist()):
        multipliers[len(texts)] = component
        texts.append(b"%d" % index)


READERS = {"number": _read_number, "multi": _read_list, "vector": _read_vector}


def _refuse_slips(plan: Plan, row: Row, number: int, given: Row) -> None:
    """A row that lacks a field and has an unknown key has most likely misspelt the field; `given` is the row with its objects."""
    strange = [str(name) for name in row if name not in plan.known]
    lacking = [name for name, _ in plan.steps if name and name not in row]
    # An object that is null, or has less in it than others, is no slip, unless it has unknown keys.
    excused = {name.split(".")[0] for name in lacking if "." in name and name.split(".")[0] in given}
    excused -= {name.split(".")[0] for name in strange if "." in name}
    lacking = [name for name in lacking if name.split(".")[0] not in excused]
    if strange and lacking:
        raise InputError(
            f"row {number}: unknown field {strange[0]!r}{nearest(strange[0], lacking)}; "
            f"fields are: {', '.join(dict.fromkeys(name for name, _ in plan.steps if name))}"
        )


def _clicks(schema: Schema, rows: Sequence[Row]) -> NDArray[np.float32]:
    clicks = np.empty(len(rows), dtype=np.float32)
    outcome = outcome_of(schema.label)
    for number, row in enumerate(rows):
        if schema.label in row:
            clicks[number] = check_label(row[schema.label], number, schema.label)
        elif outcome is not None and outcome.column in row:
            clicks[number] = outcome.of_value(row[outcome.column], number)
        else:
            name = schema.label_column
            raise InputError(f"row {number} has no label {name!r}{nearest(name, row)}; its keys: {_keys(row)}")
    return clicks


def _weights(schema: Schema, rows: Sequence[Row], labelled: bool) -> NDArray[np.float32]:
    weights = np.ones(len(rows), dtype=np.float32)
    if schema.weight is not None and labelled:
        for number, row in enumerate(rows):
            if schema.weight not in row:
                raise InputError(f"row {number} has no weight {schema.weight!r}; its keys: {_keys(row)}")
            weights[number] = check_weight(row[schema.weight], number, schema.weight)
    return weights


def _keys(row: Row) -> str:
    return ", ".join(str(name) for name in row)


def _times(schema: Schema, rows: Sequence[Row], labelled: bool) -> NDArray[np.float64]:
    if schema.time is None:
        return np.zeros(len(rows))
    needed = labelled or _plan(schema).derived or any(schema.time in row for row in rows)
    if not needed:
        return np.zeros(len(rows))
    for number, row in enumerate(rows):
        if schema.time not in row:
            raise InputError(f"row {number} has no time {schema.time!r}{nearest(schema.time, row)}; its keys: {_keys(row)}")
    values = [row[schema.time] for row in rows]
    if schema.time_format is None and all(type(value) is float or type(value) is int for value in values):
        times = np.array(values, dtype=np.float64) / UNITS[schema.time_unit or "s"]
        if in_range(times).all():
            return times
    if len(values) == 1 and isinstance(values[0], (str, int)):
        return np.array([_one_time(values[0], schema.time, schema.time_format, schema.time_unit)])
    return _parse(values, schema.time, schema.time_format, schema.time_unit)


@functools.lru_cache(maxsize=4096, typed=True)
def _one_time(value: str | int, column: str, time_format: str | None, unit: str | None) -> float:
    # Samples that come one by one mostly have the time of the one before.
    return float(_parse([value], column, time_format, unit)[0])


def _parse(values: list[Any], column: str, time_format: str | None, unit: str | None) -> NDArray[np.float64]:
    try:
        array = pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InputError(f"the times in {column!r} are not all of one type: {error}") from error
    return parse_times(array, column, time_format, unit)
