"""A Parquet or gzipped file, which does not grow, read block by block from a row on."""

from collections.abc import Iterator

from pbodl.data.log.lines import LineBlock, Lines
from pbodl.data.log.log_reader import open_file
from pbodl.data.log.row_blocks import Layout, RowBlock, shrunk
from pbodl.errors import InputError
from pbodl.streaming.sources.file_order import Found
from pbodl.streaming.sources.text_tail import NO_PROOF, Text, no_rows

COMPLETE = "complete "  # begins the proof of a file whose rows were all read; the size of the file follows


class RowFile:
    """A file of rows. Its proof is its size.

    block  rows to read at a time
    """

    def __init__(self, found: Found, block: int, layout: Layout = Layout()) -> None:  # noqa: B008
        self.inode, self.changed_at, self.size = found.inode, found.changed_at, found.source.size
        self._source, self._block, self._layout = found.source, block, layout
        self._at = -1  # the row that `_ahead` begins with
        self._blocks: Iterator[tuple[LineBlock | RowBlock, int]] | None = None
        self._ahead: tuple[LineBlock | RowBlock, int] | InputError | None = None

    def close(self) -> None:
        self._blocks, self._at = None, -1

    def fault(self, offset: int, proof: str) -> str | None:
        """Why reading cannot continue at a row; None if it can."""
        if proof in ("", NO_PROOF) or proof.removeprefix(COMPLETE) == str(self.size):
            return None
        before = proof.removeprefix(COMPLETE)
        return f"{self._source.name} has {self.size} bytes, and had {before} when it was read: it was replaced"

    def read(self, offset: int, proof: str, piece: int, closed: bool) -> Text | None:
        """The rows from number `offset` on, some of them; None if all were read."""
        if proof.startswith(COMPLETE):
            return None
        if self._at != offset:
            self._blocks, self._at = self._open(offset), offset
            self._ahead = self._following()
        if isinstance(self._ahead, InputError):
            raise self._ahead
        content, rows = (no_rows(), 0) if self._ahead is None else self._ahead
        self._at += rows
        self._ahead = self._following()
        return Text(content, self._at, f"{COMPLETE if self._ahead is None else ''}{self.size}")

    def rows(self) -> int:
        """The number of rows."""
        return sum(rows for _, rows in self._open(0))

    def _following(self) -> tuple[LineBlock | RowBlock, int] | InputError | None:
        assert self._blocks is not None
        try:
            return next(self._blocks, None)
        except InputError as error:  # the rows before it can be read
            return error

    def _open(self, start: int) -> Iterator[tuple[LineBlock | RowBlock, int]]:
        if self._source.format == "jsonl":
            lines = Lines(self._source)
            try:
                if lines.skip(start) < start:
                    raise shrunk(self._source, start)
                while (block := lines.take(self._block)) is not None:
                    start += len(block)
                    yield block, len(block)
            finally:
                lines.close()
            return
        file = open_file(self._source, self._layout)
        try:
            names = [name for name in file.columns if file.columns.count(name) == 1]
            for rows in file.blocks(names, self._block, start):
                yield rows, rows.rows
        finally:
            file.close()
