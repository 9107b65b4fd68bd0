"""Data from before a migration of the schema: columns under their former names, and columns that did not exist yet."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pbodl.data.schema import Schema


@functools.lru_cache(maxsize=256)
def named_columns(schema: Schema) -> Sequence[str]:
    """The columns that a schema names, present and former ones."""
    former = [alias for aliases in schema.former_columns.values() for alias in aliases]
    return [name for name in (*schema.sources, *former, schema.label_column, schema.time, schema.weight) if name is not None]


def renamed_row(schema: Schema, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with the present names of its columns; a value under the present name comes first."""
    former = {alias: name for name, aliases in schema.former_columns.items() for alias in aliases if alias in row}
    if not former:
        return row
    renamed = {name: value for name, value in row.items() if name not in former}
    for alias, name in former.items():
        if renamed.get(name) is None:
            renamed[name] = row[alias]
    return renamed


def renamed_table(schema: Schema, table: pa.Table) -> pa.Table:
    """The table with the present names of its columns; an optional column that it lacks is missing in all rows."""
    for name, aliases in schema.former_columns.items():
        for alias in aliases:
            if alias in table.column_names:
                values = table.column(alias)
                table = table.drop_columns([alias])
                if name in table.column_names:
                    own = table.column(name)
                    table = table.set_column(table.column_names.index(name), name, _first_of(own, values))
                else:
                    table = table.append_column(name, values)
    for field in schema.fields:
        if field.optional and field.source is not None and field.source not in table.column_names:
            table = table.append_column(field.source, pa.nulls(table.num_rows))
    return table


def _first_of(own: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of one column, and where it has none, of the other."""
    if own.null_count == 0 or pa.types.is_null(other.type):
        return own
    if own.null_count == len(own):
        return other
    try:
        return pc.coalesce(own, other.cast(own.type))
    except pa.ArrowException:
        return pc.coalesce(own.cast(pa.large_string()), other.cast(pa.large_string()))
