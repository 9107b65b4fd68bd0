"""Follows a model folder in parts (`publishing.parts_manifest`), and serves all of its rows, or a share of them.

All parts go from one manifest's version to that of the next together, in a table that no request sees yet: a version served has
just the rows and weights that its manifest names. The weights that are not rows come from part 0.

A share has the rows of some keys: number 0 of 4 those that shard 0 of 4 would hold. Where the shards of the trainer are a multiple
of the shares, it reads the parts that it needs, and part 0. Otherwise it reads all parts, one at a time, and keeps what is its own.
"""

import math
import os
import re
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.sharded_state import rows_at, shard_of
from pbodl.models.snapshot import Snapshot, load_share, load_without_weights
from pbodl.publishing.delta import ROWS, split
from pbodl.publishing.model_folder import DELTA, FULL, FolderEntry, ModelFolder, Publication
from pbodl.publishing.parts_manifest import PartsManifest, newest_parts
from pbodl.serving.models.follower import UNSOUND, Follower, Lagging, Version, arrays_of, model_of, without_rows
from pbodl.serving.scoring.packed_rows import PackedTable, check_served, layout_of


class RowShare(NamedTuple):
    """Share `number` of `shares` of a model's rows."""

    number: int
    shares: int

    @classmethod
    def parse(cls, text: str) -> "RowShare":
        """A share as people write it.

        >>> RowShare.parse("0/4")
        RowShare(number=0, shares=4)
        """
        found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        if found is None or not int(found[1]) < int(found[2]):
            raise InputError(f"the share is {text!r}; write NUMBER/SHARES, such as 0/4 for the first of four")
        return cls(int(found[1]), int(found[2]))

    def holds(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        return shard_of(keys, self.shares) == self.number

    def needs(self, part: int, parts: int) -> bool:
        """Whether it needs one of so many parts; part 0 has more than rows."""
        return part == 0 or (part - self.number) % math.gcd(parts, self.shares) == 0


WHOLE = RowShare(0, 1)


class FollowedPart:
    """How far a part was read: its rows by their index in the assembled table (-1: not held), and all that is not rows."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.lineage = ""
        self.places = np.zeros(0, np.int64)
        self.rest: DeepProbit | None = None

    def copy(self) -> "FollowedPart":
        twin = FollowedPart()
        twin.at, twin.lineage, twin.places, twin.rest = self.at, self.lineage, self.places, self.rest
        return twin


class PartsFollower(Follower):
    """As `Follower`, for folders in parts as well, and for a share of the rows."""

    def __init__(self, run: str | os.PathLike, share: RowShare = WHOLE) -> None:
        super().__init__(run)
        self.share = share
        self._parts: list[FollowedPart] = []
        self._tried: tuple[str, int] | None = None  # the last version that was taken, or refused

    def _look(self, entries: list[FolderEntry]) -> None:
        newest = entries[-1].version if entries else 0
        manifests = self.folder.manifests()
        if manifests and manifests[-1].version >= newest:
            self._once(manifests[-1])
        elif entries and self.share != WHOLE:
            self._once(entries[-1])
        else:
            super()._look(entries)

    def _once(self, entry: FolderEntry) -> None:
        """Serve a version, unless it was tried before: if it is not sound, the next one may be."""
        trial = self.folder.location, entry.version
        if trial == self._tried:
            return
        self._tried, self._at = trial, None
        try:
            if entry.kind in (FULL, DELTA):
                about = self.folder.read(entry).manifest
                manifest = PartsManifest(1, entry.version, [about.lineage], about.published_at, about.facts)
                folders = [self.folder]
            else:
                found = newest_parts(self.folder, entry.version)
                if found is None:
                    raise InputError("it is gone")
                manifest, count = found, len(found.lineages)
                folders = [self.folder.part(number, count) for number in range(count)]
            self.version = self._assembled(manifest, folders)
        except UNSOUND as error:
            self._lagging = None
            self._refuse(entry.name, error)

    def _assembled(self, manifest: PartsManifest, folders: list[ModelFolder]) -> Version:
        """The version of a manifest. Nothing of this follower changes before all of it is read."""
        before, count = self.version, len(folders)
        same = len(self._parts) == count and any(p.lineage == n for p, n in zip(self._parts, manifest.lineages, strict=True))
        parts = [part.copy() for part in self._parts] if same else [FollowedPart() for _ in folders]
        table = self._next_table(before) if same and before is not None else None
        taken: list[tuple[DeepProbit, NDArray[np.int64]]] = []
        replaced = table is None
        for number, (part, folder) in enumerate(zip(parts, folders, strict=True)):
            if not self.share.needs(number, count):
                continue
            chain = _chain(folder, part, manifest.version, manifest.lineages[number])
            if chain and chain[0].manifest.parent is None:
                if table is not None and len(part.places):
                    table, replaced = _without(table, parts, part), True
                part.places, part.rest = np.zeros(0, np.int64), None
            for publication in chain:
                change, rows = self._change(publication, part, table)
                if table is None:
                    check_served(change)
                    table = PackedTable(layout_of(change))
                table.change(change, rows)
                taken.append((change, rows))
        first = parts[0].rest
        assert first is not None and table is not None
        held = [part.rest.table for part in parts if part.rest is not None]
        table.evicted, table.expired = sum(one.evicted for one in held), sum(one.expired for one in held)
        if not replaced and before is not None:
            self._lagging = Lagging(before.table, weakref.ref(before), taken)
        else:
            self._lagging = None
        self._parts = parts
        return Version(manifest.version, first, table, manifest.published_at, manifest.facts)

    def _change(
        self, publication: Publication, part: FollowedPart, table: PackedTable | None
    ) -> tuple[DeepProbit, NDArray[np.int64]]:
        """The rows of a publication that this share holds, and their indices in the table. MODIFIES: part."""
        manifest, size, places, rest = publication.manifest, len(part.places), part.places, part.rest
        state = arrays_of(publication, size, lambda rows: _known(part, table, places[rows]))
        state, rows = split(state) if ROWS in state else (state, np.arange(len(state["embedding.keys"])))
        old = rows < size
        if not np.array_equal(rows[~old], size + np.arange((~old).sum())) or (rows < 0).any():
            raise InputError("its rows do not continue those before it; it belongs to another version")
        held = self.share.holds(state["embedding.keys"])
        held[old] = places[rows[old]] >= 0
        change = model_of(manifest.kind, manifest.schema, manifest.spec, rows_at(state, np.flatnonzero(held)))
        if not isinstance(change, DeepProbit):
            raise InputError(f"a {manifest.kind!r} model is only published whole")
        if rest is not None and (change.kind, change.schema, change.spec) != (rest.kind, rest.schema, rest.spec):
            raise InputError("it is a delta of another model than the publication before it")
        fresh = np.full((~old).sum(), -1, np.int64)
        end = 0 if table is None else table.size
        fresh[held[~old]] = end + np.arange(held[~old].sum())
        at = np.concatenate([places[rows[old]], fresh])
        part.places, part.rest = np.concatenate([places, fresh]), without_rows(change)
        part.at, part.lineage = manifest.version, manifest.lineage
        return change, at[held]

    def _load(self, newest: Path) -> Snapshot:
        if self.share == WHOLE:
            return super()._load(newest)
        snapshot = load_without_weights(newest)
        if not isinstance(snapshot.model, DeepProbit):
            raise InputError(f"a {snapshot.model.kind!r} model cannot be served in shares; serve it whole")
        snapshot.model.load_state(load_share(newest, *self.share))
        return snapshot


def _chain(folder: ModelFolder, part: FollowedPart, version: int, lineage: str) -> list[Publication]:
    """The publications that bring a part to a version: deltas where they suffice, or the newest full snapshot and deltas."""
    entries, failures = folder.entries(), []
    starts = [part.at] if part.at is not None and part.lineage == lineage and part.at <= version else []
    starts += [entry.version - 1 for entry in reversed(entries) if entry.kind == FULL and entry.version <= version]
    for number, start in enumerate(starts):
        from_full = number > 0 or part.at != start or part.lineage != lineage
        kinds = [FULL if from_full and at == start + 1 else DELTA for at in range(start + 1, version + 1)]
        wanted = [FolderEntry(at, kind) for at, kind in enumerate(kinds, start + 1)]
        if missing := [entry for entry in wanted if entry not in entries]:
            failures.append(f"{missing[0].name} is missing")
            continue
        try:
            found = [folder.read(entry) for entry in wanted]
        except InputError as error:
            failures.append(str(error))
            continue
        if all(publication.manifest.lineage == lineage for publication in found):
            return found
        failures.append(f"{wanted[0].name} is of another lineage")
    raise InputError(
        f"version {version} of {os.path.basename(folder.location)} cannot be read: {'; '.join(failures) or 'it is empty'}"
    )


def _known(part: FollowedPart, table: PackedTable | None, places: NDArray[np.int64]) -> State:
    """What was published of these rows of a part, and of all that is not rows; zeros for rows that are not held."""
    assert part.rest is not None and table is not None
    held, state = places >= 0, part.rest.state()
    for name, array in table.state_of(places[held]).items():
        state[name] = np.zeros((len(places), *array.shape[1:]), array.dtype)
        state[name][held] = array
    return state


def _without(table: PackedTable, parts: list[FollowedPart], gone: FollowedPart) -> PackedTable:
    """The table without the rows of one part. MODIFIES: the places of all other parts."""
    kept = np.ones(table.size, bool)
    kept[gone.places[gone.places >= 0]] = False
    moved = np.where(kept, np.cumsum(kept) - 1, -1)
    smaller = PackedTable(table.layout)
    smaller.load_state({name: array[kept] if array.ndim else array for name, array in table.state().items()})
    for part in parts:
        if part is not gone:
            part.places = np.where(part.places >= 0, moved[part.places], -1)
    return smaller
