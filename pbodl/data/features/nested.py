"""Objects inside of objects: the value of `age` in `user` has the name `user.age`."""

from collections.abc import Mapping
from typing import Any


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


def flattened(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with the objects inside taken apart; the row itself if there are none.

    >>> flattened({"click": 1, "user": {"age": 30, "device": {"os": "x"}}})
    {'click': 1, 'user.age': 30, 'user.device.os': 'x'}
    """
    if not any(isinstance(value, Mapping) for value in row.values()):
        return row
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": deeper for inner, deeper in flattened(value).items()}
        else:
            flat[name] = value
    return flat
