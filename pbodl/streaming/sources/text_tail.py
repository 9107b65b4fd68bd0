"""A text file that grows, read from an offset on: whole lines, and a proof that they follow what was read before.

The proof is a hash of the last bytes before the offset. A file that was cut, rewritten or replaced has other bytes there.
"""

import hashlib
import os
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pbodl.data.log.csv_reader import CsvHead, Parser
from pbodl.data.log.lines import BOM, LineBlock
from pbodl.data.log.row_blocks import Layout, RowBlock
from pbodl.streaming.event_texts import SHOWN

PROOF = 1024  # bytes before the offset that are hashed
LONGEST = 1 << 24  # bytes of a line; a longer one is a bad event


class Text(NamedTuple):
    """Lines that were read, and the offset and the proof behind them."""

    content: LineBlock | RowBlock
    stop: int
    proof: str


def digest(data: bytes) -> str:
    """The hash of some bytes, as a short text."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


NO_PROOF = digest(b"")  # at the start of a file


class TextTail:
    """An open file. It stays readable when the file is renamed or removed."""

    def __init__(self, path: str, name: str, is_csv: bool, layout: Layout = Layout()) -> None:  # noqa: B008
        self._name, self._is_csv, self._layout = name, is_csv, layout
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.inode = os.fstat(self._fd).st_ino
        self._header = b""
        self._parser: Parser | None = None

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    @property
    def changed_at(self) -> int:
        """When the file was last written to, in nanoseconds."""
        return os.fstat(self._fd).st_mtime_ns

    def close(self) -> None:
        os.close(self._fd)

    def fault(self, offset: int, proof: str) -> str | None:
        """Why reading cannot continue at an offset; None if it can. An empty proof is of an older release, and is believed."""
        if (size := self.size) < offset:
            return f"{self._name} has {size} bytes, and {offset} were read from it: it was cut or replaced"
        if proof and self.proof(offset) != proof:
            return f"{self._name} has other bytes before byte {offset} than were read from it: it was cut or replaced"
        return None

    def proof(self, offset: int) -> str:
        """The hash of the bytes before an offset."""
        back = min(offset, PROOF)
        return digest(os.pread(self._fd, back, offset - back))

    def read(self, offset: int, proof: str, piece: int, closed: bool) -> Text | None:
        """Whole lines from an offset on, at most about `piece` bytes of them; None if there is none.

        closed  the file will not grow: a last line without an end is a line, too
        """
        if self._is_csv and not self._read_header():
            return None
        start = max(offset, len(self._header))
        text = os.pread(self._fd, piece, start)
        while b"\n" not in text and len(text) < LONGEST and (more := os.pread(self._fd, LONGEST - len(text), start + len(text))):
            text += more
        inside = start > len(self._header) and os.pread(self._fd, 1, start - 1) != b"\n"
        stop = (text.find(b"\n") if inside else text.rfind(b"\n")) + 1
        if inside and (stop or len(text) == LONGEST):
            return self._text(no_rows(), start + (stop or len(text)))  # the rest of a line that was too long
        if not stop and len(text) == LONGEST:
            return self._text(_too_long(text), start + len(text))
        if not stop and closed and text:
            return self._text(self._content(text + b"\n", start), start + len(text))
        return self._text(self._content(text[:stop], start), start + stop) if stop else None

    def whole_lines(self) -> int:
        """The offset behind the last line end."""
        end = self.size
        while end > 0:
            start = max(end - (1 << 16), 0)
            found = os.pread(self._fd, end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0

    def _text(self, content: LineBlock | RowBlock, stop: int) -> Text:
        return Text(content, stop, self.proof(stop))

    def _read_header(self) -> bool:
        """Whether the file has its line of column names; or, where the layout names them, any line."""
        if self._parser is None:
            head = os.pread(self._fd, 1 << 16, 0)
            head = head if b"\n" in head else os.pread(self._fd, LONGEST, 0)
            if line := head[: head.find(b"\n") + 1]:
                first = CsvHead(self._name, _lines(line), self._layout)
                self._header = b"" if first.headerless else line
                columns = [column for column in first.columns if first.columns.count(column) == 1]
                self._parser = Parser(self._name, first.columns, columns, first.delimiter, spans=False)
        return self._parser is not None

    def _content(self, text: bytes, start: int) -> LineBlock | RowBlock:
        if start == 0:
            text = text.removeprefix(BOM)
        lines = _lines(text)
        return lines if self._parser is None else self._parser.block(lines)


def _lines(text: bytes) -> LineBlock:
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    return LineBlock(text, np.concatenate([np.zeros(1, np.int64), ends]))


def no_rows() -> RowBlock:
    """What is read where there are no rows, but the position moves on."""
    return RowBlock(0, pa.table({}), np.zeros(0, np.int64), {}, str)


def _too_long(text: bytes) -> RowBlock:
    shown = text[:SHOWN].decode("utf-8", "backslashreplace")
    fault = {0: f"its line is longer than {LONGEST >> 20} MB"}
    return RowBlock(1, pa.table({}), np.zeros(0, np.int64), fault, lambda _: shown)
