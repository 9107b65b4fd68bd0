"""The lines of a text file, plain or compressed, in blocks of a given number of lines."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from isal import isal_zlib
from numpy.typing import NDArray

from pbodl.data.log.log_sources import BAD_GZIP, LogSource, reading
from pbodl.data.log.row_blocks import Layout, shrunk
from pbodl.errors import InputError

PIECE = 1 << 21  # bytes of text per step
ZIPPED = 1 << 18  # gzipped bytes per step
BOM = b"\xef\xbb\xbf"
LONGEST = 1 << 26  # bytes of a line; a file with a longer one is not text


class LineBlock(NamedTuple):
    """Whole lines, each with its line end."""

    data: bytes
    ends: NDArray[np.int64]  # line i is data[ends[i]:ends[i + 1]]; one more than lines

    def __len__(self) -> int:
        return len(self.ends) - 1

    def line(self, i: int) -> bytes:
        return self.data[self.ends[i] : self.ends[i + 1]]

    def text(self, i: int) -> str:
        """Line i for people, whatever its bytes."""
        return self.line(i).rstrip(b"\r\n").decode("utf-8", "backslashreplace")

    @property
    def blank(self) -> NDArray[np.bool_]:
        """Which lines are empty."""
        lengths = np.diff(self.ends)
        blank = lengths == 1
        for i in np.flatnonzero(lengths == 2):
            blank[i] = self.line(int(i)) == b"\r\n"
        return blank


class Lines:
    """Reads the lines of a file from the first to the last. If the file is damaged, it hands out the whole lines before the damage,
    and then raises the error."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        with reading(source.name):
            # Where Arrow decompresses, only a file tells how far it was read.
            plain = source.compression in ("", "gzip")
            filesystem = source.filesystem
            self._file = (
                filesystem.open_input_stream(source.path, compression=None) if plain else filesystem.open_input_file(source.path)
            )
        texts = {"": self._plain, "gzip": self._unzipped}.get(source.compression, self._unpacked)
        self._texts = _without_mark(texts())
        self._pieces: list[bytes] = []
        self._ends: list[NDArray[np.int64]] = []  # offsets behind the line ends in the joined pieces
        self._held = 0  # bytes in the pieces
        self._lines = 0  # line ends in the pieces
        self._damage: InputError | None = None
        self._ended = False
        self.bytes_read = 0  # of the file as it is stored

    def take(self, n: int) -> LineBlock | None:
        """The next n lines, fewer at the end of the file; None when there are no more."""
        return self._next(n, True)

    def peek(self, n: int) -> LineBlock | None:
        """As `take`, but the lines stay."""
        return self._next(n, False)

    def _next(self, n: int, taking: bool) -> LineBlock | None:
        while self._lines < n and not self._ended:
            self._fetch()
        if not self._lines:
            if self._damage is not None:
                raise self._damage
            return None
        data = b"".join(self._pieces)
        ends = np.concatenate(self._ends)
        taken = min(n, len(ends))
        cut = int(ends[taken - 1])
        if taking:
            rest = data[cut:]
            self._pieces, self._ends, self._held = [rest], [ends[taken:] - cut], len(rest)
            self._lines = len(ends) - taken
        else:
            self._pieces, self._ends = [data], [ends]
        return LineBlock(data[:cut], np.concatenate([np.zeros(1, dtype=np.int64), ends[:taken]]))

    def skip(self, n: int) -> int:
        """Pass over n lines; returns how many there were."""
        passed = 0
        while passed < n and (block := self.take(min(n - passed, 1 << 16))) is not None:
            passed += len(block)
        return passed

    def close(self) -> None:
        self._file.close()

    def _fetch(self) -> None:
        try:
            with reading(self._source.name):
                text = next(self._texts, b"")
        except InputError as damage:
            # What follows the last line end is half a line.
            self._damage, self._ended = damage, True
            return
        if not text:
            self._ended = True
            if self._held == (int(self._ends[-1][-1]) if self._lines else 0):
                return
            text = b"\n"
        ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")) + (self._held + 1)
        self._pieces.append(text)
        self._held += len(text)
        self._lines += len(ends)
        if len(ends):
            self._ends.append(ends)
        elif self._lines == 0 and self._held > LONGEST:
            raise InputError(
                f"{self._source.name} has a line of more than {LONGEST >> 20} MB; a log has one row per line. Is it a text file?"
            )

    def _plain(self) -> Iterator[bytes]:
        while text := self._file.read(PIECE):
            self.bytes_read += len(text)
            yield text

    def _unpacked(self) -> Iterator[bytes]:
        """The text of a file that Arrow can decompress."""
        name = self._source.name
        with pa.CompressedInputStream(self._file, self._source.compression) as packed:
            while True:
                try:
                    text = packed.read(PIECE)
                except (OSError, pa.ArrowException) as error:
                    raise InputError(
                        f"{name} is damaged, truncated, or not a {self._source.compression} file: {str(error).splitlines()[0]}"
                    ) from error
                self.bytes_read = self._file.tell()
                if not text:
                    return
                yield text

    def _unzipped(self) -> Iterator[bytes]:
        """The text of all members of a gzip file, each checked against its checksum."""
        name = self._source.name
        member = isal_zlib.decompressobj(wbits=31)
        begun = False
        rest = b""
        while rest or (rest := self._file.read(ZIPPED)):
            if not begun:
                # Between and behind the members, zeros are padding.
                rest = rest.lstrip(b"\0") if self.bytes_read else rest
                begun = bool(rest)
                continue
            size = len(rest)
            try:
                text = member.decompress(rest, PIECE)
            except BAD_GZIP as error:
                raise InputError(f"{name} is damaged, or not a gzip file: {error}, near byte {self.bytes_read}") from error
            rest = member.unused_data if member.eof else member.unconsumed_tail
            self.bytes_read += size - len(rest)
            if text:
                yield text
            if member.eof:
                member, begun = isal_zlib.decompressobj(wbits=31), False
        if begun:
            raise InputError(
                f"{name} is truncated: its gzip data ends after {self.bytes_read} bytes without an end mark; "
                "fetch or write the file again"
            )


def _without_mark(texts: Iterator[bytes]) -> Iterator[bytes]:
    """The texts without a byte order mark at the start."""
    first = b""
    for text in texts:
        first += text
        if len(first) > len(BOM):
            break
    if first := first.removeprefix(BOM):
        yield first
    yield from texts


class LineFile(ABC):
    """A file of a log with one row to a line."""

    unit = "line"

    def __init__(self, source: LogSource, layout: Layout = Layout()) -> None:  # noqa: B008
        self.source, self._lines, self._layout = source, Lines(source), layout
        try:
            self.columns = self._read_columns()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _read_columns(self) -> list[str]: ...

    @property
    def bytes_read(self) -> int:
        return self._lines.bytes_read

    def close(self) -> None:
        self._lines.close()

    def _line_blocks(self, size: int, start: int) -> Iterator[LineBlock]:
        """The lines from number `start` on, `size` to a block."""
        if self._lines.skip(start) < start:
            raise shrunk(self.source, start)
        while (lines := self._lines.take(size)) is not None:
            yield lines
