"""Which files follow which: the files of a folder by their names, the generations of a rotated file by their numbers or dates.

A rotated file is renamed, and another one takes its name: `events.jsonl` becomes `events.jsonl.1`, or `events.jsonl-20260101`, or
`events.1.jsonl`. With numbers, the larger one is the older; dates sort as texts. A generation may be gzipped later.
"""

import os
import re
from typing import NamedTuple

from pyarrow import fs

from pbodl.data.log.log_sources import TEXTS, LogSource, find_sources
from pbodl.errors import InputError

STAMP = r"[.\-_](\d[\d.\-_:TZ]*?)"  # a number or a date


class Found(NamedTuple):
    """A file that is there."""

    source: LogSource
    key: str  # its name, such that texts sort as names do; for generations the name that they had
    inode: int
    changed_at: int  # nanoseconds

    @property
    def finished(self) -> bool:
        """Whether it is of a kind that does not grow."""
        return bool(self.source.compression) or self.source.format not in TEXTS


def sortable(path: str) -> str:
    """The name of the file with its folder, padded so that texts sort as names do: `day2` before `day10`."""
    short = "/".join([part for part in path.split("/") if part not in ("", ".")][-2:])
    return re.sub(r"\d+", lambda digits: digits[0].zfill(20), short)


def in_folder(folder: str) -> list[Found]:
    """The files of a folder, in the order of their names; a folder may still be empty."""
    try:
        sources = find_sources(folder)
    except InputError:
        if os.path.isdir(folder):
            return []
        raise
    found = [_found(source, sortable(source.path)) for source in sources]
    return sorted([file for file in found if file is not None], key=lambda file: file.key)


def generations(path: str) -> list[Found]:
    """A file and those that had its name before, the oldest first; without the file itself while it is away."""
    folder, base = os.path.split(path)
    stem, extension = os.path.splitext(base)
    patterns = [f"{re.escape(base)}{STAMP}(\\.gz)?", f"{re.escape(stem)}{STAMP}{re.escape(extension)}(\\.gz)?"]
    now = _itself(path)
    form = now.source.format if now is not None else "csv" if extension.lower() == ".csv" else "jsonl"
    older: list[tuple[tuple[int, int, str], Found]] = []
    names = sorted(os.listdir(folder or "."))
    for name in names:
        match = re.fullmatch(patterns[0], name) or re.fullmatch(patterns[1], name)
        if match is None or (match[2] and name.removesuffix(".gz") in names):
            continue
        whole = os.path.join(folder, name)
        found = _found(LogSource(whole, fs.LocalFileSystem(), whole, 0, form, "gzip" if match[2] else ""), sortable(path))
        if found is not None:
            is_number = match[1].isdigit() and len(match[1]) < 5
            older.append(((1, -int(match[1]), "") if is_number else (0, 0, match[1]), found))
    return [found for _, found in sorted(older, key=lambda entry: entry[0])] + ([now] if now is not None else [])


def by_inode(path: str, inode: int) -> Found | None:
    """The file with this inode beside a path, whatever its name."""
    now = _itself(path)
    with os.scandir(os.path.dirname(path) or ".") as entries:
        for entry in entries:
            if entry.inode() == inode and entry.is_file():
                form = now.source.format if now is not None else "csv" if path.lower().endswith(".csv") else "jsonl"
                compression = "gzip" if entry.name.endswith(".gz") else ""
                return _found(LogSource(entry.path, fs.LocalFileSystem(), entry.path, 0, form, compression), sortable(path))
    return None


def _itself(path: str) -> Found | None:
    try:
        return _found(find_sources(path)[0], sortable(path))
    except InputError:
        return None


def _found(source: LogSource, key: str) -> Found | None:
    try:
        stat = os.stat(source.path)
    except OSError:
        return None
    return Found(source._replace(size=stat.st_size), key, stat.st_ino, stat.st_mtime_ns)
