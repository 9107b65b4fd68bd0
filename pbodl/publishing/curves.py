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
"""

import json
import os
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pbodl.system.atomic_files import write_file

FILE = "curves.jsonl"
MOST = 400  # points after thinning; a chart has no more pixels
START = b'{"n": '


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
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = CurveReader(folder).lines()
        self._count, self._last = len(lines), number(lines[-1]) if lines else 0
        if self._path.exists() and self._path.stat().st_size != sum(map(len, lines)):
            self._replace(lines)  # drop what a crash left behind

    def append(self, point: Mapping[str, Any]) -> int:
        """Add a point; returns its number."""
        self._last += 1
        line = json.dumps({"n": self._last, **point}, allow_nan=False).encode() + b"\n"
        with self._path.open("ab") as file:
            file.write(line)
        self._count += 1
        if self._count > 2 * self._most:
            lines = CurveReader(self._path.parent).lines()
            newest = len(lines) - self._most // 4
            self._replace(lines[:newest:2] + lines[newest:])
        return self._last

    def rewind(self, rows: int) -> None:
        """Drop the points after so many rows: a killed trainer continues from its snapshot, and writes them again."""
        lines = CurveReader(self._path.parent).lines()
        kept = [line for line in lines if json.loads(line)["rows"] <= rows]
        if len(kept) < len(lines):
            self._replace(kept)

    def _replace(self, lines: list[bytes]) -> None:
        write_file(self._path, *lines)
        self._count = len(lines)


class CurveReader:
    """Reads a run's points repeatedly; each time it reads only what was added to the file."""

    def __init__(self, folder: str | os.PathLike) -> None:
        self._path = Path(folder) / FILE
        self._file = -1  # inode: thinning makes a new file
        self._read = 0
        self._lines: list[bytes] = []

    def lines(self, after: int = 0) -> list[bytes]:
        """The points with numbers above `after`, oldest first, each a line of JSON."""
        try:
            with self._path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_ino != self._file or about.st_size < self._read:
                    self._file, self._read, self._lines = about.st_ino, 0, []
                file.seek(self._read)
                content = file.read()
        except FileNotFoundError:
            self._file, self._read, self._lines = -1, 0, []
            return []
        whole = content[: content.rfind(b"\n") + 1]  # the last line may still be incomplete
        self._read += len(whole)
        self._lines += [line for line in whole.splitlines(keepends=True) if line.startswith(START)]
        return self._lines[bisect_right(self._lines, after, key=number) :]


def read(folder: str | os.PathLike, after: int = 0) -> list[dict[str, Any]]:
    """The points of a run with numbers above `after`, oldest first."""
    return [json.loads(line) for line in CurveReader(folder).lines(after)]


def number(line: bytes) -> int:
    """The number of a point, from its line."""
    return int(line[len(START) : line.index(b",")])
