"""Follows a model: the newest complete version of a model folder or of a run, kept up to date by deltas.

A version is immutable. The follower builds the next version in a second table, which lags one version behind, and then replaces one
reference: a request sees one version or the other, never a mixture, and never waits. The follower changes the old table again only
when no request holds its version any more; otherwise it makes a new copy.
"""

import os
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.models.contract import Model, State
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.snapshot import Snapshot, load_snapshot, snapshots
from pbodl.publishing.compact import ENCODING, decode
from pbodl.publishing.delta import ROWS, part_of, split
from pbodl.publishing.model_folder import DELTA, FULL, FolderEntry, ModelFolder, Publication
from pbodl.serving.scoring.packed_rows import PackedLayout, PackedTable, check_served

NO_ROWS = PackedLayout(vectors=1, dim=1, linear=False)  # of the table that a whole version has
PUBLISHED = "published"  # the model folder inside a run folder
# What a publication can raise whose checksum is right, but whose contents no publisher wrote.
UNSOUND = (InputError, ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError, msgspec.MsgspecError)


class Version:
    """One version of a model: its rows, packed, and the rest as a model without rows. Immutable.

    A version of a model that is no `DeepProbit` is `whole`: its model has all rows, and its table none.
    """

    def __init__(self, number: int, model: Any, table: PackedTable, published_at: float, facts: Mapping[str, Any]) -> None:
        self.number, self.model, self.table = number, model, table
        self.published_at, self.loaded_at = published_at, time.time()
        self.facts = dict(facts)

    @classmethod
    def of(
        cls, model: Model, number: int = 0, published_at: float | None = None, facts: Mapping[str, Any] | None = None
    ) -> "Version":
        """A copy of a model as it is now."""
        copy, moment = type(model).from_spec(model.schema, model.spec), time.time() if published_at is None else published_at
        if not isinstance(model, DeepProbit):
            copy.load_state(model.state())
            return cls(number, copy, PackedTable(NO_ROWS), moment, facts or {})
        check_served(model)
        copy.load_state(without_rows(model).state())
        return cls(number, copy, PackedTable.of(model), moment, facts or {})

    @classmethod
    def lent(cls, model: DeepProbit) -> "Version":
        """A model itself with its rows packed: cheaper than `of`, and good only until the model learns again."""
        return cls(0, model, PackedTable.of(model), time.time(), {})

    @property
    def whole(self) -> bool:
        """Whether the model itself has the rows."""
        return not isinstance(self.model, DeepProbit)

    @property
    def counters(self) -> dict[str, int]:
        """The model's counters, as in `model.metrics()`."""
        about = self.model.metrics()
        if self.whole:
            return about
        return about | {"features": self.table.size, "evicted": self.table.evicted, "expired": self.table.expired}


def without_rows(model: DeepProbit) -> DeepProbit:
    """A model without its rows."""
    return part_of(model, np.zeros(0, np.int64))


class Lagging(NamedTuple):
    """The table of an earlier version, and the changes that it lacks."""

    table: PackedTable
    used_by: "weakref.ref[Version]"
    missing: list[tuple[DeepProbit, NDArray[np.int64]]]


class Follower:
    """Keeps `version` at the newest of a run or a model folder; `poll` looks for newer ones.

    The follower never skips a missing or damaged delta: it waits for the next full snapshot, and serves that.
    """

    def __init__(self, run: str | os.PathLike) -> None:
        self.run = os.fspath(run)
        self.version: Version | None = None
        self.damaged = 0  # publications that were refused
        self.missing = 0  # deltas that did not exist
        self.folder = ModelFolder(self.run)
        self._at: int | None = None  # the version loaded from this folder
        self._lineage = ""  # the lineage of that version
        self._lagging: Lagging | None = None
        self._refused: set[FolderEntry] = set()
        self._snapshot: Path | None = None

    def poll(self) -> bool:
        """Load what is new; returns whether `version` changed."""
        before = self.version
        inside = Path(self.run) / PUBLISHED
        if "://" not in self.run and inside.is_dir() and self.folder.location != str(inside):
            self.folder, self._at = ModelFolder(inside), None
        self._look(self.folder.entries())
        return self.version is not before

    def _look(self, entries: list[FolderEntry]) -> None:
        if entries:
            self._follow(entries)
        elif "://" not in self.run:
            self._follow_snapshots()

    def _follow(self, entries: list[FolderEntry]) -> None:
        newest = entries[-1].version
        if self._at is not None and newest < self._at:
            self._at, self._refused = None, set()  # the folder was started anew
        while self._at is None or self._at < newest:
            following = FolderEntry(1 if self._at is None else self._at + 1, DELTA)
            if self._at is not None and following not in self._refused:
                if self.folder.has(following):
                    if self._take(following) or self._at is None:
                        continue
                elif FolderEntry(following.version, FULL) not in entries:
                    self.missing += 1
                    self._refused.add(following)
                    told = f"{following.name} of {self.folder.location} is missing; waiting for the next full snapshot"
                    warnings.warn(told, stacklevel=2)
            fulls = [entry for entry in entries if entry.kind == FULL and entry.version >= following.version]
            if not any(self._take(entry) for entry in reversed(fulls)):
                return

    def _take(self, entry: FolderEntry) -> bool:
        """Serve a publication, if it is sound."""
        if entry in self._refused:
            return False
        try:
            publication = self.folder.read(entry)
            if entry.kind == DELTA and publication.manifest.lineage != self._lineage:
                self._at = None
                raise InputError("it does not follow the publication before it: the folder was started anew")
            version = self._changed(publication) if entry.kind == DELTA else _whole(publication)
        except UNSOUND as error:
            self._refused.add(entry)
            self._refuse(entry.name, error)
            return False
        if entry.kind == FULL:
            self._lagging = None
        same = publication.manifest.lineage == self._lineage
        self._refused = {refused for refused in self._refused if same and refused.version > entry.version}
        self.version, self._at, self._lineage = version, entry.version, publication.manifest.lineage
        return True

    def _refuse(self, what: str, error: Exception) -> None:
        """Count and tell that something in the folder is not sound."""
        self.damaged += 1
        reason = str(error) if isinstance(error, InputError) else f"it is damaged ({type(error).__name__}: {error})"
        warnings.warn(f"{what} of {self.folder.location} is not served: {reason:.500}", stacklevel=3)

    def _changed(self, publication: Publication) -> Version:
        """The version after a delta."""
        before = self.version
        assert before is not None
        manifest = publication.manifest
        state, rows = split(
            arrays_of(publication, before.table.size, lambda rows: before.model.state() | before.table.state_of(rows))
        )
        part = model_of(manifest.kind, manifest.schema, manifest.spec, state)
        if not isinstance(part, DeepProbit):
            raise InputError(f"it is a delta of a {manifest.kind!r} model, which is only published whole")
        if (part.kind, part.schema, part.spec) != (before.model.kind, before.model.schema, before.model.spec):
            raise InputError("it is a delta of another model than the publication before it")
        table = self._next_table(before)
        table.change(part, rows)
        self._lagging = Lagging(before.table, weakref.ref(before), [(part, rows)])
        return Version(manifest.version, without_rows(part), table, manifest.published_at, manifest.facts)

    def _next_table(self, before: Version) -> PackedTable:
        """A table like that of the version before, to change: the one that lags behind, if nothing uses it, or a copy."""
        lagging, self._lagging = self._lagging, None
        if lagging is None or lagging.used_by() is not None:
            return before.table.copy()
        for change in lagging.missing:
            lagging.table.change(*change)
        return lagging.table

    def _follow_snapshots(self) -> None:
        """Load the newest snapshot of a run that does not publish."""
        newest = max(snapshots(self.run), default=None)
        if newest is None or newest == self._snapshot:
            return
        self._snapshot = newest
        try:
            snapshot = self._load(newest)
        except InputError as error:
            self.damaged += 1
            warnings.warn(str(error), stacklevel=2)
            return
        if self.version is None or int(snapshot.path.name) != self.version.number:
            self.version = Version.of(snapshot.model, int(snapshot.path.name), snapshot.path.stat().st_mtime)

    def _load(self, newest: Path) -> Snapshot:
        return load_snapshot(self.run)


def model_of(kind_name: str, schema: Schema, spec: Mapping[str, Any], state: Mapping[str, NDArray]) -> Model:
    """A model that can be served."""
    model = new_model(kind_name, schema, spec)
    model.load_state(state)
    return model


def new_model(kind_name: str, schema: Schema, spec: Mapping[str, Any]) -> Model:
    """A model that knows nothing yet."""
    kind = Model.kinds.get(kind_name)
    if kind is None:
        raise InputError(f"its model has kind {kind_name!r}, which this release cannot serve")
    return kind.from_spec(schema, msgspec.convert(spec, kind.Spec))


def arrays_of(publication: Publication, size: int = 0, before: Callable[[NDArray[np.int64]], State] = lambda rows: {}) -> State:
    """The arrays of a publication; those of a compact one continue what is served (`compact.decode`)."""
    manifest = publication.manifest
    if not manifest.encoding:
        return dict(publication.arrays)
    if manifest.encoding != ENCODING:
        raise InputError(f"it has the encoding {manifest.encoding!r}, which this release does not know; upgrade pbodl")
    empty = new_model(manifest.kind, manifest.schema, manifest.spec)
    if not isinstance(empty, DeepProbit):
        raise InputError(f"it is a compact publication of a {manifest.kind!r} model, which is only published exactly")
    return decode(empty, publication.arrays, size, before)


def _whole(publication: Publication) -> Version:
    manifest = publication.manifest
    state = arrays_of(publication)
    state.pop(ROWS, None)
    model = model_of(manifest.kind, manifest.schema, manifest.spec, state)
    return Version.of(model, manifest.version, manifest.published_at, manifest.facts)
