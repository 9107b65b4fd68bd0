"""Files of record batches become blocks of a given number of rows, whatever the batches: Parquet, Arrow files, rows in memory.

A column of structs counts as the columns of its parts: `user.age` is the `age` in `user`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pbodl.data.features.nested import flattened_table
from pbodl.data.log.log_sources import LogSource
from pbodl.data.log.row_blocks import RowBlock, shrunk
from pbodl.data.times import is_text
from pbodl.errors import InputError


class BatchFile(ABC):
    """An open file of record batches."""

    unit = "row"
    first = 1
    sparse = False
    source: LogSource
    columns: list[str]
    rows: int | None = None  # None: unknown before the end
    _row = 0

    @abstractmethod
    def _batches(self, columns: Sequence[str], size: int, start: int) -> Iterator[pa.RecordBatch]:
        """The rows from `start` on, with at least these columns, not more than `size` to a batch; structs as they are."""

    def blocks(self, columns: Sequence[str], size: int, start: int = 0, lists: Collection[str] | None = None) -> Iterator[RowBlock]:
        """The rows from `start` on, `size` to a block, whatever the batches."""
        if self.rows is not None and start > self.rows:
            raise shrunk(self.source, start)
        self._row = start
        held: list[pa.RecordBatch] = []
        lacking = size
        damage: InputError | None = None
        batches = self._batches(columns, size, start)
        while True:
            try:
                batch = next(batches, None)
            except InputError as error:
                # The rows before the damage are good.
                batch, damage = None, error
            if batch is None:
                break
            while len(batch):
                held.append(batch.slice(0, lacking))
                batch = batch.slice(len(held[-1]))
                lacking -= len(held[-1])
                if lacking == 0:
                    yield self._block(held, columns)
                    held, lacking = [], size
        if held:
            yield self._block(held, columns)
        if damage is not None:
            raise damage

    def _block(self, batches: list[pa.RecordBatch], columns: Sequence[str]) -> RowBlock:
        table = flattened_table(pa.Table.from_batches(batches), columns).select(columns)
        rows = table.num_rows
        self._row += rows
        faults = _broken_texts(table)
        places = np.arange(rows)
        if faults:
            places = np.delete(places, list(faults))

        def raw(place: int) -> str:
            row = {name: _values(table.column(name).slice(place, 1))[0] for name in table.column_names}
            return json.dumps(row, default=_shown)

        return RowBlock(rows, table.take(places) if faults else table, places, faults, raw)


def skipping(batches: Iterator[pa.RecordBatch], start: int, source: LogSource) -> Iterator[pa.RecordBatch]:
    """The batches from row `start` on."""
    for batch in batches:
        left = max(start - len(batch), 0)
        yield batch.slice(min(start, len(batch)))
        start = left
    if start:
        raise shrunk(source, start)


def column_names(schema: pa.Schema) -> list[str]:
    """The names of the columns, with those inside of structs: `user.age`."""
    return flattened_table(schema.empty_table()).column_names


def _broken_texts(table: pa.Table) -> dict[int, str]:
    """The faults of rows whose text is not UTF-8, which Arrow reads without complaint."""
    faults: dict[int, str] = {}
    for name in table.column_names:
        column = table.column(name)
        if is_text(column.type) and not all(_is_valid(chunk) for chunk in column.chunks):
            for place, value in enumerate(_values(column)):
                if isinstance(value, bytes):
                    faults.setdefault(place, f"column {name!r} holds {value!r:.80}, which is not valid UTF-8")
    return dict(sorted(faults.items()))


def _is_valid(texts: pa.Array) -> bool:
    try:
        (texts.dictionary if pa.types.is_dictionary(texts.type) else texts).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; texts that are not UTF-8 as bytes."""
    if not is_text(column.type):
        return column.to_pylist()
    return [_text(value) for value in pc.cast(column, pa.binary()).to_pylist()]


def _text(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _shown(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
