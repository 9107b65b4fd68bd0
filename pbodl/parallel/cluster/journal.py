"""A shard on disk: a snapshot, and the messages acknowledged since, so that a killed shard comes back as it was.

`append` returns when the operating system has the record: killing the process loses nothing. With `sync` it returns when the record
is on the disk: a crash of the machine loses nothing either. docs/lab/parallel.md says what that costs.

    folder/00000003.state   the snapshot
    folder/00000003.log     records since then: length, checksum, bytes
    folder/00000004.log     records since the next snapshot was begun, which is still being written

`begin` writes a snapshot while the shard waits. `roll` begins the next log at once, and `write_state` writes the snapshot that
belongs to it, in a copy of the process (`system.forked_work`), while the shard goes on. Until that snapshot is there, the old one
and both logs hold the same.

One process owns a journal at a time. A process that restores first creates the next log, which only one process can do, and then
reads. A process that appends checks, after writing and before returning, whether a next log exists. So a process that was wrongly
taken for dead either wrote before its successor read, or learns that it has one (`Superseded`). One that only answers questions
checks before (`check_owned`).
"""

import os
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from isal.isal_zlib import crc32

from pbodl.errors import InputError
from pbodl.system.atomic_files import replacing, write_synced

HEAD = struct.Struct("<II")  # length, CRC-32


class Superseded(Exception):
    """Another process owns this journal now; the last write does not count."""


class Journal:
    """The journal in `folder`: `begin` on an empty folder, or `restore` and then `begin`."""

    def __init__(self, folder: str | Path, sync: bool = False) -> None:
        self.folder, self.sync = Path(folder), sync
        self.number = 0
        self.size = 0  # bytes of records since the snapshot
        self.state_size = 0
        self._log: int | None = None
        self._claimed = False  # the log exists, and its snapshot does not yet

    def begin(self, state: bytes) -> None:
        """Write a snapshot with an empty log, and drop older ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        number = self.number if self._claimed else self.number + 1
        # The log exists before its snapshot; renaming the snapshot is the moment of change.
        self._write(number, state, lambda: self._claimed or self._claim(number))
        self._claimed = False
        self.drop_before(number, len(state))

    def roll(self) -> int:
        """Begin the next log; returns its number. Its snapshot, of this very moment, is to follow: `write_state`, `drop_before`."""
        if not self._claim(self.number + 1):
            raise Superseded
        self._claimed = False
        return self.number

    def write_state(self, number: int, state: bytes) -> None:
        """Write the snapshot that belongs before the log of this number."""
        self._write(number, state, lambda: True)

    def drop_before(self, number: int, state_size: int) -> None:
        """Drop what the snapshot of this number, of so many bytes, has replaced."""
        for old in sorted(set(self._numbers("*"))):  # the oldest first: see `_superseded`
            for path in self.folder.glob(f"{old:08d}.*") if old < number else ():
                path.unlink(missing_ok=True)
        self.state_size = state_size

    def _write(self, number: int, state: bytes, is_ours: Callable[[], bool]) -> None:
        own = self.folder / f"{number:08d}.{uuid.uuid4().hex}.writing"
        with replacing(self.folder / f"{number:08d}.state", beside=own) as beside:
            write_synced(beside, HEAD.pack(len(state) & 0xFFFFFFFF, crc32(state)), state)
            if not is_ours():
                raise Superseded

    def restore(self) -> tuple[bytes, Iterator[bytes]]:
        """The newest snapshot and the records after it. A record that was cut off was never acknowledged, and is left out."""
        while not self._claim(max(self._numbers("*"), default=0) + 1):
            pass
        while True:
            newest = max(self._numbers("state"), default=0)
            if not newest:
                raise InputError(f"{self.folder} holds no snapshot of a shard; is it on a disk that all nodes share?")
            try:
                content = (self.folder / f"{newest:08d}.state").read_bytes()
                logs = [self._path(number).read_bytes() for number in range(newest, self.number)]
                break
            except FileNotFoundError as error:  # its owner is alive after all, and has just replaced it
                if max(self._numbers("state"), default=0) == newest:
                    raise InputError(f"the snapshot {newest:08d}.state in {self.folder} has lost its log") from error
        length, checksum = HEAD.unpack_from(content)
        state = content[HEAD.size :]
        if len(state) & 0xFFFFFFFF != length or crc32(state) != checksum:
            raise InputError(f"the snapshot {newest:08d}.state in {self.folder} does not match its checksum; it is damaged")
        return state, (record for log in logs for record in _records(log))

    def append(self, record: bytes | bytearray) -> None:
        """Write a record. If that fails, the journal stays as it was."""
        assert self._log is not None and not self._claimed
        content = memoryview(HEAD.pack(len(record), crc32(record)) + record)
        try:
            while content:
                content = content[os.write(self._log, content) :]
            if self.sync:
                os.fdatasync(self._log)
        except OSError:
            os.ftruncate(self._log, self.size)
            raise
        if self._superseded():
            raise Superseded
        self.size += HEAD.size + len(record)

    def check_owned(self) -> None:
        """`Superseded`, if another process owns this journal: what this one holds is out of date, and must not be read."""
        if self._superseded():
            raise Superseded

    def close(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _numbers(self, ending: str) -> list[int]:
        return [int(path.name.partition(".")[0]) for path in self.folder.glob(f"*.{ending}")]

    def _claim(self, number: int) -> bool:
        """Create a log, unless another process did."""
        try:
            log = os.open(self._path(number), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            raise InputError(f"there is no folder {self.folder}; is it on a disk that all nodes share?") from error
        self.close()
        self._log, self.number, self.size, self._claimed = log, number, 0, True
        return True

    def _superseded(self) -> bool:
        """Whether a next log exists. A later owner may have dropped it already; then it dropped ours first."""
        return self._path(self.number + 1).exists() or not self._path(self.number).exists()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.log"


def _records(log: bytes) -> Iterator[bytes]:
    """The whole records of a log, up to the first one that is cut off or damaged."""
    start = 0
    while start + HEAD.size <= len(log):
        length, checksum = HEAD.unpack_from(log, start)
        end = start + HEAD.size + length
        if end > len(log) or crc32(log[start + HEAD.size : end]) != checksum:
            return
        yield log[start + HEAD.size : end]
        start = end
