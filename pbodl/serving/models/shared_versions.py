"""Moves versions from the process that follows a run to the workers that serve it: rows in shared memory, the rest as messages.

    follower -> worker   one `Announcement` at a time, of the newest version
    worker -> follower   ("took", version) when it serves the version, ("released", version) after its last request with it

The follower writes into a version's memory again only after all workers have released it.
"""

import logging
import queue
import threading
import weakref
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.schema import Schema
from pbodl.serving.models.follower import Version, model_of
from pbodl.serving.models.predictor_source import ready
from pbodl.serving.scoring.packed_rows import PackedTable
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.whole_predictor import predictor_of
from pbodl.system.tensors import pack, unpack

logger = logging.getLogger("pbodl.serving")
TOOK, RELEASED = "took", "released"
PAGE = 4096


class Announcement(msgspec.Struct):
    """A version, as the follower announces it to a worker."""

    number: int
    published_at: float
    facts: dict[str, Any]
    kind: str
    schema: Schema
    spec: dict[str, Any]
    state: bytes  # the model without its rows
    table: dict[str, Any]
    troubles: dict[str, int]


def announce(version: Version, memory: str, troubles: Mapping[str, int]) -> bytes:
    """The announcement of a version; moves its rows into the memory folder, if they are not there yet."""
    return announcement(version, version.table.share(memory), troubles)


def announcement(version: Version, table: Mapping[str, Any], troubles: Mapping[str, int]) -> bytes:
    """A version without its rows; `table` says what there is to know about these."""
    model = version.model
    told = Announcement(
        version.number, version.published_at, version.facts, model.kind, model.schema, msgspec.to_builtins(model.spec),
        pack(model.state()), dict(table), dict(troubles),
    )  # fmt: skip
    return msgspec.msgpack.encode(told)


class Announced:
    """A worker's predictor source: the versions that the follower announces."""

    def __init__(self, follower: Connection, before: Predictor | None = None, keeps: bool = False) -> None:
        self.predictor = before  # stays in service until the first version is loaded
        self.kept: Predictor | None = None  # the one before, if it is kept, until someone sets this to None
        self._keeps = keeps
        self.troubles = {"damaged": 0, "missing": 0}
        self.changed = threading.Event()  # set when there is a predictor, or the follower has ended
        self.gone = threading.Event()  # set when the follower has ended
        self._follower = follower
        self._mapped: dict[str, NDArray] = {}
        # The last request releases a version, in any thread and at any moment: only a queue is safe to write to there.
        self._reports: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        for target in (self._listen, self._report):
            threading.Thread(target=target, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                self._take(msgspec.msgpack.decode(self._follower.recv_bytes(), type=Announcement))
                self.changed.set()
        except (EOFError, ConnectionError):
            pass
        except Exception:
            logger.exception("cannot load a version; it is tried again")
        finally:
            self.gone.set()
            self.changed.set()

    def _take(self, told: Announcement) -> None:
        self.troubles = told.troubles
        model = model_of(told.kind, told.schema, told.spec, unpack(told.state))
        table = PackedTable.attach(told.table, self._mapped)
        _touch(table)
        version = Version(told.number, model, table, told.published_at, told.facts)
        weakref.finalize(version, self._reports.put, (RELEASED, told.number))
        before = self.predictor
        self.predictor = ready(predictor_of(version), before)
        self.kept = before if self._keeps else None
        self._reports.put((TOOK, told.number))

    def end(self) -> None:
        """Close the pipe."""
        self._follower.close()

    def _report(self) -> None:
        try:
            while True:
                self._follower.send_bytes(msgspec.msgpack.encode(self._reports.get()))
        except OSError:
            self.gone.set()


def _touch(table: PackedTable) -> None:
    """Read every memory page, so that requests do not wait while the system maps them."""
    for array in table.packed():
        array.reshape(-1)[:: PAGE // array.itemsize].sum()
    table.find(np.zeros(1, np.uint64))


class ServingWorker:
    """A worker as the follower sees it: which version it was told of, and which versions it holds."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.held: dict[int, Version] = {}  # the follower does not write into their memory
        self.newest: int | None = None
        self.waiting = False  # for the worker to take the announced version

    @property
    def ready(self) -> bool:
        """Whether the worker has loaded the version that it was told of."""
        return self.newest is not None and not self.waiting

    def tell(self, version: Version, memory: str, troubles: Mapping[str, int]) -> None:
        """Announce a version, unless the worker knows it, or is still loading the one before."""
        if self.waiting or self.newest == version.number:
            return
        self.held[version.number] = version
        self.waiting, self.newest = True, version.number
        self.connection.send_bytes(announce(version, memory, troubles))

    def hear(self) -> None:
        """Receive what the worker reports."""
        while self.connection.poll():
            word, number = msgspec.msgpack.decode(self.connection.recv_bytes(), type=tuple[str, int])
            if word == TOOK:
                self.waiting = False
            else:
                self.held.pop(number, None)
