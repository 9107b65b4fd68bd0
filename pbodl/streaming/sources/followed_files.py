"""A growing file, or a folder that receives new files, as a source of events.

JSON lines and CSV files are followed byte by byte, up to the last whole line. Parquet and gzipped files do not grow; a folder gets
more of them. Files are read in the order of their names, with numbers compared by value; a file is finished when all of it is read
and another file follows. The names in a folder must therefore be in the order of time, as those of rotated logs are.
"""

import io
import os
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from pbodl.data.log.log_reader import open_file
from pbodl.data.log.log_sources import LogSource, find_sources
from pbodl.data.log.row_blocks import LogFile, RowBlock
from pbodl.errors import InputError
from pbodl.streaming.events import BadEvent
from pbodl.streaming.sources.event_source import Pack, StreamPosition

PIECE = 1 << 20  # bytes of text in a pack
ROWS = 8192  # rows of a Parquet file in a pack
LOOK_EVERY = 0.05  # seconds between looks for more
SMOOTH = 1 << 13  # the same, for a replay at some speed
PART = "files"


class FollowedFiles:
    """A file or a folder.

    piece  most bytes of text in a pack; a small number makes a replay at some speed smooth
    """

    away: str | None = None
    reconnects = 0

    def __init__(self, path: str, piece: int = PIECE) -> None:
        self.name = path
        if not os.path.exists(path):
            raise InputError(f"there is no file or folder {path!r} to follow; check the spelling, or create it first")
        self._piece = piece
        self._open: tuple[str, int, LogFile, Iterator[RowBlock]] | None = None  # a Parquet or gzipped file, and how far it was read

    def start(self, at: str) -> StreamPosition:
        files = self._files()
        if at == "start" or not files:
            return StreamPosition()
        last = files[-1]
        return StreamPosition({PART: (_sortable(last), self._rows(last) if _finished(last) else _whole_lines(last))})

    def check(self, after: StreamPosition) -> None:
        mark = after.marks.get(PART)
        here = {_sortable(file): file for file in self._files()}
        if mark is None or mark[0] not in here:
            return
        file = here[str(mark[0])]
        if not _finished(file) and file.size < int(mark[1]):
            raise InputError(f"{file.name} has fewer than the {mark[1]} bytes that were read from it; it was replaced or cut")

    def read(self, after: StreamPosition, wait: float) -> Pack:
        until = time.monotonic() + wait
        while True:
            pack = self._next(after)
            if pack or time.monotonic() >= until:
                return pack
            time.sleep(LOOK_EVERY)

    def lag(self, after: StreamPosition) -> int | None:
        """Bytes after the position; a Parquet file counts as a whole."""
        name, offset = after.marks.get(PART, ("", 0))
        behind = 0
        for file in self._files():
            if _sortable(file) > str(name):
                behind += file.size
            elif _sortable(file) == name and not _finished(file):
                behind += max(file.size - int(offset), 0)
        return behind

    def ended(self, after: StreamPosition) -> bool:
        return not self._next(after)

    def saving(self, position: StreamPosition) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        if self._open is not None:
            self._open[2].close()
            self._open = None

    def _files(self) -> list[LogSource]:
        try:
            return find_sources(self.name)
        except InputError:
            # A folder may still be empty.
            if os.path.isdir(self.name):
                return []
            raise

    def _next(self, after: StreamPosition) -> Pack:
        name, offset = after.marks.get(PART, ("", 0))
        files = [file for file in self._files() if _sortable(file) >= str(name)]
        for place, file in enumerate(files):
            at = int(offset) if _sortable(file) == name else 0
            is_last = place == len(files) - 1
            contents, stop, bad = self._finished_rows(file, at) if _finished(file) else self._lines(file, at, not is_last)
            position = after.after(PART, (_sortable(file), stop))
            if len(contents) or bad:
                return Pack(contents, position, bad)
        return Pack([], after)

    def _lines(self, file: LogSource, offset: int, closed: bool) -> tuple[Any, int, list[BadEvent]]:
        """Whole lines from an offset on; if another file follows, also a last line without its end."""
        with Path(file.path).open("rb") as stream:
            header = stream.readline() if file.format == "csv" else b""
            if not header.endswith(b"\n") and file.format == "csv":
                return [], 0, []
            stream.seek(max(offset, len(header)))
            text = stream.read(self._piece)
            while b"\n" not in text and (more := stream.read(PIECE)):
                text += more
        whole = text.rfind(b"\n") + 1
        if closed and not whole:
            whole = len(text)
        stop = max(offset, len(header)) + whole
        if not whole:
            return [], offset, []
        if file.format == "csv":
            table, bad = _csv(header, text[:whole])
            return table, stop, bad
        lines = text[:whole].strip()
        return ([lines + b"\n"] if lines else []), stop, []

    def _finished_rows(self, file: LogSource, row: int) -> tuple[Any, int, list[BadEvent]]:
        """The next rows of a file that does not grow."""
        if self._open is None or self._open[:2] != (file.path, row):
            self.close()
            log = open_file(file)
            size = ROWS if self._piece == PIECE else 32
            self._open = file.path, row, log, log.blocks(log.columns, size, row)
        _, _, log, blocks = self._open
        block = next(blocks, None)
        if block is None:
            self.close()
            return [], row, []
        self._open = file.path, row + block.rows, log, blocks
        bad = [BadEvent(reason, block.raw(place)) for place, reason in block.faults.items()]
        return block.table, row + block.rows, bad

    def _rows(self, file: LogSource) -> int:
        log = open_file(file)
        try:
            return sum(block.rows for block in log.blocks(log.columns[:1], ROWS))
        finally:
            log.close()


def _finished(file: LogSource) -> bool:
    return file.gzipped or file.format == "parquet"


def _whole_lines(file: LogSource) -> int:
    """The bytes of a file up to its last line end."""
    content = Path(file.path).read_bytes()
    return content.rfind(b"\n") + 1


def _sortable(file: LogSource) -> str:
    """The name of the file with its folder, padded so that texts sort as names do: `day2` before `day10`."""
    short = "/".join([part for part in file.path.split("/") if part not in ("", ".")][-2:])
    return re.sub(r"\d+", lambda digits: digits[0].zfill(20), short)


def _csv(header: bytes, lines: bytes) -> tuple[pa.Table, list[BadEvent]]:
    """Lines of a CSV file as a table of texts, and the lines that do not fit its header."""
    bad: list[BadEvent] = []

    def refuse(row: Any) -> str:
        bad.append(BadEvent(f"it has {row.actual_columns} columns, and the header {row.expected_columns}", row.text))
        return "skip"

    names = pa.csv.read_csv(io.BytesIO(header)).column_names
    table = pa.csv.read_csv(
        io.BytesIO(header + lines),
        parse_options=pa.csv.ParseOptions(invalid_row_handler=refuse),
        convert_options=pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in names}, null_values=[""], strings_can_be_null=True
        ),
    )
    return table, bad
