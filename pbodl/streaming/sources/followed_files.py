"""A growing file, or a folder that receives new files, as a source of events.

JSON lines and CSV files are followed byte by byte, up to the last whole line; a row stands on one line. Parquet and gzipped files
do not grow; a folder gets more of them. A file is finished when all of it is read and another file with content follows: in a
folder the next one by name (numbers compared by value), otherwise the next generation of the rotated file. The names in a folder
must therefore be in the order of time.

A mark has the name of a file, the offset (or row), the inode and a proof of what is before the offset, so that every read shows
whether it continues what was read before. Where it does not, because a file was cut, replaced, removed or came too late, the pack
has a gap.
"""

import os
import time
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from pbodl.data.log.row_blocks import Layout
from pbodl.errors import InputError
from pbodl.streaming.sources.event_source import Pack, StreamPosition
from pbodl.streaming.sources.file_order import Found, by_inode, generations, in_folder
from pbodl.streaming.sources.row_file import COMPLETE, RowFile
from pbodl.streaming.sources.text_tail import NO_PROOF, TextTail

PIECE = 1 << 20  # bytes of text in a pack
ROWS = 8192  # rows of a Parquet or gzipped file in a pack
LOOK_EVERY = 0.05  # seconds between looks for more
SMOOTH = 1 << 13  # bytes of text in a pack, for a replay at some speed
PART, FINISHED = "files", "finished files"  # where reading stands; in a folder, name and size of each file before that


class FileMark(NamedTuple):
    """How far a file was read."""

    key: str  # its name, as texts sort
    offset: int = 0  # bytes of text, or rows
    inode: str = ""  # empty: any file of this name
    proof: str = NO_PROOF

    @property
    def complete(self) -> bool:
        return self.proof.startswith(COMPLETE)


class FollowedFiles:
    """A file or a folder.

    piece   most bytes of text in a pack; a small number makes a replay at some speed smooth
    layout  what the schema says of CSV files: delimiter, and columns where a file does not begin with their names
    """

    kind = "files"
    away: str | None = None
    reconnects = 0

    def __init__(self, path: str, piece: int = PIECE, layout: Layout = Layout()) -> None:  # noqa: B008
        self.name, self._layout = path, layout
        if not os.path.exists(path):
            raise InputError(f"there is no file or folder {path!r} to follow; check the spelling, or create it first")
        self._piece, self._is_folder = piece, os.path.isdir(path)
        self._open: tuple[str, TextTail | RowFile] | None = None  # the file that was read last, by its key

    def start(self, at: str) -> StreamPosition:
        files = self._files()
        if not files or (at == "start" and self._is_folder):
            return StreamPosition()
        *before, last = files
        if at == "start":
            return self._position(FileMark(last.key, 0, str(last.inode)), {})
        file = self._opened(last)
        offset = file.rows() if isinstance(file, RowFile) else file.whole_lines()
        proof = f"{COMPLETE}{file.size}" if isinstance(file, RowFile) else file.proof(offset)
        file.close()
        mark = FileMark(last.key, offset, str(last.inode), proof)
        return self._position(mark, {found.key: found.source.size for found in before})

    def read(self, after: StreamPosition, wait: float) -> Pack:
        until = time.monotonic() + wait
        while True:
            pack = self._next(after)
            if pack or time.monotonic() >= until:
                return pack
            after = pack.position
            time.sleep(LOOK_EVERY)

    def lag(self, after: StreamPosition) -> int | None:
        """Bytes after the position; a Parquet or gzipped file counts as a whole."""
        mark = _mark(after)
        if mark is None:
            return sum(found.source.size for found in self._files())
        here = next((found for found in self._candidates(mark)), None)
        inode = None if here is None else here.inode
        behind = sum(found.source.size for found in self._later(mark, inode, None))
        if here is None or mark.complete:
            return behind
        return behind + (here.source.size if here.finished else max(here.source.size - mark.offset, 0))

    def ended(self, after: StreamPosition) -> bool:
        return not self._next(after)

    def saving(self, position: StreamPosition) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _next(self, after: StreamPosition) -> Pack:
        """What follows a position; nothing while a file is being renamed."""
        try:
            return self._following(after)
        except FileNotFoundError:
            return Pack([], after)

    def _following(self, after: StreamPosition) -> Pack:
        """What follows a position: the rest of its file, or else the beginning of the next file that has something."""
        mark, finished = _mark(after), _finished(after)
        while True:
            if mark is None:
                first = next((found for found in self._files() if found.source.size), None)
                if first is None:
                    return Pack([], after)
                mark, finished = FileMark(first.key, 0, str(first.inode)), {}
            file, fault = self._file_of(mark)
            if fault is not None:
                return self._gap(mark, finished, fault)
            if file is not None and (text := file.read(mark.offset, mark.proof, self._piece, False)) is not None:
                return Pack(text.content, self._position(FileMark(mark.key, text.stop, str(file.inode), text.proof), finished))
            if self._is_folder and (gap := self._late(mark, finished)) is not None:
                return gap
            later = self._later(mark, *((file.inode, file.changed_at) if file is not None else (None, None)))
            if not later:
                return Pack([], after if _mark(after) == mark else self._position(mark, finished))
            size = 0 if file is None else file.size
            if file is not None and (text := file.read(mark.offset, mark.proof, self._piece, True)) is not None:
                return Pack(text.content, self._position(FileMark(mark.key, text.stop, str(file.inode), text.proof), finished))
            if finished is not None and file is not None:
                finished = finished | {mark.key: size}
            self.close()
            mark, self._open = FileMark(later[0].key, 0, str(later[0].inode)), (later[0].key, self._opened(later[0]))

    def _files(self) -> list[Found]:
        """The files to read at the start: those of the folder, or the one."""
        return (
            in_folder(self.name) if self._is_folder else [found for found in generations(self.name)[-1:] if _is(found, self.name)]
        )

    def _file_of(self, mark: FileMark) -> tuple[TextTail | RowFile | None, str | None]:
        """The file of a mark, open, if it is there; and why reading cannot continue in it, if so."""
        if self._open is not None and self._open[0] == mark.key and str(self._open[1].inode) == mark.inode:
            # Open files can be read to their end, though they may have been renamed or removed.
            return self._open[1], self._open[1].fault(mark.offset, mark.proof)
        self.close()
        fault = None
        for found in self._candidates(mark):
            file = self._opened(found)
            fault = file.fault(mark.offset, mark.proof)
            if fault is None:
                self._open = mark.key, file
                return file, None
            file.close()
        if fault is None and mark.inode and not (mark.complete and self._is_folder):
            fault = f"{mark.key} is gone from {self.name}, and it is not known whether all of it was read"
        return None, fault

    def _candidates(self, mark: FileMark) -> list[Found]:
        """Where the file of a mark may be: under any name, if something was read from it, or under its own."""
        if self._is_folder:
            files = in_folder(self.name)
            same = [found for found in files if str(found.inode) == mark.inode]
            named = [found for found in files if found.key == mark.key]
        else:
            beside = by_inode(self.name, int(mark.inode)) if mark.inode else None
            same, named = [beside] if beside is not None else [], self._files()
        if mark.offset or not mark.inode:
            return [*same, *named]
        # Where nothing was read, there is no proof: a file of a folder is known by its name, another by its inode.
        return named if self._is_folder else same

    def _later(self, mark: FileMark, inode: int | None, changed_at: int | None) -> list[Found]:
        """The files with content behind that of a mark, which has this inode and was written to at this time, if it is known."""
        if self._is_folder:
            behind = [
                found for found in in_folder(self.name) if found.key > mark.key or (found.key == mark.key and inode is not None)
            ]
            return [found for found in behind if found.inode != inode and found.source.size]
        files = generations(self.name)
        inodes = [found.inode for found in files]
        if inode in inodes:
            files = files[inodes.index(inode) + 1 :]
        else:
            # It was removed, or gzipped under another name: what was written to after it follows it.
            newer = (changed_at or time.time_ns()) - 1
            files = [found for found in files if _is(found, self.name) or found.changed_at > newer + found.finished]
        return [found for found in files if found.source.size]

    def _late(self, mark: FileMark, finished: dict[str, int] | None) -> Pack | None:
        """A gap, if a file came or grew after the ones behind it were begun."""
        sizes = {found.key: found.source.size for found in in_folder(self.name) if found.source.size and found.key < mark.key}
        if finished is None:  # a position of an older release
            return Pack([], self._position(mark, sizes)) if sizes else None
        late = [key for key, size in sizes.items() if finished.get(key) != size]
        if not late:
            return None
        reason = f"{late[0]} came or changed in {self.name} after {mark.key} was begun; names must be in the order of time"
        return Pack([], self._position(mark, sizes), reason)

    def _gap(self, mark: FileMark, finished: dict[str, int] | None, reason: str) -> Pack:
        """A pack that continues at the beginning of the file that now has the name, or else behind it."""
        self.close()
        here = next((found for found in self._files() if found.key == mark.key), None)
        if self._is_folder:
            following = FileMark(mark.key, 0, "", NO_PROOF if here is not None else COMPLETE)
        else:
            following = FileMark(mark.key, 0, str(here.inode) if here is not None else "")
        return Pack([], self._position(following, finished), reason)

    def _position(self, mark: FileMark, finished: dict[str, int] | None) -> StreamPosition:
        position = StreamPosition({PART: tuple(mark)})
        if not self._is_folder or finished is None:
            return position
        return position.after(FINISHED, tuple(part for entry in sorted(finished.items()) for part in entry))

    def _opened(self, found: Found) -> TextTail | RowFile:
        if found.finished:
            return RowFile(found, ROWS if self._piece == PIECE else 32, self._layout)
        return TextTail(found.source.path, found.source.name, found.source.format == "csv", self._layout)


def _is(found: Found, path: str) -> bool:
    return found.source.path == path


def _mark(position: StreamPosition) -> FileMark | None:
    given = position.marks.get(PART)
    if given is None:
        return None
    key, offset, inode, proof = (*given, "", "")[:4]  # older releases wrote a name and an offset
    return FileMark(str(key), int(offset), str(inode), str(proof))


def _finished(position: StreamPosition) -> dict[str, int] | None:
    given = position.marks.get(FINISHED)
    return None if given is None else {str(key): int(size) for key, size in zip(given[::2], given[1::2], strict=True)}
