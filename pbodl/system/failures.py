"""Errors of the operating system in one sentence: what failed, where, and what to do."""

import errno

from pbodl.errors import InputError, WorkError
from pbodl.system.addresses import without_secrets

ADVICE = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the quota is used up: free some space",
    errno.EROFS: "the disk is read-only: choose another folder",
    errno.EACCES: "permission is missing: change the permissions, or choose another path",
    errno.EPERM: "permission is missing: change the permissions, or choose another path",
    errno.EMFILE: "too many files are open: raise the limit with `ulimit -n`",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "memory is short",
    errno.EIO: "the disk reports an error",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "the path is a folder, not a file",
    errno.ENAMETOOLONG: "the path is too long",
}


def sentence(error: BaseException) -> str:
    """An error in one sentence.

    >>> sentence(OSError(28, "No space left on device", "runs/a/metrics.jsonl"))
    'runs/a/metrics.jsonl: No space left on device (the disk is full: free some space)'
    >>> sentence(MemoryError())
    'memory is exhausted; use fewer workers, a smaller model (model.capacity, model.dim) or a larger machine'
    """
    if isinstance(error, MemoryError):
        return "memory is exhausted; use fewer workers, a smaller model (model.capacity, model.dim) or a larger machine"
    if isinstance(error, OverflowError):
        return f"a number is too large ({_first_line(error)}); check the numbers among the options and in the configuration"
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{_path(error.filename)}: "
        advice = ADVICE.get(error.errno or 0)
        return without_secrets(f"{where}{error.strerror}" + (f" ({advice})" if advice else ""))
    return _first_line(error)


def report(error: Exception) -> tuple[str, int]:
    """What to tell a person about an error, with its notes, and the exit code: 2 for bad input, 1 for all else.

    >>> report(InputError("the port is 99999; it must be at most 65535"))
    ('the port is 99999; it must be at most 65535', 2)
    """
    if isinstance(error, InputError):
        told, code = without_secrets(str(error)), 2
    elif isinstance(error, OSError | MemoryError | OverflowError | WorkError):
        told, code = sentence(error), 1
    else:
        told, code = f"{type(error).__name__}: {sentence(error)} (this is a bug; `pbodl --debug ...` shows where it happened)", 1
    return ". ".join([told, *(note[0].upper() + note[1:] for note in getattr(error, "__notes__", []))]), code


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return without_secrets(lines[0]) if lines else type(error).__name__


def _path(name: object) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)
