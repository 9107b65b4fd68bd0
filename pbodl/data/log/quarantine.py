"""The file that bad rows go to when a log is read with `bad_rows="skip"`: one JSON object to a line."""

import json
import os
from collections.abc import Iterable
from typing import NamedTuple

from pbodl.errors import InputError


class BadRow(NamedTuple):
    """A row that was not learned from."""

    file: str
    unit: str  # "line" or "row"
    number: int  # of that line or row
    reason: str
    raw: str  # the row as it stands in the file

    def message(self) -> str:
        """Where it is, what is wrong, and what to do."""
        return (
            f"{self.file}, {self.unit} {self.number}: {self.reason}. "
            'Correct it, or leave such rows out: bad_rows="skip" (--bad-rows skip)'
        )


class Quarantine:
    """Writes bad rows; keeps the first `kept` rows of the file, which are from before an interruption."""

    def __init__(self, path: str | os.PathLike, kept: int = 0) -> None:
        try:
            self._file = open(path, "r+b" if kept and os.path.exists(path) else "w+b")  # noqa: SIM115
            # The rows after these were read, but not learned, before the interruption: they will come again.
            for _ in range(kept):
                self._file.readline()
            self._file.truncate()
        except OSError as error:
            raise InputError(f"the file for bad rows cannot be written: {error}") from error

    def write(self, rows: Iterable[BadRow]) -> None:
        for row in rows:
            record = {"file": row.file, row.unit: row.number, "reason": row.reason, "raw": row.raw}
            self._file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
