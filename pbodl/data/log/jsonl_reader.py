"""Files with one JSON object to a line. A name that an object lacks is missing there, as null is.

A value of an object inside of the object has a name with a dot: `user.age`.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pbodl.data.features.nested import flattened, leaves, nested_value
from pbodl.data.features.tokens import pieces
from pbodl.data.hashing import canonical_text
from pbodl.data.log.lines import LineBlock, LineFile
from pbodl.data.log.row_blocks import RowBlock
from pbodl.data.texts import BETWEEN
from pbodl.errors import InputError

LOOK = 1000  # lines whose names are taken for the file's columns


class JsonlFile(LineFile):
    """An open file of JSON lines."""

    first = 1
    sparse = True

    def _read_columns(self) -> list[str]:
        lines = self._lines.peek(LOOK)
        if lines is None:
            raise InputError(f"{self.source.name} is empty; it must hold one JSON object to a line")
        rows, faults = _decoded(lines)
        if not rows and faults:
            raise InputError(f"{self.source.name} holds no JSON lines: {next(iter(faults.values()))}")
        return leaves([flattened(row) for row in rows.values()])

    def blocks(self, columns: Sequence[str], size: int, start: int = 0, lists: Collection[str] | None = None) -> Iterator[RowBlock]:
        """The rows from `start` on, `size` lines to a block."""
        for lines in self._line_blocks(size, start):
            rows, faults = _decoded(lines)
            table = _table(columns, rows, faults, lists)
            if not rows.keys().isdisjoint(faults):
                rows = {place: row for place, row in rows.items() if place not in faults}
                table = _table(columns, rows, faults, lists)
            places = np.array(list(rows), dtype=np.int64)
            yield RowBlock(len(lines), table, places, dict(sorted(faults.items())), lines.text)


def _decoded(lines: LineBlock) -> tuple[dict[int, dict], dict[int, str]]:
    """The objects by line, and what is wrong with the lines that hold none."""
    decoder = msgspec.json.Decoder()
    try:
        objects = decoder.decode_lines(lines.data)
        if len(objects) == len(lines) and all(type(row) is dict for row in objects):
            return dict(enumerate(objects)), {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    rows: dict[int, dict] = {}
    faults: dict[int, str] = {}
    for place in np.flatnonzero(~lines.blank).tolist():
        try:
            row = decoder.decode(lines.line(place))
        except UnicodeDecodeError:
            faults[place] = "it is not valid UTF-8"
        except (msgspec.DecodeError, RecursionError) as error:
            faults[place] = f"it is not JSON: {error}"
        else:
            if isinstance(row, dict):
                rows[place] = row
            else:
                faults[place] = f"it holds {lines.text(place)!r:.80}; it must hold a JSON object"
    return rows, faults


def _table(columns: Sequence[str], rows: dict[int, dict], faults: dict[int, str], lists: Collection[str] | None) -> pa.Table:
    """The rows as columns. MODIFIES: faults, where a row has a value that its column cannot hold."""
    arrays = {}
    for name in columns:
        if "." in name:
            values = {place: nested_value(row, name) for place, row in rows.items()}
        else:
            values = {place: row.get(name) for place, row in rows.items()}
        listed = is_listed(list(values.values())) if lists is None else name in lists
        arrays[name] = column_of(name, values, faults, listed)
    return pa.table(arrays)


def is_listed(values: Sequence[Any]) -> bool:
    """Whether most of these values are lists."""
    kinds = [isinstance(value, (list, tuple, np.ndarray)) for value in values if value is not None]
    return sum(kinds) > len(kinds) // 2


def plain_column(values: Sequence[Any], listed: bool) -> pa.Array | None:
    """A column of lists or of single values, if Arrow has a type for it as it is."""
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError):
        return None
    inner = array.type.value_type if listed and pa.types.is_list(array.type) else array.type
    if (inner is not array.type) != listed or pa.types.is_nested(inner) or pa.types.is_binary(inner):
        return None
    items = chain.from_iterable(value for value in values if value is not None) if listed else values
    if pa.types.is_floating(inner) and bool in set(map(type, items)):
        return None  # beside fractions, Arrow takes true for 1
    return array


def column_of(name: str, values: dict[int, Any], faults: dict[int, str], listed: bool) -> pa.Array:
    """One column of lists or of single values, by row. MODIFIES: faults, where the column cannot hold a value."""
    if listed and all(isinstance(value, str | None) for value in values.values()):
        listed = False  # lists that are written as texts
    array = plain_column(list(values.values()), listed)
    if array is not None:
        return array
    # Values of several types become texts.
    texts: list[Any] = []
    for place, value in values.items():
        text: Any = None
        try:
            if value is not None:
                text = [_text(item) for item in _checked_list(value)] if listed else _text(value)
        except (InputError, UnicodeDecodeError) as error:
            faults.setdefault(place, f"column {name!r}: {error}")
        texts.append(text)
    return pa.array(texts, pa.list_(pa.string()) if listed else pa.string())


def _checked_list(value: Any) -> Any:
    if isinstance(value, str):
        return pieces(value, BETWEEN)
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise InputError(f"a value of type {type(value).__name__} ({value!r:.60}) is given instead of a list")
    return value


def _text(value: Any) -> str | None:
    return None if value is None else canonical_text(value).decode()
