"""Parquet files, row group by row group, only the columns that are wanted.

Where the file stores texts as dictionaries, they are read as such: each distinct value is then hashed once.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet
from pyarrow import fs

from pbodl.data.log.columnar.batch_blocks import BatchFile, column_names
from pbodl.data.log.log_sources import LogSource, reading
from pbodl.data.times import is_text
from pbodl.errors import InputError

BUFFER = 1 << 20


class ParquetFile(BatchFile):
    """An open Parquet file."""

    rows: int

    def __init__(self, source: LogSource) -> None:
        self.source = source
        with reading(source.name):
            metadata = pa.parquet.read_metadata(source.path, filesystem=source.filesystem)
            schema = metadata.schema.to_arrow_schema()
            self.columns = column_names(schema)
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


def _coded(metadata: pa.parquet.FileMetaData, texts: list[str]) -> list[str]:
    """The columns of text that the file stores as dictionaries: making one takes longer than hashing every value."""
    if not metadata.num_row_groups:
        return texts
    group = metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return [column.path_in_schema for column in columns if column.path_in_schema in texts and column.has_dictionary_page]
