"""Reading a click log: `open_log(paths, schema)` iterates over chunks, in the order of the files.

Decoding and hashing run ahead in a background thread. A chunk holds `batch_rows` consecutive rows of one file, whatever the timing
(fewer at the end of a file, and without bad rows), so that reading can go on from the `position` of any chunk with the same rows.
"""

import os
from collections.abc import Callable, Generator, Sequence
from typing import Any

from pbodl.data.features.former_names import named_columns
from pbodl.data.log.added_columns import with_added
from pbodl.data.log.chunks import Chunk, LogPosition, chunk_of
from pbodl.data.log.columnar.arrow_reader import ArrowFile
from pbodl.data.log.columnar.memory_rows import MemoryFile, known_rows
from pbodl.data.log.columnar.parquet_reader import ParquetFile
from pbodl.data.log.csv_reader import CsvFile
from pbodl.data.log.jsonl_reader import JsonlFile
from pbodl.data.log.log_sources import TEXTS, LogSource, find_sources
from pbodl.data.log.quarantine import Quarantine
from pbodl.data.log.row_blocks import Layout, LogFile, layout_of, needed_columns
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.system.read_ahead import ReadAhead

__all__ = ["Chunk", "LogPosition", "LogReader", "open_file", "open_log"]

AHEAD = 3  # chunks made before they are asked for
COUNTED = 200  # Parquet files, at most, whose rows are counted at the start
TEXT_FILES: dict[str, Callable[[LogSource, Layout], LogFile]] = {"csv": CsvFile, "jsonl": JsonlFile}
FILES: dict[str, Callable[[LogSource], LogFile]] = {"parquet": ParquetFile, "arrow": ArrowFile, "memory": MemoryFile}


def open_file(source: LogSource, layout: Layout = Layout(), inside: Sequence[str] = ()) -> LogFile:  # noqa: B008
    """A file of a log, its header read, with the columns of its folders, and those of these names that are inside of its texts.

    `layout` is for text files.
    """
    file = TEXT_FILES[source.format](source, layout) if source.format in TEXTS else FILES[source.format](source)
    return with_added(file, inside)


class LogReader:
    """An iterator over the chunks of a log. Close it, or use it in a `with`, to stop the reading ahead.

    paths        files (CSV, JSON lines, both also compressed, Parquet, Arrow), globs, folders, addresses such as s3://bucket/logs/,
                 or rows in memory: dicts, DataFrames, tables, readers (`memory_rows` lists them)
    labelled     whether the label is read; without it, batches have no clicks
    bad_rows     "stop": an InputError that names file, line, column and value, after the good rows before it;
                 "skip": such rows are left out and counted, and written to `bad_rows_file` if there is one
    start        the position of a chunk, to go on behind it with the same rows as if there had been no pause
    columns      further columns to have in the `table` of each chunk

    sources      the files
    position     after the last chunk handed out
    bytes_total  size of the files as they are stored
    bytes_read   how much of it has been handed out
    """

    def __init__(
        self,
        paths: Any,
        schema: Schema,
        *,
        labelled: bool = True,
        batch_rows: int = 65536,
        bad_rows: str = "stop",
        bad_rows_file: str | os.PathLike | None = None,
        start: LogPosition | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        if bad_rows not in ("stop", "skip"):
            raise InputError(f"bad_rows is {bad_rows!r}; allowed are 'stop' and 'skip'")
        if bad_rows_file is not None and bad_rows == "stop":
            raise InputError("a file for bad rows is given, but reading stops at the first: set bad_rows='skip'")
        if batch_rows < 1:
            raise InputError(f"batch_rows is {batch_rows}; it must be a whole number of at least 1")
        self.sources = find_sources(paths)
        if start is not None:
            _check_start(start, self.sources)
        self.position = start or LogPosition(file=_short_name(self.sources[0]))
        self.bytes_total = sum(source.size for source in self.sources)
        self.bytes_read = sum(source.size for source in self.sources[: self.position.source])
        self._schema, self._labelled, self._skip = schema, labelled, bad_rows == "skip"
        self._batch_rows, self._columns = batch_rows, columns
        self._exact_rows = _count_rows(self.sources)
        self._bytes_before, self._rows = self.bytes_read, 0
        # The first file is opened here, so that a wrong schema is an error at once.
        self._first = self._opened(self.sources[self.position.source])
        self._quarantine = None if bad_rows_file is None else Quarantine(bad_rows_file, self.position.bad_rows)
        self._chunks = ReadAhead(self._read(self.position, may_end=start is not None), AHEAD)

    def __iter__(self) -> "LogReader":
        return self

    def __next__(self) -> Chunk:
        for chunk in self._chunks:
            # Not the position's rows: in a file whose quoted texts have line ends, it counts lines.
            self._rows += len(chunk.batch) + chunk.position.bad_rows - self.position.bad_rows
            self.position, self.bytes_read = chunk.position, chunk.bytes_read
            if self._quarantine is not None:
                self._quarantine.write(chunk.bad)
            if len(chunk.batch):
                return chunk
        raise StopIteration

    def __enter__(self) -> "LogReader":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading ahead and close the files."""
        self._chunks.close()
        self._first[0].close()
        if self._quarantine is not None:
            self._quarantine.close()

    @property
    def bad_rows(self) -> int:
        """Rows left out so far."""
        return self.position.bad_rows

    @property
    def out_of_order(self) -> int:
        """Rows so far that were older than one before them."""
        return self.position.out_of_order

    @property
    def rows_total(self) -> int | None:
        """Rows of the log: exact for Parquet, else estimated from what has been read; None if nothing has."""
        if self._exact_rows is not None or self.bytes_read <= self._bytes_before:
            return self._exact_rows
        return round(self._rows / (self.bytes_read - self._bytes_before) * self.bytes_total)

    def _opened(self, source: LogSource) -> tuple[LogFile, list[str]]:
        """The file, and the columns to read from it."""
        named = (*named_columns(self._schema), *self._columns)
        file = open_file(source, layout_of(self._schema), [name for name in named if "." in name])
        try:
            return file, needed_columns(file, self._schema, self._labelled, self._columns)
        except InputError:
            file.close()
            raise

    def _read(self, position: LogPosition, may_end: bool) -> Generator[Chunk, None, None]:
        """The chunks from `position` on; runs in the background thread."""
        behind = self.bytes_read
        lists = {str(field.source) for field in self._schema.fields if field.kind in ("multi", "vector")}
        for number, source in enumerate(self.sources[position.source :], position.source):
            file, columns = self._first if number == position.source else self._opened(source)
            if number > position.source:
                position = position._replace(source=number, row=0, file=_short_name(source))
            try:
                for block in file.blocks(columns, self._batch_rows, position.row, lists):
                    may_end = True
                    chunk = chunk_of(file, block, position, self._schema, self._labelled, self._skip)
                    yield chunk._replace(bytes_read=behind + file.bytes_read)
                    if chunk.bad and not self._skip:
                        raise InputError(chunk.bad[0].message())
                    position = chunk.position
            finally:
                file.close()
            behind += source.size
        if not may_end:
            names = [source.name for source in self.sources]
            raise InputError(f"there are no rows in {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}")


open_log = LogReader


def _short_name(source: LogSource) -> str:
    """The name with its folder, which tells the days of a log apart: `day=1/part-0.parquet`."""
    return "/".join([part for part in source.path.split("/") if part not in ("", ".")][-2:])


def _check_start(start: LogPosition, sources: list[LogSource]) -> None:
    """InputError if reading would go on in another file: rows would be lost, or learned twice."""
    now = _short_name(sources[start.source]) if start.source < len(sources) else "missing"
    # The folder may be given at one time and left out at another.
    pairs = zip(now.split("/")[::-1], (start.file or now).split("/")[::-1], strict=False)
    if start.source >= len(sources) or any(one != other for one, other in pairs):
        raise InputError(
            f"reading is to go on in file number {start.source + 1} of the log, which was {start.file!r} and is now {now!r}; "
            "give the same files in the same order (new ones may follow)"
        )


def _count_rows(sources: list[LogSource]) -> int | None:
    """The number of rows, if the files say it."""
    if all(source.format == "memory" and isinstance(known_rows(source.rows), int) for source in sources):
        return sum(known_rows(source.rows) or 0 for source in sources)
    if len(sources) > COUNTED or any(source.format != "parquet" for source in sources):
        return None
    rows = 0
    for source in sources:
        try:
            file = ParquetFile(source)
        except InputError:
            # The error comes when this file is due, after what can be read before it.
            return None
        rows += file.rows
        file.close()
    return rows
