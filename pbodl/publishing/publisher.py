"""Publishing: a trainer writes what it has learned to a model folder, a delta every few seconds, a full snapshot now and then.

Servers follow the deltas; they read a full snapshot when they start, or after a delta was lost. A full snapshot and the deltas
since then give the trainer's state: bit for bit if they are exact, or rounded to the lattice (`compact`) in far fewer bytes.
"""

import os
import secrets
import time
import weakref
from collections.abc import Callable, Mapping
from time import time as time_of_day
from typing import Any

import numpy as np

from pbodl.errors import InputError
from pbodl.models.contract import Model, State
from pbodl.models.deep_probit import DeepProbit
from pbodl.publishing.compact import ENCODING, PublishedWeights
from pbodl.publishing.delta import ROWS, changes, mark, moved
from pbodl.publishing.model_folder import DELTA, FULL, FolderEntry, ModelFolder
from pbodl.system.folder_lock import FolderLock

EVERY = 2.0
FULL_EVERY = 300.0
KEPT = 2  # full snapshots that stay, with the deltas since the older one: a slow server may still read them


class Publisher:
    """Publishes a model to a folder, a local path or an address such as s3://bucket/models/live.

    model       the model, which keeps learning
    folder      where to publish; version numbers continue from the newest one there
    every       seconds between publications of `publish_when_due`
    full_every  seconds between full snapshots; another reason for one are deltas as large as the last one, or dropped rows
    compact     round weights to a small part of their standard deviation, and publish differences; takes eight bytes per weight
    alone       lock the folder; otherwise the caller does

    >>> import pbodl, tempfile
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")])
    >>> model = pbodl.FMMLP(schema, dim=2, hidden=())
    >>> _ = model.learn([{"ad": n, "click": 0} for n in range(100)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     publisher = Publisher(model, folder)
    ...     first = publisher.publish()
    ...     _ = model.learn([{"ad": "a", "click": 1}])
    ...     first, publisher.publish(), sorted(os.listdir(folder))
    (1, 2, ['.lock', '000000000001.full', '000000000002.delta'])
    """

    def __init__(
        self, model: Model, folder: str | os.PathLike | ModelFolder, *, every: float = EVERY, full_every: float = FULL_EVERY,
        compact: bool = False, alone: bool = True,
    ) -> None:  # fmt: skip
        if not isinstance(model, DeepProbit):
            raise InputError(f"a {type(model).__name__} cannot be published; publish one of the deep probit models, such as PairFM")
        self.model, self.folder = model, folder if isinstance(folder, ModelFolder) else ModelFolder(folder)
        local = self.folder.local_path
        lock = FolderLock(local, "publishing a model") if local is not None and alone else None
        self.close: Callable[[], object] = lambda: None  # lets another process publish there; also when this object is forgotten
        if lock is not None:
            self.close = weakref.finalize(self, lock.release)
        self.every, self.full_every = every, full_every
        self.version = max((entry.version for entry in self.folder.entries()), default=0)
        self.lineage = secrets.token_hex(8)
        self._mark = mark(model)
        self._full_bytes = self._delta_bytes = 0
        self._compact, self._sent = compact, PublishedWeights()
        self._published_at = self._full_at = float("-inf")

    def publish(self, facts: Mapping[str, Any] | None = None, full: bool = False) -> int:
        """Publish what was learned since the last time, if anything; returns the newest version in the folder.

        facts  further plain data for the manifest
        full   write a full snapshot in any case, because something else than learning changed the model
        """
        if self.model.rows_learned == self._mark.rows_learned and self._full_bytes and not full:
            self._published_at = time.monotonic()
            return self.version
        self.begin(self.version + 1, facts, full)()
        return self.version

    def begin(self, version: int, facts: Mapping[str, Any] | None = None, full: bool = False) -> Callable[[], None]:
        """Copy what there is to publish; the function that is returned writes it, and may do so while the model learns on.

        A version that does not follow the last one is written as a full snapshot.
        """
        model, self._published_at = self.model, time.monotonic()
        follows = self._full_bytes > 0 and not full and version == self.version + 1 and not moved(model, self._mark)
        due = self._published_at - self._full_at >= self.full_every or self._delta_bytes >= self._full_bytes
        delta = changes(model, self._mark) if follows else None
        whole = model.state() if due or not follows else None
        taken, moment = mark(model), self._published_at
        about = facts, model.metrics(), time_of_day()  # delta and full snapshot of a version say the same

        def write() -> None:
            if delta is not None:
                self._delta_bytes += self._write(FolderEntry(version, DELTA), delta, *about)
                # Servers may have this delta now: even if the full snapshot fails, the next delta must start here.
                self.version, self._mark = version, taken
            if whole is not None:
                self._full_bytes = self._write(FolderEntry(version, FULL), whole, *about)
                self._delta_bytes, self._full_at = 0, moment
                self.version, self._mark = version, taken
            self._remove_old()

        return write

    def _write(
        self, entry: FolderEntry, state: State, facts: Mapping[str, Any] | None, counters: Mapping[str, int], now: float
    ) -> int:
        """Write a publication; returns its bytes. What could not be written is not what servers have."""
        if not self._compact:
            return self.folder.write(entry, self.lineage, self.model, state, facts or {}, "", counters, now)
        sent = self._sent
        if (rows := state.get(ROWS)) is None:
            sent, rows = PublishedWeights(), np.arange(len(state["embedding.keys"]))
        arrays, done = sent.encode(self.model, state, rows)
        written = self.folder.write(entry, self.lineage, self.model, arrays, facts or {}, ENCODING, counters, now)
        done()
        self._sent = sent
        return written

    def publish_when_due(self, facts: Mapping[str, Any] | None = None) -> int | None:
        """`publish`, if it is time."""
        return self.publish(facts) if self.is_due else None

    @property
    def is_due(self) -> bool:
        """Whether `every` seconds have passed since the last time."""
        return time.monotonic() - self._published_at >= self.every

    def _remove_old(self) -> None:
        entries = self.folder.entries()
        fulls = [entry.version for entry in entries if entry.kind == FULL]
        for entry in entries:
            if len(fulls) >= KEPT and entry.version < fulls[-KEPT]:
                self.folder.remove(entry)
