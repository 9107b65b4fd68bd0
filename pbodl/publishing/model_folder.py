"""A model folder, in which a trainer publishes and which servers follow: a local path, or an address such as s3://bucket/models/live.

    000000000042.full    the whole state after version 42
    000000000043.delta   what changed from version 42 to 43
    000000000044.delta   ...

A file is one publication: a checksum, a manifest (format, version, parent, lineage, kind, schema, spec, counters, time), and the
arrays in the safetensors format. It appears whole or not at all, locally (`system.atomic_files`) as in object stores. Nothing is
ever unpickled.

The shards of a cluster publish each into a folder of its own in this one; `parts_manifest` says what belongs together.
"""

import contextlib
import copy
import hashlib
import json
import os
import re
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs

from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.models.deep_probit import DeepProbit
from pbodl.system.addresses import refuse_secrets
from pbodl.system.atomic_files import write_file
from pbodl.system.tensors import pack, views

FORMAT, EXACT = 2, 1  # a compact publication has the format 2, an exact one 1
MAGIC = b"PBODLpub"
HEAD = struct.Struct("<8s16sQ")  # magic, checksum of all that follows it, length of the manifest
FULL, DELTA, PARTS = "full", "delta", "parts"
T = TypeVar("T")


class FolderEntry(NamedTuple):
    """A file of the folder."""

    version: int
    kind: str  # "full" or "delta"; "parts" for what `parts_manifest` writes

    @property
    def name(self) -> str:
        return f"{self.version:012d}.{self.kind}"


class Manifest(msgspec.Struct, frozen=True):
    """What a publication says about itself."""

    format: int
    version: int
    parent: int | None  # the version that a delta changes
    lineage: str  # the publisher's: a delta only follows publications of the same lineage
    kind: str
    schema: Schema
    spec: dict[str, Any]  # by the names of its kind's parameters
    counters: dict[str, int]
    published_at: float  # seconds since 1970
    facts: dict[str, Any]
    encoding: str = ""  # how the arrays are to be read: as they are, or as `publishing.compact` has them


class Publication(NamedTuple):
    """A publication that was read and checked."""

    manifest: Manifest
    arrays: dict[str, NDArray]


class ModelFolder:
    """The publications of a model."""

    def __init__(self, location: str | os.PathLike) -> None:
        self.location = os.fspath(location)
        refuse_secrets(self.location, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a profile")
        if "://" in self.location:
            try:
                self._files, self._root = fs.FileSystem.from_uri(self.location)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise InputError(f"cannot use the address {self.location!r}: {error}") from error
        else:
            self._files, self._root = fs.LocalFileSystem(), os.path.abspath(self.location)

    @property
    def local_path(self) -> Path | None:
        """The folder on this machine, however it was named; None for a folder of another."""
        return Path(self._root) if isinstance(self._files, fs.LocalFileSystem) else None

    def entries(self) -> list[FolderEntry]:
        """The files of the folder, oldest first; for the same version, the delta first."""
        return self._entries(FULL, DELTA)

    def manifests(self) -> list[FolderEntry]:
        """The manifests of parts, oldest first."""
        return self._entries(PARTS)

    def _entries(self, *kinds: str) -> list[FolderEntry]:
        found = self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        names = [re.fullmatch(rf"(\d+)\.({'|'.join(kinds)})", info.base_name) for info in found if info.type == fs.FileType.File]
        return sorted(FolderEntry(int(name[1]), name[2]) for name in names if name is not None)

    def part(self, number: int, parts: int) -> "ModelFolder":
        """The folder of one of so many parts."""
        part = copy.copy(self)
        part.location, part._root = (f"{place}/part-{number}-of-{parts}" for place in (self.location, self._root))
        return part

    def remove_parts(self, other_than: int) -> None:
        """Remove the folders of all parts, unless there are so many."""
        for info in self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True)):
            name = re.fullmatch(r"part-\d+-of-(\d+)", info.base_name)
            if info.type == fs.FileType.Directory and name is not None and int(name[1]) != other_than:
                with contextlib.suppress(OSError):
                    self._files.delete_dir(info.path)

    def has(self, entry: FolderEntry) -> bool:
        return self._files.get_file_info(self._path(entry)).type == fs.FileType.File

    def write(
        self, entry: FolderEntry, lineage: str, model: DeepProbit, state: Mapping[str, NDArray], facts: Mapping[str, Any],
        encoding: str = "", counters: Mapping[str, int] | None = None, published_at: float | None = None,
    ) -> int:  # fmt: skip
        """Publish a state or a delta of a model; returns its bytes. Counters and time may be of another moment."""
        parent = entry.version - 1 if entry.kind == DELTA else None
        manifest = Manifest(
            FORMAT if encoding else EXACT,
            entry.version,
            parent,
            lineage,
            model.kind,
            model.schema,
            msgspec.to_builtins(model.spec),
            dict(model.metrics() if counters is None else counters),
            time.time() if published_at is None else published_at,
            dict(facts),
            encoding,
        )
        text = msgspec.json.encode(manifest)
        text += b" " * (-len(text) % 8)
        payload = pack(state)
        digest = hashlib.blake2b(text, digest_size=16)
        digest.update(payload)
        self.put(entry, HEAD.pack(MAGIC, digest.digest(), len(text)), text, payload)
        return HEAD.size + len(text) + len(payload)

    def put(self, entry: FolderEntry, *pieces: bytes) -> None:
        """Write a file."""
        self._files.create_dir(self._root, recursive=True)
        if (local := self.local_path) is not None:
            write_file(self._path(entry), *pieces, beside=local / f".writing-{entry.name}")
        else:
            with self._files.open_output_stream(self._path(entry)) as stream:
                for piece in pieces:
                    stream.write(piece)

    def read(self, entry: FolderEntry) -> Publication:
        """Read and check a publication; InputError if it is damaged or missing."""
        return self.parsed(entry, _parse)

    def parsed(self, entry: FolderEntry, parse: Callable[[memoryview, FolderEntry], T]) -> T:
        """What `parse` makes of a file; InputError if it is damaged or missing."""
        try:
            # Read, not mapped: truncating a mapped file would kill this process.
            with self._files.open_input_file(self._path(entry)) as file:
                return parse(memoryview(file.read_buffer()), entry)
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, struct.error, pa.ArrowException, msgspec.ValidationError) as error:
            raise InputError(f"it is damaged or missing ({type(error).__name__}: {error})") from error

    def remove(self, entry: FolderEntry) -> None:
        with contextlib.suppress(OSError):
            self._files.delete_file(self._path(entry))

    def _path(self, entry: FolderEntry) -> str:
        return f"{self._root}/{entry.name}"


def _parse(content: memoryview, entry: FolderEntry) -> Publication:
    magic, digest, length = HEAD.unpack_from(content)
    if magic != MAGIC:
        raise InputError("it is not a publication of a model")
    body = content[HEAD.size :]
    if hashlib.blake2b(body, digest_size=16).digest() != digest:
        raise InputError("it does not match its checksum; it was damaged or changed")
    told = json.loads(bytes(body[:length]))
    if told["format"] > FORMAT:
        raise InputError(f"its format is {told['format']}, and this release reads formats up to {FORMAT}; upgrade pbodl")
    manifest = msgspec.convert(told, Manifest)
    if manifest.version != entry.version or (manifest.parent is not None) != (entry.kind == DELTA):
        raise InputError(f"it holds version {manifest.version}, which does not match its name")
    return Publication(manifest, views(body[length:]))
