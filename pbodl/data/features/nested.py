"""Objects inside of objects: the value of `age` in `user` has the name `user.age`.

This is where objects are taken apart, whatever holds them: dicts in rows, structs in tables, texts of JSON in either. An object
that is null, or missing, has no values.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pbodl.data.hashing import canonical_text
from pbodl.data.times import is_text
from pbodl.errors import InputError


def nested_value(row: Mapping[str, Any], name: str) -> Any:
    """The value of a name with dots; None if there is none.

    >>> nested_value({"user": {"age": 30}}, "user.age"), nested_value({"user.age": 31}, "user.age"), nested_value({}, "user.age")
    (30, 31, None)
    """
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    inner = row.get(first)
    return nested_value(inner, rest) if dot and isinstance(inner, Mapping) else None


def objects_of(names: Iterable[str]) -> frozenset[str]:
    """The objects in which the values of these names are.

    >>> sorted(objects_of(["user.device.os", "click"]))
    ['user', 'user.device']
    """
    names = set(names)
    return _outer(names) - names


def _outer(names: Iterable[str]) -> frozenset[str]:
    """The part of each name before each of its dots."""
    parts = (name.split(".") for name in names)
    return frozenset(".".join(words[:end]) for words in parts for end in range(1, len(words)))


def flattened(row: Mapping[str, Any], objects: Collection[str] = frozenset()) -> Mapping[str, Any]:
    """The row with the objects inside taken apart; the row itself if there are none.

    objects  names that are known to hold objects: a text there is JSON, and null an object without values

    >>> flattened({"click": 1, "user": {"age": 30, "device": {"os": "x"}}})
    {'click': 1, 'user.age': 30, 'user.device.os': 'x'}
    >>> flattened({"user": None, "device": '{"os": "x"}'}, {"user", "device"})
    {'device.os': 'x'}
    """
    if not any(isinstance(value, Mapping) or name in objects for name, value in row.items()):
        return row
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name in objects and not isinstance(value, Mapping):
            if value is None or (isinstance(value, str) and not value) or (isinstance(value, float) and math.isnan(value)):
                continue
            value = object_of(value) or value
        if isinstance(value, Mapping):
            flat |= flattened({f"{name}.{inner}": deeper for inner, deeper in value.items()}, objects)
        else:
            flat[name] = value
    return flat


def leaves(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the values in rows taken apart, in order of appearance, without those of objects that are null in places."""
    held: dict[str, bool] = {}  # by name, whether a row has a value of it
    for row in rows:
        for name, value in row.items():
            held[name] = held.get(name, False) or value is not None
    outer = _outer(held)
    return [name for name, is_held in held.items() if is_held or name not in outer]


def object_of(text: Any) -> dict[str, Any] | None:
    """The object that a text holds as JSON; None if it holds none."""
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def flattened_table(table: pa.Table, names: Sequence[str] = ()) -> pa.Table:
    """The table with its structs taken apart, and with columns for these names, if they are in objects that it holds otherwise."""
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    there = set(table.column_names)
    for name in names:
        if "." in name and name not in there:
            words = name.split(".")
            outer = next((".".join(words[:end]) for end in range(len(words) - 1, 0, -1) if ".".join(words[:end]) in there), None)
            if outer is not None and (column := _inner(table.column(outer), name[len(outer) + 1 :])) is not None:
                table = table.append_column(name, column)
    return table


def _inner(column: pa.ChunkedArray, name: str) -> pa.Array | None:
    """The values of a name in a column of objects that are null, or texts; None if the column holds something else."""
    if column.null_count == len(column):
        return pa.nulls(len(column))
    if not is_text(column.type):
        return None
    coded = pc.dictionary_encode(pc.cast(column, pa.large_string()).combine_chunks())
    values = [nested_value(object_of(text) or {}, name) for text in coded.dictionary.to_pylist()]
    return plain_values(values).take(coded.indices)


def plain_values(values: Sequence[Any]) -> pa.Array:
    """Values as an Arrow array; as texts if they are of several types."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError):
        return pa.array([_text(value) for value in values], pa.large_string())


def _text(value: Any) -> str | None:
    try:
        return None if value is None else canonical_text(value).decode()
    except InputError:
        return msgspec.json.encode(value).decode()
