"""The features of one dict, field by field, by the rules as they are written down."""

import math
from typing import Any

from tests.oracles.hashing import key


def text(value: Any) -> bytes:
    if value is None or value == "" or value != value:
        return b""
    if isinstance(value, bool):
        return str(value).lower().encode()
    if isinstance(value, float):
        return str(int(value)).encode() if value.is_integer() else repr(value).encode()
    return str(value).encode()


def features(fields: list, row: dict, seconds: float) -> list[tuple[int, float, int]]:
    """(key, value, field) of every feature; `fields` have name, kind, transform, derive."""
    found = []
    for index, field in enumerate(fields):
        value = row.get(field.name)
        pairs: list[tuple[bytes, float]]
        if field.derive == "hour_of_day":
            pairs = [(text(int(seconds // 3600) % 24), 1.0)]
        elif field.kind == "category" or value is None or value != value:
            pairs = [(text(value), 1.0)]
        elif field.kind == "multi":
            texts = [text(item) for item in value]
            pairs = [(item, float(texts.count(item))) for item in dict.fromkeys(texts)]
        elif field.transform == "scale":
            pairs = [(b"scale", float(value))]
        else:
            size = math.floor(4 * math.log2(1 + abs(value)))
            pairs = [(text(-size if value < 0 else size), 1.0)]
        found += [(key(field.name, item), factor, index) for item, factor in pairs]
    return found
