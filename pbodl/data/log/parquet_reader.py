"""Parquet files, row group by row group, only the columns that are wanted.

Where the file stores texts as dictionaries, they are read as such: each distinct value is then hashed once.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from pyarrow import fs

from pbodl.data.log.log_sources import LogSource, reading
from pbodl.data.log.row_blocks import RowBlock, shrunk
from pbodl.data.times import is_text
from pbodl.errors import InputError

BUFFER = 1 << 20


class ParquetFile:
    """An open Parquet file."""

    unit = "row"
    first = 1
    sparse = False

    def __init__(self, source: LogSource) -> None:
        self.source = source
        self._row = 0
        with reading(source.name):
            metadata = pa.parquet.read_metadata(source.path, filesystem=source.filesystem)
            schema = metadata.schema.to_arrow_schema()
            self.columns = list(schema.names)
            self.rows = metadata.num_rows
            local = isinstance(source.filesystem, fs.LocalFileSystem)
            self._file = pa.parquet.ParquetFile(
                source.path,
                filesystem=source.filesystem,
                metadata=metadata,
                read_dictionary=_coded(metadata, [field.name for field in schema if is_text(field.type)]),
                # Over a network, few large reads; from a disk, small ones, in bounded memory.
                pre_buffer=not local,
                buffer_size=BUFFER if local else 0,
                page_checksum_verification=True,
            )

    @property
    def bytes_read(self) -> int:
        return round(self.source.size * self._row / max(self.rows, 1))

    def close(self) -> None:
        self._file.close()

    def blocks(self, columns: Sequence[str], size: int, start: int = 0, lists: Collection[str] | None = None) -> Iterator[RowBlock]:
        """The rows from `start` on, `size` to a block, whatever the row groups."""
        if start > self.rows:
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
                    yield self._block(held)
                    held, lacking = [], size
        if held:
            yield self._block(held)
        if damage is not None:
            raise damage

    def _batches(self, columns: Sequence[str], size: int, start: int) -> Iterator[pa.RecordBatch]:
        metadata = self._file.metadata
        passed = 0
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            passed += rows
            if passed <= start:
                continue
            seen = passed - rows
            batches = self._file.iter_batches(size, row_groups=[group], columns=list(columns), use_threads=False)
            while True:
                with reading(f"{self.source.name}, after row {seen},"):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch.slice(min(max(start - seen, 0), len(batch)))
                seen += len(batch)
            if seen != passed:
                raise InputError(f"{self.source.name} is damaged: a row group ends after row {seen}, not {passed}")

    def _block(self, batches: list[pa.RecordBatch]) -> RowBlock:
        table = pa.Table.from_batches(batches)
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


def _coded(metadata: pa.parquet.FileMetaData, texts: list[str]) -> list[str]:
    """The columns of text that the file stores as dictionaries: making one takes longer than hashing every value."""
    if not metadata.num_row_groups:
        return texts
    group = metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return [column.path_in_schema for column in columns if column.path_in_schema in texts and column.has_dictionary_page]


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
