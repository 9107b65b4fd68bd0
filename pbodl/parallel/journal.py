"""A shard's memory on disk: a snapshot, and the messages acknowledged since, so that a killed shard comes back as it was.

`append` returns when the record is with the operating system: the death of the process loses nothing. With `sync` it returns when
the record is on the disk, so that the death of the machine loses nothing either; docs/parallel.md has what that costs.

    folder/00000003.state   the snapshot, written whole and renamed into place
    folder/00000003.log     records since: length, checksum, bytes
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from isal.isal_zlib import crc32

from pbodl.errors import InputError

HEAD = struct.Struct("<II")  # length, CRC-32


class Journal:
    """The journal in `folder`; `begin` first, on an empty folder, or `restore`."""

    def __init__(self, folder: str | Path, sync: bool = False) -> None:
        self.folder, self.sync = Path(folder), sync
        self.number = 0
        self.size = 0  # bytes of records since the snapshot
        self.state_size = 0
        self._log: int | None = None

    def begin(self, state: bytes) -> None:
        """Write a snapshot, and an empty log behind it; what was before is dropped."""
        self.folder.mkdir(parents=True, exist_ok=True)
        number = max((int(path.stem) for path in self.folder.glob("*.state")), default=0) + 1
        temporary = self.folder / ".writing"
        with temporary.open("wb") as file:
            file.write(HEAD.pack(len(state) & 0xFFFFFFFF, crc32(state)))
            file.write(state)
            file.flush()
            os.fsync(file.fileno())
        # The log is there before the snapshot that it belongs to; renaming the snapshot is the moment of change.
        self._open(number, fresh=True)
        temporary.rename(self.folder / f"{number:08d}.state")
        self._sync_folder()
        for path in self.folder.glob("*.*"):
            if path.stem.isdigit() and int(path.stem) < number:
                path.unlink()
        self.state_size = len(state)

    def restore(self) -> tuple[bytes, Iterator[bytes]]:
        """The newest snapshot and the records behind it; a record cut off in the middle was never acknowledged, and is cut away."""
        numbers = sorted(int(path.stem) for path in self.folder.glob("*.state"))
        if not numbers:
            raise InputError(f"{self.folder} holds no snapshot of a shard; is it on a disk that all nodes share?")
        content = (self.folder / f"{numbers[-1]:08d}.state").read_bytes()
        length, checksum = HEAD.unpack_from(content)
        state = content[HEAD.size :]
        if len(state) & 0xFFFFFFFF != length or crc32(state) != checksum:
            raise InputError(f"the snapshot {numbers[-1]:08d}.state in {self.folder} does not match its checksum; it is damaged")
        self._open(numbers[-1], fresh=False)
        self.state_size = len(state)
        records = (self.folder / f"{numbers[-1]:08d}.log").read_bytes()
        ends = list(_ends(records))
        self.size = ends[-1] if ends else 0
        assert self._log is not None
        os.ftruncate(self._log, self.size)
        starts = [0, *ends[:-1]]
        return state, (records[start + HEAD.size : end] for start, end in zip(starts, ends, strict=False))

    def append(self, record: bytes) -> None:
        """Keep a record. If that fails, it is as if it had not been tried."""
        assert self._log is not None
        content = memoryview(HEAD.pack(len(record), crc32(record)) + record)
        try:
            while content:
                content = content[os.write(self._log, content) :]
            if self.sync:
                os.fdatasync(self._log)
        except OSError:
            os.ftruncate(self._log, self.size)
            raise
        self.size += HEAD.size + len(record)

    def close(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _open(self, number: int, fresh: bool) -> None:
        self.close()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (os.O_TRUNC if fresh else 0)
        self._log = os.open(self.folder / f"{number:08d}.log", flags, 0o644)
        self.number, self.size = number, 0

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _ends(records: bytes) -> Iterator[int]:
    """Where each whole record ends, up to the first that is not whole."""
    start = 0
    while start + HEAD.size <= len(records):
        length, checksum = HEAD.unpack_from(records, start)
        end = start + HEAD.size + length
        if end > len(records) or crc32(records[start + HEAD.size : end]) != checksum:
            return
        yield end
        start = end
