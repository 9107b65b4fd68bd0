"""Commands of `pbodl` as a terminal runs them, but inside this process: a process of its own imports everything again.

Output, exit code, folder and environment are as a process has them; afterwards all is as before. What needs signals, kills, or a
server beside it starts a process.
"""

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from pbodl.cli import main


class Outcome(NamedTuple):
    """What a command leaves behind: its exit code, and what it printed."""

    code: int
    out: str  # to stdout
    err: str  # to stderr
    output: str  # to both, in order

    @property
    def json(self) -> Any:
        """The JSON object on the last line of stdout."""
        return json.loads(self.out.splitlines()[-1])

    @property
    def prose(self) -> str:
        """What stderr says, on one line."""
        return " ".join(self.err.split())


class _Copied(io.BytesIO):
    """Bytes that are written to another stream, too."""

    def __init__(self, other: io.BytesIO) -> None:
        super().__init__()
        self._other = other

    def write(self, data: Any) -> int:
        self._other.write(data)
        return super().write(data)


def run_pbodl(*arguments: object, folder: Path | str = ".", environment: Mapping[str, str] | None = None) -> Outcome:
    """Run `pbodl` with these arguments, in a folder, with these variables beside those of the process."""
    both = io.BytesIO()
    out, err = _Copied(both), _Copied(both)
    streams = [io.TextIOWrapper(part, "utf-8", write_through=True) for part in (out, err)]
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, environment or {}),
        mock.patch.object(sys, "argv", ["pbodl", *map(str, arguments)]),
        mock.patch.object(warnings, "showwarning", warnings.showwarning),  # `main` has its own
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
    if isinstance(code, str):  # as the interpreter does
        streams[1].write(f"{code}\n")
        code = 1
    return Outcome(code, *(part.getvalue().decode() for part in (out, err, both)))
