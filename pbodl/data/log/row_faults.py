"""Which rows of a table can be learned from; and which cannot, and why: a label that is not 0 or 1, a value that is not a time, a
weight or a number.

The parsers that make the batch also judge. They name the first fault of a column; to find all faults, the distinct values of the
column are halved until each is alone. This is done only where making the batch has failed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pbodl.data.arrow_columns import from_table
from pbodl.data.batch import Batch
from pbodl.data.features.former_names import renamed_table
from pbodl.data.features.outcome import clicks_of
from pbodl.data.features.vectors import vector_faults
from pbodl.data.labels import parse_weights
from pbodl.data.numbers import multipliers, parse_numbers
from pbodl.data.schema import Field, Schema
from pbodl.data.texts import Reader, is_text, text_readers, typed
from pbodl.data.times import parse_times
from pbodl.errors import InputError

Check = Callable[[pa.Array], Any]


def good_rows(schema: Schema, table: pa.Table, labelled: bool) -> tuple[Batch, pa.Table, dict[int, str]]:
    """The batch of the rows that can be learned from, the typed table of these rows, and the faults of the others by row.

    A fault of a column as a whole, such as a type that holds no times, is an InputError.
    """
    table = renamed_table(schema, table)
    try:
        good = typed(schema, table, labelled)
        return from_table(schema, good, labelled), good, {}
    except InputError:
        faults = row_faults(schema, table, labelled)
        if not faults:
            raise
    good = typed(schema, table.take(np.delete(np.arange(table.num_rows), list(faults))), labelled)
    return from_table(schema, good, labelled), good, faults


def row_faults(schema: Schema, table: pa.Table, labelled: bool) -> dict[int, str]:
    """The fault of each bad row, by row, in order; the table is as read, not yet `typed`."""
    faults: dict[int, str] = {}
    readers = text_readers(schema, labelled)
    for name, check in _checks(schema, labelled):
        if name not in table.column_names:
            continue
        column = table.column(name).combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        if pa.types.is_nested(column.type):
            raise InputError(f"column {name!r} holds {column.type}; it must hold one value in each row")
        if is_text(column.type):
            column = pc.cast(column, pa.large_string())
            check = _of_texts(check, readers.get(name))
        check(column[:0])
        coded = pc.dictionary_encode(column, null_encoding="encode")
        # When the values are sorted, bad ones are mostly neighbours, and halving finds them sooner.
        order = pc.array_sort_indices(coded.dictionary)
        bad = _faulty(coded.dictionary.take(order), check, 0)
        codes = pc.array_sort_indices(order).take(coded.indices).to_numpy()
        for row in np.flatnonzero(np.isin(codes, list(bad))).tolist():
            faults.setdefault(row, bad[int(codes[row])])
    for field in schema.fields:
        if field.kind == "vector" and field.source in table.column_names:
            found = vector_faults(field, table.column(str(field.source)).combine_chunks())
            faults = found | faults
    return dict(sorted(faults.items()))


def _of_texts(check: Check, reader: Reader | None) -> Check:
    """The check of values that are still texts."""
    return check if reader is None else lambda values: check(reader(values))


def _checks(schema: Schema, labelled: bool) -> list[tuple[str, Check]]:
    """The columns whose values can be wrong, each with the parser that judges them."""
    checks: list[tuple[str, Check]] = []
    label, time, weight = schema.label, schema.time, schema.weight
    if labelled:
        checks.append((schema.label_column, lambda values: clicks_of(label, values)))
    if time is not None:
        checks.append((time, lambda values: parse_times(values, time, schema.time_format, schema.time_unit)))
    if labelled and weight is not None:
        checks.append((weight, lambda values: parse_weights(values, weight)))
    numbers = [field for field in schema.fields if field.kind == "number"]
    return checks + [(str(field.source), _number_check(field)) for field in numbers]


def _number_check(field: Field) -> Check:
    def check(values: pa.Array) -> None:
        numbers = parse_numbers(values, str(field.source))
        if field.transform == "scale":
            multipliers(np.nan_to_num(numbers), field.name)

    return check


def _faulty(values: pa.Array, check: Check, first: int) -> dict[int, str]:
    """The faults among distinct values, by index; the first value has the index `first`."""
    try:
        check(values)
    except InputError as error:
        if len(values) == 1:
            return {first: str(error).removeprefix("row 0: ")}
        half = len(values) // 2
        return _faulty(values[:half], check, first) | _faulty(values[half:], check, first + half)
    return {}
