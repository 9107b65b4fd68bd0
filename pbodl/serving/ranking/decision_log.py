"""The log of decisions: a background thread writes it, so that no request waits for a disk or a broker.

If the target is away, decisions wait in memory, up to `MOST` impressions. After that they are dropped, and counted: a server that
cannot log still answers. A decision that was answered shortly before the server was killed may be missing from the log.

Files rotate by size. Several worker processes, and several servers of one machine, may append to one file: a lock file makes them
take turns. A full file gets its time as a suffix (`decisions.jsonl.20260101T120000.000000`), under which `pbodl online` finds it.
"""

import contextlib
import fcntl
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pbodl.errors import InputError
from pbodl.serving.ranking.decision_events import Decided, events_of

MOST = 100_000  # impressions that wait
FILE_BYTES = 256 * 2**20  # of a file, before it is rotated
TOGETHER = 500  # decisions written at a time
PAUSE = 0.5  # seconds before another attempt
REMIND = 30.0  # seconds between two lines in the server's log
logger = logging.getLogger("pbodl.serving")


class EventTarget(Protocol):
    """Where decisions go. The sinks of `pbodl.streaming` are such targets; a command passes them on."""

    def send(self, events: Sequence[Any]) -> None: ...

    def close(self) -> None: ...


OpenTarget = Callable[[str], EventTarget]


def open_file_only(address: str) -> EventTarget:
    """The target at an address, where only files are known."""
    if "://" in address or not address.endswith(".jsonl"):
        raise InputError(f"cannot log decisions to {address!r}; give a .jsonl file")
    return RotatingFile(address)


class RotatingFile:
    """Appends JSON lines to a file that others may append to as well, and rotates it."""

    def __init__(self, path: str, most: int = FILE_BYTES) -> None:
        self._path, self._most = Path(path), most
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "ab"):
                pass
            self._lock = os.open(self._path.with_name(f".{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"decisions cannot be logged to {path}: {error.strerror or error}") from error

    def send(self, events: Sequence[Any]) -> None:
        """Append events; they are whole lines, whoever else writes."""
        lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
        with self._alone():
            if self._path.exists() and self._path.stat().st_size + len(lines) > self._most:
                moment = time.time()
                stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(moment))
                self._path.rename(f"{self._path}.{stamp}.{int(moment % 1 * 1e6):06d}")
            with open(self._path, "ab") as file:
                file.write(lines)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._lock)


class DecisionLog:
    """Takes decisions at once, and writes them in the background."""

    def __init__(self, address: str, open_target: OpenTarget = open_file_only) -> None:
        self._address, self._open = address, open_target
        self.logged = self.dropped = 0  # impressions
        self._taken = self._settled = 0  # each counted by one thread
        self._queue: queue.SimpleQueue[Decided | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="decision-log", daemon=True)
        self._thread.start()

    def add(self, decided: Decided) -> None:
        """Log a decision; never waits."""
        slots = len(decided.ranking.placed)
        if self._taken - self._settled + slots > MOST:
            self.dropped += slots
            return
        self._taken += slots
        self._queue.put(decided)

    def close(self, patience: float = 5.0) -> None:
        """Write what waits, for as long as the patience lasts."""
        self._queue.put(None)
        self._thread.join(patience)

    def _write(self) -> None:
        target: EventTarget | None = None
        told, ended = float("-inf"), False
        while not ended:
            batch, ended = self._next()
            events = [event for decided in batch for event in events_of(decided)]
            while events:
                try:
                    target = target or self._open(self._address)
                    target.send(events)
                    self.logged += len(events)
                    break
                except Exception as error:
                    if time.monotonic() - told > REMIND:
                        told = time.monotonic()
                        logger.warning("decisions wait to be logged: %s", error)
                    if target is not None:
                        with contextlib.suppress(Exception):
                            target.close()
                    target = None
                    time.sleep(PAUSE)
            self._settled += len(events)
        if target is not None:
            target.close()

    def _next(self) -> tuple[list[Decided], bool]:
        """The decisions that wait, at least one, and whether they are the last."""
        batch: list[Decided] = []
        decided = self._queue.get()
        while decided is not None:
            batch.append(decided)
            if len(batch) == TOGETHER:
                return batch, False
            try:
                decided = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True
