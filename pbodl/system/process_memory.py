"""Folders in memory that belong to one process and vanish with it: those that dead processes left behind go at the next start.

A folder holds a file that its process has locked (`flock`). Whoever can lock it knows that the process is dead.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

OWNER = ".owner"
YOUNG = 60.0  # seconds in which a folder without that file may still be in the making


@contextlib.contextmanager
def process_memory(prefix: str) -> Iterator[str]:
    """A new folder for this process, in memory if possible; removed at the end. First removes those of dead processes."""
    root = memory_folder()
    _sweep(Path(root), prefix)
    folder = tempfile.mkdtemp(prefix=prefix, dir=root)
    try:
        with Path(folder, OWNER).open("wb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def memory_folder() -> str:
    """A folder whose files live in memory, if the system has one; otherwise the temporary folder."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


def _sweep(root: Path, prefix: str) -> None:
    for folder in root.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another user's, or gone by now
            if _dead(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _dead(folder: Path) -> bool:
    try:
        with Path(folder, OWNER).open("rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime > YOUNG
    return True
