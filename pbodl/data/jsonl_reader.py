"""Files with one JSON object to a line. A name that an object lacks is missing there, as null is."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pbodl.data.blocks import Block
from pbodl.data.hashing import canonical_text
from pbodl.data.lines import LineBlock, Lines
from pbodl.data.sources import Source
from pbodl.errors import InputError

LOOK = 1000  # lines whose names are taken for the file's columns


class JsonlFile:
    """An open file of JSON lines."""

    unit = "line"
    first = 1
    sparse = True

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lines = Lines(source)
        try:
            self.columns = self._names()
        finally:
            # The look ahead took lines: begin again.
            self._lines.close()
        self._lines = Lines(source)

    @property
    def bytes_read(self) -> int:
        return self._lines.bytes_read

    def close(self) -> None:
        self._lines.close()

    def _names(self) -> list[str]:
        lines = self._lines.take(LOOK)
        if lines is None:
            raise InputError(f"{self.source.name} is empty; it must hold one JSON object to a line")
        rows, faults = _decoded(lines)
        if not rows and faults:
            raise InputError(f"{self.source.name} holds no JSON lines: {next(iter(faults.values()))}")
        return list(dict.fromkeys(name for row in rows.values() for name in row))

    def blocks(self, columns: Sequence[str], size: int, start: int) -> Iterator[Block]:
        """The rows from `start` on, `size` lines to a block."""
        if self._lines.skip(start) < start:
            raise InputError(f"{self.source.name} has fewer than the {start} rows that were read from it before")
        while (lines := self._lines.take(size)) is not None:
            rows, faults = _decoded(lines)
            arrays = {name: _column(name, rows, faults) for name in columns}
            places = [place for place in rows if place not in faults]
            if len(places) < len(rows):
                good = {place: rows[place] for place in places}
                arrays = {name: _column(name, good, faults) for name in columns}
            yield Block(len(lines), pa.table(arrays), np.array(places, dtype=np.int64), faults, lines.text)


def _decoded(lines: LineBlock) -> tuple[dict[int, dict], dict[int, str]]:
    """The objects by place, and what is wrong with the lines that hold none."""
    decoder = msgspec.json.Decoder()
    try:
        objects = decoder.decode_lines(lines.data)
        if len(objects) == len(lines) and all(type(row) is dict for row in objects):
            return dict(enumerate(objects)), {}
    except ValueError:
        pass
    rows: dict[int, dict] = {}
    faults: dict[int, str] = {}
    for place in np.flatnonzero(~lines.blank).tolist():
        try:
            row = decoder.decode(lines.line(place))
        except UnicodeDecodeError:
            faults[place] = "it is not valid UTF-8"
        except msgspec.DecodeError as error:
            faults[place] = f"it is not JSON: {error}"
        else:
            if isinstance(row, dict):
                rows[place] = row
            else:
                faults[place] = f"it holds {lines.text(place)!r:.80}; it must hold a JSON object"
    return rows, faults


def _column(name: str, rows: dict[int, dict], faults: dict[int, str]) -> pa.Array:
    """The values of one column. MODIFIES: faults, where a value is none that a column can hold."""
    values = [row.get(name) for row in rows.values()]
    try:
        array = pa.array(values)
        if not pa.types.is_struct(array.type) and not _holds_lists_of(array.type, pa.types.is_nested):
            return array
    except (pa.ArrowException, OverflowError, TypeError):
        pass
    # Values of several types have their texts in common.
    listed = [isinstance(value, list) for value in values]
    lists = sum(listed) > len(values) // 2
    texts: list[Any] = []
    for place, value in zip(rows, values, strict=True):
        try:
            if value is not None and isinstance(value, list) != lists:
                wanted = "a list, as in other rows" if lists else "one value, not a list"
                raise InputError(f"a value of type {type(value).__name__} ({value!r:.60}) must be {wanted}")
            texts.append([_text(item) for item in value] if lists and value is not None else _text(value))
        except InputError as error:
            faults.setdefault(place, f"column {name!r}: {error}")
            texts.append(None)
    return pa.array(texts, pa.list_(pa.string()) if lists else pa.string())


def _holds_lists_of(kind: pa.DataType, what: Any) -> bool:
    return pa.types.is_list(kind) and what(kind.value_type)


def _text(value: Any) -> str | None:
    return None if value is None else canonical_text(value).decode()
