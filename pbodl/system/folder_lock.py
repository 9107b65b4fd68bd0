"""A folder has one writer: the process that holds the lock of `FOLDER/.lock`. Readers never need it.

The lock (`flock`) belongs to a process, and the system frees it when the process dies, however that happens. The file says who
holds it, for the error that the second writer gets. All writers of one process share its lock. Who takes it removes what writers
that died have left behind.
"""

import contextlib
import errno
import fcntl
import io
import json
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from pbodl.errors import InputError
from pbodl.system.atomic_files import sweep

FILE = ".lock"
_held: dict[str, "_Held"] = {}  # by the folder's real path
_guard = threading.RLock()


class _Held:
    def __init__(self, file: io.FileIO) -> None:
        self.file, self.holders = file, 0


class FolderLock:
    """The right to write into a folder, until `release`.

    folder   the folder; it is created if it does not exist
    command  what this process does there, such as "pbodl train"
    """

    def __init__(self, folder: str | os.PathLike, command: str) -> None:
        self.folder, self._released = Path(folder), False
        self._key = os.path.realpath(folder)
        with _guard:
            if self._key not in _held:
                self.folder.mkdir(parents=True, exist_ok=True)
                _held[self._key] = _Held(_locked(self.folder))
                sweep(self.folder)
                sweep(self.folder / "snapshots")
                _sign(_held[self._key].file, command)
            _held[self._key].holders += 1

    def release(self) -> None:
        """Let others write, if nothing else in this process does."""
        with _guard:
            if self._released or self._key not in _held:
                return
            self._released = True
            held = _held[self._key]
            held.holders -= 1
            if not held.holders:
                held.file.close()
                del _held[self._key]

    def __getstate__(self) -> tuple[Path, str, Any]:
        """For a child process that is being spawned: it holds the same lock, which then lasts as long as either process."""
        return self.folder, self._key, DupFd(_held[self._key].file.fileno())

    def __setstate__(self, state: tuple[Path, str, Any]) -> None:
        self.folder, self._key, descriptor = state
        self._released = False
        held = _held[self._key] = _Held(io.FileIO(descriptor.detach(), "r+"))
        held.holders = 1


@contextlib.contextmanager
def writing(folder: str | os.PathLike, command: str) -> Iterator[FolderLock]:
    """Within the block, no other process writes into the folder; InputError, which names the other one, if it does already.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, writing(folder, "pbodl train"):
    ...     json.loads(Path(folder, FILE).read_text())["command"]
    'pbodl train'
    """
    lock = FolderLock(folder, command)
    try:
        yield lock
    finally:
        lock.release()


def _locked(folder: Path) -> io.FileIO:
    file = io.FileIO(os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _told(file)
        file.close()
        raise InputError(f"{folder} is in use: {holder} writes into it; stop that first, or choose another folder") from None
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.EINVAL, errno.ENOSYS):
            file.close()
            raise
        warnings.warn(f"{folder} is on a disk that knows no locks; make sure that nothing else writes into it", stacklevel=2)
    return file


def _sign(file: io.FileIO, command: str) -> None:
    about = {"host": socket.gethostname(), "pid": os.getpid(), "command": command, "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
        file.truncate(0)
        file.write(json.dumps(about).encode())


def _told(file: io.FileIO) -> str:
    """Who holds the lock."""
    try:
        about = json.loads(file.read())
        return f"`{about['command']}`, process {about['pid']} on {about['host']} since {about['since']},"
    except (ValueError, KeyError, TypeError):
        return "another process"
