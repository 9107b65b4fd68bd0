"""The X of scikit-learn as an Arrow table, and the fields to learn from its columns.

X is a data frame (pandas, polars, or any other with Arrow's PyCapsule interface) or an array. `columns_of` names its columns,
`fields_of` chooses a field for each, and `table_of` makes the table that the schema reads.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.convert import as_table
from pbodl.data.schema import Field, nearest
from pbodl.errors import InputError

NUMBERS = ("scale", "buckets")


def is_frame(X: Any) -> bool:
    """Whether X is a data frame; everything else is taken for an array."""
    return hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns")


def table_of(X: Any, names: Sequence[str] | None = None) -> pa.Table:
    """A data frame, or an array whose columns get these names (by default x0, x1, ...), as an Arrow table."""
    if is_frame(X):
        return as_table(X.rename(columns=str).reset_index(drop=True) if hasattr(X, "iloc") else X)
    columns = [_column(X[:, index]) for index in range(X.shape[1])]
    return pa.table(columns, names=list(names or (f"x{index}" for index in range(len(columns)))))


def _column(values: NDArray) -> pa.Array:
    """A column of an array; an array of objects holds numbers where it can, else texts."""
    if values.dtype.kind in "biuf":
        return pa.array(np.ascontiguousarray(values))
    try:
        return pa.array(values.astype(np.float64))
    except ValueError:
        return pa.array([None if _is_missing(value) else str(value) for value in values], pa.large_string())


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def fields_of(table: pa.Table, categorical: Any, numbers: str) -> list[Field]:
    """One field per column: texts, booleans and categorical columns are categories, lists are multi, numbers are numbers.

    `categorical` holds the names or the indices of further columns that are categories, or a mask with one boolean per column.
    """
    if numbers not in NUMBERS:
        raise InputError(f"numbers is {numbers!r}; allowed: {', '.join(map(repr, NUMBERS))}")
    chosen = _chosen(table.column_names, categorical)
    return [_field(name, table.schema.field(name).type, name in chosen, numbers) for name in table.column_names]


def _field(name: str, kind: pa.DataType, categorical: bool, numbers: str) -> Field:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return Field(name, kind="multi")
    if pa.types.is_temporal(kind):
        raise InputError(
            f"column {name!r} holds times ({kind}); give a schema=pbodl.Schema(..., time={name!r}), or leave it out of X"
        )
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return Field(name, kind="number", transform=numbers) if number and not categorical else Field(name)


def _chosen(names: Sequence[str], categorical: Any) -> set[str]:
    """The names of the columns that are to be categories."""
    if categorical is None:
        return set()
    if isinstance(categorical, str) or not isinstance(categorical, Iterable):
        raise InputError(f"categorical_features is {categorical!r}; give a list of column names or indices, or a mask of booleans")
    wanted = list(categorical)
    if wanted and all(isinstance(one, (bool, np.bool_)) for one in wanted):
        if len(wanted) != len(names):
            raise InputError(f"categorical_features is a mask of {len(wanted)} booleans; X has {len(names)} columns")
        return {name for name, one in zip(names, wanted, strict=True) if one}
    return {_name(one, names) for one in wanted}


def _name(one: Any, names: Sequence[str]) -> str:
    if isinstance(one, (int, np.integer)) and -len(names) <= one < len(names):
        return names[int(one)]
    if isinstance(one, str) and one in names:
        return one
    raise InputError(
        f"categorical_features names {one!r}{nearest(str(one), names)}, which X does not have; columns: {', '.join(names)}"
    )


def whole_categories(table: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """The table with categories that are whole numbers in floating point (1.0) as integers, so that 1 and 1.0 are one category."""
    for field in fields:
        index = table.schema.get_field_index(field.name)
        if not field.is_category or index < 0 or not pa.types.is_floating(table.schema.field(index).type):
            continue
        column = pc.if_else(pc.is_nan(table.column(index)), None, table.column(index))
        if pc.all(pc.equal(column, pc.floor(column))).as_py() is not False:
            table = table.set_column(index, field.name, pc.cast(column, pa.int64()))
    return table
