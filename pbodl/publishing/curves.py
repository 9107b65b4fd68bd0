"""Live figures of a run: a trainer appends points to RUN/curves.jsonl, and a server reads those that are new.

A point is plain data, one line of JSON:

    n                its number, assigned by `Curves`; later points have higher numbers
    time             seconds since 1970
    rows             rows learned so far
    rows_per_second  current speed
    lag              seconds that the trainer is behind its stream
    packs_ahead      packs of events that were read and wait to be learned: back pressure
    held             why publishing is held, if it is
    stream_time      time of the newest learned row, seconds since 1970, if the stream has times
    models           by name: {"progressive": figures, "window": figures, "rows_per_second": speed of learning alone}
    best             figures of the true click probabilities, where they are known: no model can do better
    example          values of a recent row, by column, to fill a form with

Figures are those of `LiveFigures`. The dashboard leaves out what is missing or None. The file stays small: when it has twice its
limit of points, every second one is dropped, except for the newest.

On the disk, a line also ends with a checksum. Readers skip lines that are damaged; a trainer that finds some sets the file aside.
"""

import errno
import json
import os
import warnings
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pbodl.system.atomic_files import write_file

FILE = "curves.jsonl"
MOST = 400  # points after thinning; a chart has no more pixels
START = b'{"n": '
SEAL = b', "crc": "%08x"}\n'
SEAL_SIZE = len(SEAL % 0)


class Curves:
    """Writes the points of a run. Readers see a point whole or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as run:
    ...     curves = Curves(run)
    ...     curves.append({"rows": 100, "models": {}}), curves.append({"rows": 200, "models": {}})
    ...     [point["rows"] for point in read(run, after=1)]
    (1, 2)
    [200]
    """

    def __init__(self, folder: str | os.PathLike, most: int = MOST) -> None:
        self._path, self._most = Path(folder) / FILE, most
        self._count: int | None = None  # points in the file; None until it is read
        self._last = 0
        self._until = float("inf")  # points after so many rows are still to be dropped

    def append(self, point: Mapping[str, Any]) -> int:
        """Add a point; returns its number. After an OSError the file is as before, and the next point may be tried."""
        count = self._prepare()
        text = json.dumps({"n": self._last + 1, **point}, allow_nan=False)
        _append(self._path, sealed_line(text.encode() + b"\n"))
        self._last += 1
        self._count = count + 1
        if self._count > 2 * self._most:
            lines = CurveReader(self._path.parent).lines()
            newest = len(lines) - self._most // 4
            self._replace(lines[:newest:2] + lines[newest:])
        return self._last

    def rewind(self, rows: int) -> None:
        """Drop the points after so many rows: a killed trainer continues from its snapshot, and writes them again."""
        self._until = rows
        self._prepare()

    def _prepare(self) -> int:
        """Read the file at the first use, and drop what must go; returns its number of points."""
        if self._count is None:
            self._count = self._begin()
        if self._until < float("inf"):
            lines = CurveReader(self._path.parent).lines()
            kept = [line for line in lines if json.loads(line).get("rows", 0) <= self._until]
            if len(kept) < len(lines):
                self._replace(kept)
            self._until = float("inf")
        return self._count

    def _begin(self) -> int:
        """The number of points in the file. A damaged file is set aside first, and its good points stay."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        reader = CurveReader(self._path.parent)
        lines = reader.lines()
        if reader.damaged:
            aside = self._path.with_name(f"{FILE}.damaged")
            warnings.warn(
                f"{self._path} is damaged; it is set aside as {aside.name}, and {len(lines)} good points stay", stacklevel=4
            )
            self._path.replace(aside)
        if reader.damaged or reader.torn:
            self._replace(lines)
        self._last = number(lines[-1]) if lines else 0
        return len(lines)

    def _replace(self, lines: list[bytes]) -> None:
        write_file(self._path, *map(sealed_line, lines))
        self._count = len(lines)


class CurveReader:
    """Reads a run's points repeatedly; each time it reads only what was added to the file."""

    def __init__(self, folder: str | os.PathLike) -> None:
        self._path = Path(folder) / FILE
        self._file = -1  # inode: thinning makes a new file
        self._read = 0
        self._lines: list[bytes] = []
        self.damaged = False  # whether lines were skipped
        self.torn = False  # whether the last line has no end

    def lines(self, after: int = 0) -> list[bytes]:
        """The points with numbers above `after`, oldest first, each a line of JSON."""
        try:
            with self._path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_ino != self._file or about.st_size < self._read:
                    self._file, self._read, self._lines = about.st_ino, 0, []
                file.seek(self._read)
                content = file.read()
        except OSError as error:
            self._file, self._read, self._lines = -1, 0, []
            self.damaged = not isinstance(error, FileNotFoundError)
            return []
        whole = content[: content.rfind(b"\n") + 1]  # the last line may still be incomplete
        self._read += len(whole)
        self.torn = len(whole) < len(content)
        self._take(whole.split(b"\n")[:-1])
        return self._lines[bisect_right(self._lines, after, key=number) :]

    def _take(self, lines: Iterable[bytes]) -> None:
        """Add the sound ones of some lines."""
        for sealed in lines:
            line = _sound(sealed + b"\n")
            if line is not None and (not self._lines or number(line) > number(self._lines[-1])):
                self._lines.append(line)
            else:
                self.damaged = True


def read(folder: str | os.PathLike, after: int = 0) -> list[dict[str, Any]]:
    """The points of a run with numbers above `after`, oldest first."""
    return [json.loads(line) for line in CurveReader(folder).lines(after)]


def number(line: bytes) -> int:
    """The number of a point, from its line."""
    return int(line[len(START) : line.index(b",")])


def sealed_line(line: bytes) -> bytes:
    """A line of JSON with its checksum, as it stands on the disk."""
    body = line[:-2]
    return body + SEAL % zlib.crc32(body)


def _sound(sealed: bytes) -> bytes | None:
    """The line of a point without its checksum; None if it is damaged."""
    body, seal = sealed[:-SEAL_SIZE], sealed[-SEAL_SIZE:]
    return body + b"}\n" if seal == SEAL % zlib.crc32(body) and body.startswith(START) else None


def _append(path: Path, line: bytes) -> None:
    """Append a line, or leave the file as it was."""
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        except OSError:
            with suppress(OSError):
                file.truncate(size)
            raise
