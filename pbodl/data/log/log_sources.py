"""Which files make up a log: a path, a glob, a folder, or an address such as `s3://bucket/logs/*.parquet`.

Names are sorted as a person would, numbers by their value: `day2` before `day10`. The name of a file decides its format, or its
first bytes if the name says nothing. Rows that are in memory, such as a DataFrame, are a source, too: `memory_rows` reads them.
"""

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
from isal import isal_zlib
from pyarrow import fs

from pbodl.errors import InputError
from pbodl.system.addresses import refuse_secrets

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".psv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
TEXTS = ("csv", "jsonl")  # formats with one row to a line, which may be compressed as a whole
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
HEADS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
ALLOWED = "a log is read from .csv, .tsv, .jsonl, .parquet or .arrow files, texts also as .gz, .zst or .bz2"
# What isal raises; its hints take the class for an object.
BAD_GZIP: Any = isal_zlib.error
WILD = re.compile(r"[*\[]")  # and `?`, but in an address that opens the query


class LogSource(NamedTuple):
    """One file of a log."""

    name: str  # as people write it
    filesystem: fs.FileSystem
    path: str  # as the file system wants it
    size: int  # bytes
    format: str  # csv, jsonl, parquet or arrow; memory for rows that are in no file
    compression: str = ""  # of a text: gzip, zstd or bz2
    rows: Any = None  # those in memory


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Failures of the file system and of Arrow, as an InputError that names the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{name} cannot be read: {str(error).strip().splitlines()[0]}") from error


def find_sources(paths: Any) -> list[LogSource]:
    """The files that `paths` name, in the order given; the files of a glob or a folder are sorted by name.

    `paths` is a path, several of them, or rows that are not in a file, as `memory_rows.is_memory` knows them.
    """
    if isinstance(paths, LogSource):
        return [paths]
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if is_memory(paths):
        return [memory_source(paths)]
    if not paths:
        raise InputError("no log is given; give a file, a glob, a folder, or an address such as s3://bucket/logs/")
    return [source for path in paths for source in ([memory_source(path)] if is_memory(path) else _find(os.fspath(path)))]


def is_memory(data: Any) -> bool:
    """Whether these are rows in memory: a dict or several, something with Arrow's interface, or a function that returns such."""
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__") or isinstance(data, Mapping) or callable(data):
        return True
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return bool(data) and all(isinstance(row, Mapping) for row in data)
    return isinstance(data, Iterator)


def memory_source(data: Any) -> LogSource:
    """The source of rows in memory."""
    name = f"the {type(data).__name__}" if not isinstance(data, (Sequence, Mapping)) else "the rows"
    return LogSource(name, fs.LocalFileSystem(), "memory", int(getattr(data, "nbytes", 0) or 0) or 1, "memory", "", data)


def _find(given: str) -> list[LogSource]:
    with reading(given):
        filesystem, path, prefix, wild = _locate(given)
        if wild:
            infos = _expand(filesystem, path, wild)
            what = "no file matches"
        else:
            infos = [filesystem.get_file_info(path)]
            what = "there is no file or folder"
        infos = [info for info in infos if info.type != fs.FileType.NotFound]
        if not infos:
            raise InputError(f"{what} {given!r}; check the spelling and the current folder")
        return [source for info in infos for source in _sources(filesystem, prefix, info, given)]


def _locate(given: str) -> tuple[fs.FileSystem, str, str, list[str]]:
    """The file system, the path in it, the prefix of names, and the segments from the first wildcard on."""
    refuse_secrets(given, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a profile")
    scheme, colon, _ = given.partition("://")
    if not colon:
        local = fs.LocalFileSystem()
        wild = re.search(r"[*?\[]", given)
        # A file may have brackets in its name.
        if wild is None or local.get_file_info(given).type != fs.FileType.NotFound:
            return local, given, "", []
        base, segments = _cut(given, wild.start())
        return local, base or ("/" if given.startswith("/") else "."), "", segments
    address, _, query = given.partition("?")
    wild = WILD.search(address)
    base, segments = _cut(address, wild.start()) if wild else (address, [])
    filesystem, path = fs.FileSystem.from_uri(f"{base}?{query}" if query else base)
    return filesystem, path, "" if scheme == "file" else f"{scheme}://", segments


def _cut(path: str, place: int) -> tuple[str, list[str]]:
    """The folder before the segment at offset `place`, and that segment and those after it."""
    slash = path.rfind("/", 0, place)
    return path[: max(slash, 0)], path[slash + 1 :].split("/")


def _expand(filesystem: fs.FileSystem, folder: str, segments: list[str]) -> list[fs.FileInfo]:
    """What matches the segments of a glob below a folder, sorted; `**` stands for any number of folders."""
    first, rest = segments[0], segments[1:]
    if first == "**":
        below = filesystem.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
        inside = [info.path for info in below if info.type == fs.FileType.Directory]
        folders = [folder, *(path for path in inside if "/." not in path[len(folder) :])]
        found = [info for place in folders for info in _expand(filesystem, place, rest or ["*"])]
        return sorted({info.path: info for info in found}.values(), key=_natural)
    here = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    hidden = first.startswith(".")
    matching = [
        info for info in here if fnmatch.fnmatchcase(info.base_name, first) and (hidden or not info.base_name.startswith("."))
    ]
    if rest:
        folders = [info.path for info in matching if info.type == fs.FileType.Directory]
        matching = [info for place in folders for info in _expand(filesystem, place, rest)]
    return sorted(matching, key=_natural)


def _natural(info: fs.FileInfo) -> list[tuple[int, int, str]]:
    """`day2` before `day10`."""
    parts = re.split(r"(\d+)", info.path)
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]


def _sources(filesystem: fs.FileSystem, prefix: str, info: fs.FileInfo, given: str) -> list[LogSource]:
    if info.type == fs.FileType.File:
        return [_source(filesystem, prefix, info)]
    if info.type != fs.FileType.Directory:
        raise InputError(f"{info.path!r} is neither a file nor a folder")
    inside = filesystem.get_file_info(fs.FileSelector(info.path, recursive=True))
    files = [
        entry
        for entry in inside
        if entry.type == fs.FileType.File and _format_of(entry.base_name)[0] and not _is_hidden(info, entry)
    ]
    if not files:
        raise InputError(f"the folder {given!r} contains no log; {ALLOWED}")
    return [_source(filesystem, prefix, entry) for entry in sorted(files, key=_natural)]


def _is_hidden(folder: fs.FileInfo, entry: fs.FileInfo) -> bool:
    """Whether the file, or a folder on the way to it, has a name with `.` or `_` in front: tools use such names, logs do not."""
    return any(part.startswith((".", "_")) for part in entry.path[len(folder.path) :].strip("/").split("/"))


def _format_of(name: str) -> tuple[str | None, str]:
    """(format, compression) by the name; `train.gz` is taken for a CSV file."""
    stem, dot = os.path.splitext(name.lower())
    if dot not in COMPRESSIONS:
        return FORMATS.get(dot), ""
    form = FORMATS.get(os.path.splitext(stem)[1], "csv")
    return (form if form in TEXTS else None), COMPRESSIONS[dot]


def _source(filesystem: fs.FileSystem, prefix: str, info: fs.FileInfo) -> LogSource:
    name = prefix + info.path
    form, compression = _format_of(info.base_name)
    if form is None:
        form, compression = _sniffed(filesystem, info.path, name)
    return LogSource(name, filesystem, info.path, info.size, form, compression)


def _sniffed(filesystem: fs.FileSystem, path: str, name: str) -> tuple[str, str]:
    """(format, compression) by the first bytes."""
    with filesystem.open_input_stream(path, compression=None) as file:
        head = file.read(4096)
    compression = next((known for start, known in HEADS.items() if head.startswith(start)), "")
    if compression == "gzip":
        try:
            head = isal_zlib.decompressobj(wbits=31).decompress(head, 4096)
        except BAD_GZIP as error:
            raise InputError(f"{name} is not a valid gzip file: {error}") from error
    elif compression:
        with reading(name), filesystem.open_input_stream(path, compression=compression) as file:
            head = file.read(4096)
    binary = "parquet" if head.startswith(b"PAR1") else "arrow" if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")) else ""
    if binary and not compression:
        return binary, ""
    if binary or b"\0" in head:
        raise InputError(f"the format of {name} is not known; {ALLOWED}")
    return ("jsonl" if head.lstrip().removeprefix(b"\xef\xbb\xbf").startswith(b"{") else "csv"), compression
