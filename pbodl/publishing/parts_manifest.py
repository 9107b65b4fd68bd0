"""A model folder in parts: every shard of a cluster publishes its own rows, and a manifest says what belongs together.

    000000000043.parts              the manifest of version 43: the lineage of every part
    part-0-of-4/000000000042.full   what shard 0 publishes: its rows, and everything that is not rows
    part-0-of-4/000000000043.delta
    part-1-of-4/...                 what shard 1 publishes: its rows

A manifest is written after all its parts. Servers look for the newest manifest, and take of every part just that version and that
lineage: what a shard wrote for a version that was given up, or after it was taken for dead, is in no manifest.
"""

import hashlib
import json
from typing import Any

import msgspec

from pbodl.errors import InputError
from pbodl.publishing.model_folder import PARTS, FolderEntry, ModelFolder

FORMAT = 1
KEPT = 3  # manifests that stay


class PartsManifest(msgspec.Struct, frozen=True):
    """What belongs to a version."""

    format: int
    version: int
    lineages: list[str]  # of the parts
    published_at: float  # seconds since 1970
    facts: dict[str, Any]


def write_parts(folder: ModelFolder, version: int, lineages: list[str], published_at: float, facts: dict[str, Any]) -> None:
    """Write the manifest of a version whose parts are all there, and remove what no server needs any more."""
    manifest = msgspec.to_builtins(PartsManifest(FORMAT, version, lineages, published_at, facts))
    folder.put(FolderEntry(version, PARTS), json.dumps(manifest | {"checksum": _digest(manifest)}).encode())
    for entry in folder.manifests()[:-KEPT]:
        old = newest_parts(folder, entry.version)
        folder.remove(entry)
        if old is not None and len(old.lineages) != len(lineages):
            folder.remove_parts(other_than=len(lineages))


def newest_parts(folder: ModelFolder, version: int | None = None) -> PartsManifest | None:
    """The newest manifest of a folder, or that of a version; None if there is none. InputError if it is damaged."""
    found = [entry for entry in folder.manifests() if version is None or entry.version == version]
    return folder.parsed(found[-1], _parse) if found else None


def newest_version(folder: ModelFolder, parts: int) -> int:
    """The newest version that anything in a folder has, a part without a manifest included; 0 if there is none."""
    folders = [folder, *(folder.part(number, parts) for number in range(parts))]
    entries = [entry for one in folders for entry in (*one.entries(), *one.manifests())]
    return max((entry.version for entry in entries), default=0)


def _parse(content: memoryview, entry: FolderEntry) -> PartsManifest:
    told: dict[str, Any] = json.loads(bytes(content))
    if told["format"] > FORMAT:
        raise InputError(f"its format is {told['format']}, and this release reads formats up to {FORMAT}; upgrade pbodl")
    if told.pop("checksum") != _digest(told):
        raise InputError("it does not match its checksum; it was damaged or changed")
    manifest = msgspec.convert(told, PartsManifest)
    if manifest.version != entry.version or not manifest.lineages:
        raise InputError(f"it is the manifest of version {manifest.version}, which does not match its name")
    return manifest


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(manifest, sort_keys=True).encode(), digest_size=16).hexdigest()
