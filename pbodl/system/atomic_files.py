"""The one way to write files and folders that others read: a reader finds the old content or the new, never half of it.

The content is written beside its path, synced to the disk, and renamed. A process that is killed meanwhile leaves a file or folder
beside the path; the next one that writes there removes it.
"""

import contextlib
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

Piece = bytes | memoryview
BESIDE = ".writing-"
OURS = re.compile(r".*@(?P<host>[^@]+)-(?P<pid>\d+)")  # how the name of one process alone ends
FORGOTTEN = 600.0  # seconds after which a process on another host that no longer writes counts as dead


@contextlib.contextmanager
def replacing(path: str | os.PathLike, beside: Path | None = None, sync: bool = True) -> Iterator[Path]:
    """Give a path to write a file or a folder to; when the block ends, that becomes `path`. After an error, `path` is as before.

    beside  the path to write to; by default one of this process alone. A writer that has no rivals may pass a fixed path, so that
            the next attempt overwrites what a killed process left behind
    sync    whether the content survives a crash of the machine, too

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(f"{folder}/greeting.txt") as beside:
    ...         _ = beside.write_text("hello")
    ...     os.listdir(folder)
    ['greeting.txt']
    """
    path = Path(path)
    if beside is None:
        sweep(path.parent, f"{path.name}@")
        beside = path.with_name(f"{BESIDE}{path.name}@{_host()}-{os.getpid()}")
    remove(beside)
    try:
        yield beside
        if sync:
            sync_path(beside)
        beside.replace(path)
    except BaseException:
        remove(beside)
        raise
    if sync:
        sync_path(path.parent)


def write_file(path: str | os.PathLike, *pieces: Piece, beside: Path | None = None) -> None:
    """Write a file from its pieces; when this returns, it is on the disk."""
    with replacing(path, beside) as at, at.open("wb") as file:
        file.writelines(pieces)


def write_synced(path: Path, *pieces: Piece) -> None:
    """Write a file that nobody reads yet, such as one inside a folder under `replacing`; it is on the disk when this returns."""
    with path.open("wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path, name: str = "") -> None:
    """Remove what dead processes left beside the paths in a folder that they were writing.

    Only the one writer of a folder (`system.folder_lock`) may sweep without a `name`: files and folders whose names say nothing
    about their process are its own, and it has written none yet.

    name  how the rest of the swept names begins
    """
    with contextlib.suppress(OSError):
        for left in [Path(entry.path) for entry in os.scandir(folder) if entry.name.startswith(BESIDE + name)]:
            with contextlib.suppress(OSError):
                if not _alive(left):
                    remove(left)


def _alive(beside: Path) -> bool:
    """Whether the process that writes there may still live."""
    writer = OURS.fullmatch(beside.name)
    if writer is None:
        return False
    if writer["host"] != _host():
        return time.time() - beside.stat().st_mtime < FORGOTTEN
    try:
        os.kill(int(writer["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _host() -> str:
    """The name of this machine, as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())
