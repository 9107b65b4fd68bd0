"""How a version gets from the process that follows a run to the workers that serve it: rows by shared memory, the rest by message.

    follower -> worker   one `Announcement` at a time, the newest there is
    worker -> follower   ("took", version) when it serves it, ("released", version) when its last request with it is done

A worker's word that it released a version is what lets the follower write into that version's memory again.
"""

import logging
import os
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
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.spec import DeepSpec
from pbodl.serving.follower import Version
from pbodl.serving.predictor_source import ready
from pbodl.serving.scoring.packed_rows import PackedTable
from pbodl.serving.scoring.predictor import Predictor
from pbodl.system.tensors import pack, unpack

logger = logging.getLogger("pbodl.serving")
TOOK, RELEASED = "took", "released"
PAGE = 4096


class Announcement(msgspec.Struct):
    """A version, as a worker is told of it."""

    number: int
    published_at: float
    facts: dict[str, Any]
    kind: str
    schema: Schema
    spec: DeepSpec
    state: bytes  # of the model without its rows
    table: dict[str, Any]
    troubles: dict[str, int]


def announce(version: Version, memory: str, troubles: Mapping[str, int]) -> bytes:
    """The announcement of a version; its rows move into the memory folder, if they are not there yet."""
    model = version.model
    told = Announcement(
        version.number, version.published_at, version.facts, model.kind, model.schema, model.spec,
        pack(model.state()), version.table.share(memory), dict(troubles),
    )  # fmt: skip
    return msgspec.msgpack.encode(told)


class Announced:
    """A worker's source: what the follower announces, one version after the other."""

    def __init__(self, follower: Connection) -> None:
        self.predictor: Predictor | None = None
        self.troubles = {"damaged": 0, "missing": 0}
        self.changed = threading.Event()  # there is a predictor, or the follower is gone
        self.gone = threading.Event()  # nothing more will come
        self._follower = follower
        self._mapped: dict[str, NDArray] = {}
        # Versions are released from wherever the last request drops them: only a queue may be written to from there.
        self._words: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        for target in (self._listen, self._speak):
            threading.Thread(target=target, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                self._take(msgspec.msgpack.decode(self._follower.recv_bytes(), type=Announcement))
                self.changed.set()
        except (EOFError, ConnectionError):
            pass
        except Exception:
            logger.exception("a version could not be taken in; this worker ends, and another takes its place")
        finally:
            self.gone.set()
            self.changed.set()

    def _take(self, told: Announcement) -> None:
        self.troubles = told.troubles
        kind = Model.kinds[told.kind]
        if not issubclass(kind, DeepProbit):
            raise InputError(f"a {told.kind!r} model cannot be served")
        model = kind.from_spec(told.schema, told.spec)
        model.load_state(unpack(told.state))
        table = PackedTable.attach(told.table, self._mapped)
        _touch(table)
        version = Version(told.number, model, table, told.published_at, told.facts)
        weakref.finalize(version, self._words.put, (RELEASED, told.number))
        self.predictor = ready(Predictor(version), self.predictor)
        self._words.put((TOOK, told.number))

    def _speak(self) -> None:
        try:
            while True:
                self._follower.send_bytes(msgspec.msgpack.encode(self._words.get()))
        except OSError:
            self.gone.set()


def _touch(table: PackedTable) -> None:
    """Visit every page, so that requests do not wait while the system maps them."""
    for array in table.packed():
        array.reshape(-1)[:: PAGE // array.itemsize].sum()
    table.find(np.zeros(1, np.uint64))


class ServingWorker:
    """A worker as the follower sees it: what it was told, and which versions it holds."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.held: dict[int, Version] = {}  # while it is here, its memory is left alone
        self.newest: int | None = None
        self._waiting = False  # for it to take what it was told

    def tell(self, version: Version, memory: str, troubles: Mapping[str, int]) -> None:
        """Announce a version, unless the worker knows it, or is not through with the one before."""
        if self._waiting or self.newest == version.number:
            return
        self.held[version.number] = version
        self._waiting, self.newest = True, version.number
        self.connection.send_bytes(announce(version, memory, troubles))

    def hear(self) -> list[int]:
        """Take in what the worker says; the versions that it took."""
        took = []
        while self.connection.poll():
            word, number = msgspec.msgpack.decode(self.connection.recv_bytes(), type=tuple[str, int])
            if word == TOOK:
                self._waiting = False
                took.append(number)
            else:
                self.held.pop(number, None)
        return took


def memory_folder() -> str:
    """Where files are memory: the system's own place for it, or the temporary folder."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else os.environ.get("TMPDIR", "/tmp")
