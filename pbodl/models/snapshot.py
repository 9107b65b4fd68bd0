"""Snapshots: a folder with a manifest and safetensors files that holds a model and all it has learned.

    RUN/snapshots/000000000042/manifest.json      format, kind, spec, schema, extra facts, a checksum per file and its own
                               model.safetensors  the arrays of `model.state()`
                               <part>.safetensors further arrays that belong to the same moment

The model of a cluster is in several files, one for each shard, which the shards write themselves: `shard-0.safetensors`, ...
Whoever loads such a snapshot gets the whole model. A cluster of any number of shards can continue from it (`load_share`).

A snapshot is written to a temporary folder, synced, and then renamed, so it exists whole or not at all. Its number is one more than
the newest. A damaged snapshot is refused with the reason, and the one before it is used. Nothing is ever unpickled.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from numpy.typing import NDArray

from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.models.contract import Model, State
from pbodl.models.sharded_state import joined, share_of
from pbodl.system.atomic_files import Piece, replacing, sync_path, write_synced
from pbodl.system.folder_lock import writing
from pbodl.system.tensors import Arrays, pieces, unpack

FORMAT, WHOLE = 2, 1  # a snapshot in shards has the format 2, any other has 1
KEPT = 3
MODEL = "model"
MANIFEST, ENDING = "manifest.json", ".safetensors"
SHARDS = "shards"  # the fact that says how many shards wrote the model
T = TypeVar("T")


class Snapshot(NamedTuple):
    """A snapshot that was read and checked."""

    model: Model
    facts: dict[str, Any]  # what the writer added to the manifest
    parts: dict[str, dict[str, NDArray]]  # further arrays by part
    path: Path
    counters: dict[str, int]  # of the model

    @property
    def shards(self) -> int:
        """How many shards wrote the model; 1 if none did."""
        return max(int(self.facts.get(SHARDS, 1)), 1)


class WrittenShards(NamedTuple):
    """What a cluster has written into the folder of a snapshot."""

    shards: int
    counters: dict[str, int]  # of the whole model
    facts: Mapping[str, Any]
    files: dict[str, dict[str, Any]]  # for every part what `write_part` returned


def save(model: Model, run: str | Path, facts: Mapping[str, Any] | None = None, parts: Mapping[str, Arrays] | None = None) -> Path:
    """Write a snapshot into the run folder, and drop all but the newest few; returns its folder."""
    arrays: dict[str, Arrays] = {MODEL: model.state(), **(parts or {})}

    def write(folder: Path) -> WrittenShards:
        files = {part: _write(folder / _file(part), own) for part, own in arrays.items()}
        return WrittenShards(0, model.metrics(), facts or {}, files)

    return save_written(model, run, write)


def save_written(model: Model, run: str | Path, write: Callable[[Path], WrittenShards]) -> Path:
    """As `save`, of a model whose shards write themselves: `write` lets them do so into a folder, each with `write_part`.

    model  says what kind of model it is; its weights do not matter
    """
    with writing(run, "model.save"):
        folder = Path(run) / "snapshots"
        folder.mkdir(parents=True, exist_ok=True)
        number = max([int(path.name) for path in snapshots(run)], default=0) + 1
        path = folder / f"{number:012d}"
        with replacing(path, beside=folder / f".writing-{path.name}") as beside:
            beside.mkdir()
            written = write(beside)
            manifest = {
                "format": FORMAT if written.shards else WHOLE,
                "kind": model.kind,
                "schema": msgspec.to_builtins(model.schema),
                "spec": msgspec.to_builtins(model.spec),
                "counters": written.counters,
                "facts": dict(written.facts) | ({SHARDS: written.shards} if written.shards else {}),
                "files": {_file(part): about for part, about in written.files.items()},
            }
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


def load_share(path: str | Path, number: int, shards: int) -> State:
    """The state of shard `number` of `shards` from one snapshot folder, whatever the number of shards that wrote it."""
    path = Path(path)

    def read() -> State:
        manifest = _manifest(path)
        parts = [shard_part(n) for n in range(manifest["facts"].get(SHARDS, 0))] or [MODEL]
        # One file at a time: all of them together may be larger than this machine.
        own = [share_of([_part(path, manifest, part)], number, shards) for part in parts]
        return share_of(own, number, shards)

    return _refusing(path, read)


def load_without_weights(path: str | Path) -> Snapshot:
    """One snapshot folder, with an empty model: for those who leave the weights to shards."""
    return _read(Path(path), weights=False)


def load_parts(path: str | Path, parts: Iterable[str]) -> tuple[dict[str, Any], dict[str, dict[str, NDArray]]]:
    """The facts of one snapshot folder, and of these parts those that it has."""
    path = Path(path)

    def read() -> tuple[dict[str, Any], dict[str, dict[str, NDArray]]]:
        manifest = _manifest(path)
        return manifest["facts"], {part: _part(path, manifest, part) for part in parts if _file(part) in manifest["files"]}

    return _refusing(path, read)


def shard_part(number: int) -> str:
    """The part of a snapshot that a shard writes."""
    return f"shard-{number}"


def write_part(folder: str | Path, part: str, arrays: Arrays) -> dict[str, Any]:
    """Write a part of a snapshot into its folder; returns what the manifest says about it. Starts no thread."""
    content = pieces(arrays)
    path = Path(folder) / _file(part)
    write_synced(path, *content)
    return {"bytes": path.stat().st_size, "blake2b": _digest(*content)}


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
        raise InputError(f"{run} has {'one snapshot' if snapshots(run) else 'no snapshot'}; going back needs at least two")
    with writing(run, "pbodl rollback"):
        *_, before, newest = snapshots(run)
        aside = newest.with_name(f"rolled-back-{newest.name}")
        shutil.rmtree(aside, ignore_errors=True)
        newest.rename(aside)
        sync_path(aside.parent)
    return aside, before


def drop_newest(run: str | Path) -> None:
    """Drop the newest snapshot, which turned out to be void; there must be one before it."""
    with writing(run, "model.save"):
        _, newest = snapshots(run)[-2:]
        aside = newest.with_name(f".writing-void-{newest.name}")
        newest.rename(aside)
        sync_path(aside.parent)
        shutil.rmtree(aside)


def _read(path: Path, weights: bool = True) -> Snapshot:
    return _refusing(path, lambda: _checked_snapshot(path, weights))


def _refusing(path: Path, read: Callable[[], T]) -> T:
    """What `read` returns; InputError, with the reason, if the snapshot is not sound."""
    try:
        return read()
    except InputError as error:
        raise InputError(f"snapshot {path} is refused: {error}") from error
    except (OSError, KeyError, ValueError, TypeError, msgspec.ValidationError) as error:
        raise InputError(f"snapshot {path} is damaged ({type(error).__name__}: {error})") from error


def _checked_snapshot(path: Path, weights: bool) -> Snapshot:
    manifest = _manifest(path)
    facts = manifest["facts"]
    if manifest["kind"] not in Model.kinds:
        raise InputError(f"its model is of kind {manifest['kind']!r}; this release knows: {', '.join(Model.kinds)}")
    kind = Model.kinds[manifest["kind"]]
    model = kind.from_spec(msgspec.convert(manifest["schema"], Schema), msgspec.convert(manifest["spec"], kind.Spec))
    of_model = [shard_part(number) for number in range(facts.get(SHARDS, 0))] or [MODEL]
    if weights:
        model.load_state(joined([_part(path, manifest, part) for part in of_model]))
    model.run = path.parent.parent
    others = [name.removesuffix(ENDING) for name in manifest["files"] if name.removesuffix(ENDING) not in of_model]
    parts = {part: _part(path, manifest, part) for part in others}
    return Snapshot(model, facts, parts, path, manifest.get("counters", {}))


def _manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((path / MANIFEST).read_bytes())
    if manifest["format"] > FORMAT:
        raise InputError(f"its format is {manifest['format']}, and this release reads up to {FORMAT}: upgrade pbodl")
    if manifest.pop("checksum") != _digest(_canonical(manifest)):
        raise InputError(f"{MANIFEST} does not match its own checksum; it was damaged or changed")
    return manifest


def _part(path: Path, manifest: Mapping[str, Any], part: str) -> dict[str, NDArray]:
    return unpack(_checked(path / _file(part), manifest["files"][_file(part)]))


def _file(part: str) -> str:
    return f"{part}{ENDING}"


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
