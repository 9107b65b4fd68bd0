"""Columns that a file holds as text, converted to the types that `from_table` reads.

Labels may be words, such as true or no; times without a format may be epoch seconds or ISO 8601; a list has `|` between its
values; an empty text is missing. A column with any other text stays as it is, so that the parser can show that text in its message.
"""

import functools
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pbodl.data.features.outcome import outcome_of
from pbodl.data.features.tokens import split_texts
from pbodl.data.labels import labels_of_texts
from pbodl.data.schema import Field, Schema
from pbodl.data.times import UNITS, is_text, parse_times
from pbodl.errors import InputError

Reader = Callable[[pa.Array], pa.Array]
BETWEEN = "|"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def text_readers(schema: Schema, labelled: bool) -> dict[str, Reader]:
    """By column, what converts texts to the type that the schema needs; columns that stay texts are absent."""
    readers: dict[str, Reader] = {}
    for source, field in lone_fields(schema).items():
        if field.kind == "number":
            readers[source] = numbers
        elif field.kind in ("multi", "vector"):
            readers[source] = functools.partial(split_texts, split=field.split)
    if schema.time is not None and schema.time_format is None:
        unit = schema.time_unit
        readers[schema.time] = lambda texts: times(texts, unit)
    if labelled:
        if outcome_of(schema.label) is None:
            readers[schema.label] = labels_of_texts
        if schema.weight is not None:
            readers[schema.weight] = numbers
    return readers


def lone_fields(schema: Schema) -> dict[str, Field]:
    """By column, the field that alone reads it. Where several do, it stays as it is: each reads it its own way."""
    uses = Counter(field.source for field in schema.fields)
    return {field.source: field for field in schema.fields if field.source is not None and uses[field.source] == 1}


def typed(schema: Schema, table: pa.Table, labelled: bool) -> pa.Table:
    """The table with the texts of labels, weights, times, numbers and lists converted to their types."""
    readers = text_readers(schema, labelled)
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if name in readers and is_text(column.type):
            texts = pc.cast(column, pa.large_string()).combine_chunks()
            table = table.set_column(place, name, readers[name](texts))
    return table


def numbers(texts: pa.Array) -> pa.Array:
    """Floats, null where the text is empty."""
    try:
        return pc.cast(_emptied(texts), pa.float64())
    except pa.ArrowInvalid:
        return texts


def times(texts: pa.Array, unit: str | None = None) -> pa.Array:
    """Epoch seconds, or times in a unit, if any of the texts is a number."""
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        numeric = pc.match_substring_regex(texts, NUMBER)
    if not pc.any(numeric).as_py():
        return texts
    try:
        moments = pa.array(parse_times(pc.if_else(numeric, "1970-01-01", texts), "", None) * UNITS[unit or "s"])
    except InputError:
        return texts
    return pc.if_else(numeric, pc.cast(_only(numeric, texts), pa.float64()), moments)


def _emptied(texts: pa.Array) -> pa.Array:
    return _only(pc.not_equal(texts, ""), texts)


def _only(wanted: pa.Array, texts: pa.Array) -> pa.Array:
    """Texts, and null where they are not wanted; not the scalar None, for which Arrow before 24 corrupts slices of texts."""
    return pc.if_else(wanted, texts, pa.nulls(len(texts), texts.type))
