"""Snapshots: a folder with a manifest and safetensors files that holds a model and all it has learned.

    RUN/snapshots/000000000042/manifest.json      format, kind, spec, schema, extra facts, a checksum per file and its own
                               model.safetensors  the arrays of `model.state()`
                               <part>.safetensors further arrays that belong to the same moment

A snapshot is written to a temporary folder, synced, and then renamed, so it exists whole or not at all. Its number is one more than
the newest. A damaged snapshot is refused with the reason, and the one before it is used. Nothing is ever unpickled.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from numpy.typing import NDArray

from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.system.atomic_files import Piece, replacing, sync_path, write_synced
from pbodl.system.folder_lock import writing
from pbodl.system.tensors import Arrays, pieces, unpack

FORMAT = 1
KEPT = 3
MANIFEST = "manifest.json"


class Snapshot(NamedTuple):
    """A snapshot that was read and checked."""

    model: Model
    facts: dict[str, Any]  # what the writer added to the manifest
    parts: dict[str, dict[str, NDArray]]  # further arrays by part
    path: Path


def save(model: Model, run: str | Path, facts: Mapping[str, Any] | None = None, parts: Mapping[str, Arrays] | None = None) -> Path:
    """Write a snapshot into the run folder, and drop all but the newest few; returns its folder."""
    with writing(run, "model.save"):
        folder = Path(run) / "snapshots"
        folder.mkdir(parents=True, exist_ok=True)
        number = max([int(path.name) for path in snapshots(run)], default=0) + 1
        path = folder / f"{number:012d}"
        manifest = {
            "format": FORMAT,
            "kind": model.kind,
            "schema": msgspec.to_builtins(model.schema),
            "spec": msgspec.to_builtins(model.spec),
            "counters": model.metrics(),
            "facts": dict(facts or {}),
        }
        arrays: dict[str, Arrays] = {"model": model.state(), **(parts or {})}
        with replacing(path, beside=folder / f".writing-{path.name}") as beside:
            beside.mkdir()
            manifest["files"] = {f"{part}.safetensors": _write(beside / f"{part}.safetensors", own) for part, own in arrays.items()}
            manifest["checksum"] = _digest(_canonical(manifest))
            write_synced(beside / MANIFEST, json.dumps(manifest, indent=1).encode())
        for old in snapshots(run)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return path


def load(path: str | Path) -> Model:
    """Load the model of a run folder's newest sound snapshot, or of one snapshot folder.

    path  run folder (`model.save`, `pbodl train --out`), or one of its snapshots

    >>> import pbodl, tempfile
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")])
    >>> model = pbodl.FMMLP(schema, dim=2, hidden=())
    >>> with tempfile.TemporaryDirectory() as run:
    ...     _ = model.save(run)
    ...     pbodl.load(run)
    FMMLP(1 field, 0 rows learned, ...)
    """
    return load_snapshot(path).model


def load_snapshot(path: str | Path) -> Snapshot:
    """As `load`, with all that was saved beside the model."""
    path = Path(path)
    if (path / MANIFEST).exists():
        return _read(path)
    candidates = snapshots(path)
    if not candidates:
        raise InputError(f"{path} holds no snapshot; give the folder that `pbodl train --out` or `model.save` wrote")
    failures = []
    for candidate in reversed(candidates):
        try:
            snapshot = _read(candidate)
        except InputError as error:
            failures.append(str(error))
            continue
        for failure in failures:
            warnings.warn(f"{failure}; using the snapshot before it, {candidate.name}", stacklevel=2)
        return snapshot
    raise InputError(f"no snapshot of {path} is sound: {'; '.join(failures)}")


def load_numbered(run: str | Path, number: int | None) -> Snapshot:
    """The snapshot of a run with this number; the newest sound one for None."""
    if number is None:
        return load_snapshot(run)
    found = {int(path.name): path for path in snapshots(run)}
    if number not in found:
        raise InputError(f"{run} has no snapshot {number}; it has: {', '.join(map(str, found)) or 'none'}")
    return _read(found[number])


def snapshots(run: str | Path) -> list[Path]:
    """The snapshot folders of a run, oldest first."""
    return sorted(path for path in (Path(run) / "snapshots").glob("[0-9]*") if path.name.isdigit())


@contextmanager
def naming_snapshot(run: str | Path, what_to_do: str) -> Iterator[None]:
    """Within the block, an error that no input can put right gets a note: which snapshot is the last, and what to do with it."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if found := snapshots(run):
            error.add_note(f"the last snapshot, {found[-1]}, is intact; {what_to_do}")
        raise


def rollback(run: str | Path) -> tuple[Path, Path]:
    """Set the newest snapshot aside; returns where it went, and the snapshot that is the newest now."""
    if len(snapshots(run)) < 2:
        raise InputError(f"{run} has {len(snapshots(run))} snapshot(s); going back needs at least two")
    with writing(run, "pbodl rollback"):
        *_, before, newest = snapshots(run)
        aside = newest.with_name(f"rolled-back-{newest.name}")
        shutil.rmtree(aside, ignore_errors=True)
        newest.rename(aside)
        sync_path(aside.parent)
    return aside, before


def _read(path: Path) -> Snapshot:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        if manifest["format"] > FORMAT:
            raise InputError(f"its format is {manifest['format']}, and this release reads up to {FORMAT}: upgrade pbodl")
        if manifest.pop("checksum") != _digest(_canonical(manifest)):
            raise InputError(f"{MANIFEST} does not match its own checksum; it was damaged or changed")
        contents = {name: _checked(path / name, written) for name, written in manifest["files"].items()}
        arrays = {name.removesuffix(".safetensors"): unpack(content) for name, content in contents.items()}
        facts = manifest["facts"]
        if manifest["kind"] not in Model.kinds:
            raise InputError(f"its model is of kind {manifest['kind']!r}; this release knows: {', '.join(Model.kinds)}")
        kind = Model.kinds[manifest["kind"]]
        schema = msgspec.convert(manifest["schema"], Schema)
        model = kind.from_spec(schema, msgspec.convert(manifest["spec"], kind.Spec))
        model.load_state(arrays.pop("model"))
        model.run = path.parent.parent
    except InputError as error:
        raise InputError(f"snapshot {path} is refused: {error}") from error
    except (OSError, KeyError, ValueError, TypeError, msgspec.ValidationError) as error:
        raise InputError(f"snapshot {path} is damaged ({type(error).__name__}: {error})") from error
    return Snapshot(model, facts, arrays, path)


def _write(path: Path, arrays: Arrays) -> dict[str, Any]:
    """Write a safetensors file while another thread works out its checksum; returns what the manifest says about it."""
    content = pieces(arrays)
    with ThreadPoolExecutor(1) as hashing:
        digest = hashing.submit(_digest, *content)
        write_synced(path, *content)
        return {"bytes": path.stat().st_size, "blake2b": digest.result()}


def _checked(path: Path, written: Mapping[str, Any]) -> bytes:
    content = path.read_bytes()
    if len(content) != written["bytes"] or _digest(content) != written["blake2b"]:
        raise InputError(f"{path.name} does not match its checksum in the manifest; it was damaged or changed")
    return content


def _canonical(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest, sort_keys=True).encode()


def _digest(*pieces: Piece) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
