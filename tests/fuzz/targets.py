"""What the fuzzers run: every reader of foreign bytes, with an oracle that needs no expected output.

The scanners must agree with the general readers. Readers of files must give a model, or an `InputError`. Checksums are made right
here, because no fuzzer would ever get past them.
"""

import atexit
import hashlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

import pbodl
from pbodl.data.log.lines import LineBlock
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.snapshot import MANIFEST, load_snapshot
from pbodl.publishing.delta import changes, mark
from pbodl.publishing.model_folder import DELTA, FULL, HEAD, MAGIC, FolderEntry, ModelFolder
from pbodl.serving.models.follower import Follower
from pbodl.serving.web.http_messages import JSON, MSGPACK, RequestError, Wire
from pbodl.streaming.events import EventDecoder
from pbodl.system.process_memory import memory_folder
from pbodl.system.tensors import pack, unpack

FIELDS = [Field("user", group="user"), Field("site"), Field("ad", group="ad"), Field("brand", group="ad")]
SCHEMA = Schema(label="click", fields=FIELDS)
MIXED = Schema(
    label="click", time="time", fields=[*FIELDS, Field("tags", group="ad", kind="multi"), Field("price", group="ad", kind="number")]
)
WIRE, MIXED_WIRE = Wire(SCHEMA), Wire(MIXED)
EVENTS = Schema(label="click", time="time", fields=[Field("user"), Field("ad")])
PLAIN_EVENTS, ALL_EVENTS = EventDecoder(EVENTS), EventDecoder(MIXED)


def _kind(is_json: bool) -> str:
    return JSON if is_json else MSGPACK[0]


def _body(data: bytes, is_json: bool) -> None:
    """The scan of a body gives what the general reader gives, or leaves it alone; the general reader only raises RequestError."""
    listed = WIRE._scanners[is_json].read(data)
    if listed is None:
        return
    rest = data[: listed.begin] + (b"[]" if is_json else b"\x90") + data[listed.end :]
    try:
        WIRE._read(rest, _kind(is_json))
    except RequestError:
        return
    general = WIRE._encoder.encode_own(WIRE._read(data, _kind(is_json)).own)
    np.testing.assert_array_equal(listed.keys, general.keys)


def body_json(data: bytes) -> None:
    _body(data, True)


def body_msgpack(data: bytes) -> None:
    _body(data, False)


def request(data: bytes) -> None:
    """Any body is a request or a RequestError with a short text; the values of a request can be encoded, or are an InputError."""
    is_json, body = data[:1] != b"m", data[1:]
    for wire in (WIRE, MIXED_WIRE):
        try:
            parsed = wire.read(body, _kind(is_json))
        except RequestError as error:
            assert 400 <= error.status < 500
            assert len(error.body()) < 4000
            continue
        try:
            wire._encoder.encode_shared(parsed.shared)
            if isinstance(parsed.own, list):
                wire._encoder.encode_own(parsed.own)
        except InputError:
            continue


def _events(contents: list[bytes] | LineBlock) -> None:
    """The scan of messages or lines gives what the general reader gives, or leaves them alone."""
    scanned = PLAIN_EVENTS._plain.scan(contents)
    if scanned is None:
        return
    ref = PLAIN_EVENTS._closer(contents)
    assert not ref.bad
    for comp, expected in zip((*scanned[:3], *scanned[3]), (ref.kinds, ref.ids, ref.times, *ref.rows), strict=True):
        np.testing.assert_array_equal(comp, expected)


def _line_block(data: bytes) -> LineBlock:
    whole = data.removesuffix(b"\n") + b"\n"
    ends = [0, *(place + 1 for place, byte in enumerate(whole) if byte == 10)]
    return LineBlock(whole, np.array(ends, np.int64))


def events(data: bytes) -> None:
    if data:
        _events([data])


def lines(data: bytes) -> None:
    _events(_line_block(data))


def decoder(data: bytes) -> None:
    """Any messages or lines become events and bad events, and nothing is raised; a message ends at every byte 0x01."""
    for contents in (data.split(b"\x01"), _line_block(data)):
        found = ALL_EVENTS.decode(contents)
        assert len(found.kinds) == len(found.ids) == len(found.times)
        assert np.isfinite(found.times).all()


def tensors(data: bytes) -> None:
    """Bytes are arrays, which pack into bytes again, or an InputError."""
    try:
        arrays = unpack(data)
    except InputError:
        return
    for name, array in unpack(pack(arrays)).items():
        np.testing.assert_array_equal(array, arrays[name])


def _model() -> DeepProbit:
    model = pbodl.FMMLP(SCHEMA, dim=2, hidden=(2,))
    model.learn([{"user": "u", "site": "s", "ad": str(n), "brand": n % 2, "click": n % 2} for n in range(4)])
    return model


class _Memory:
    """The files of a model folder, in memory."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def open_input_file(self, path: str) -> "_Memory._File":
        return _Memory._File(self.contents[Path(path).name])

    class _File:
        def __init__(self, content: bytes) -> None:
            self.content = content

        def read_buffer(self) -> bytes:
            return self.content

        def __enter__(self) -> "_Memory._File":
            return self

        def __exit__(self, *error: object) -> None:
            pass


def _publication(data: bytes, kind: str) -> bool:
    """Whether a follower that serves a small model takes a publication whose checksum is right."""
    length = int.from_bytes(data[:2], "little")
    digest = hashlib.blake2b(data[2:], digest_size=16).digest()
    files = _Memory()
    entry = FolderEntry(1, FULL) if kind == FULL else FolderEntry(2, DELTA)
    files.contents = {entry.name: HEAD.pack(MAGIC, digest, length) + data[2:]}
    if kind == DELTA:
        files.contents[FIRST.name] = FIRST_CONTENT
    follower = Follower("/nowhere")
    follower.folder._files = files  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == DELTA:
            assert follower._take(FIRST)
        return follower._take(entry)


def publication(data: bytes) -> None:
    _publication(data, FULL)


def delta(data: bytes) -> None:
    _publication(data, DELTA)


def snapshot(data: bytes) -> None:
    """A snapshot with sound checksums is a model, or an InputError: two bytes of length, a manifest, and the model's arrays."""
    length = int.from_bytes(data[:2], "little")
    text, arrays = data[2 : 2 + length], data[2 + length :]
    try:
        manifest = json.loads(text)
        manifest.pop("checksum", None)
        manifest["files"] = {
            "model.safetensors": {"bytes": len(arrays), "blake2b": hashlib.blake2b(arrays, digest_size=16).hexdigest()}
        }
        canonical = json.dumps(manifest, sort_keys=True).encode()
        text = json.dumps(manifest | {"checksum": hashlib.blake2b(canonical, digest_size=16).hexdigest()}).encode()
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass
    (SHELF / MANIFEST).write_bytes(text)
    (SHELF / "model.safetensors").write_bytes(arrays)
    try:
        load_snapshot(SHELF)
    except InputError:
        return


TARGETS: dict[str, Callable[[bytes], None]] = {
    "body_json": body_json, "body_msgpack": body_msgpack, "request": request, "events": events, "lines": lines, "decoder": decoder,
    "tensors": tensors, "publication": publication, "delta": delta, "snapshot": snapshot,
}  # fmt: skip


def published(content: bytes) -> bytes:
    """A publication's bytes as the targets take them: the length of the manifest, and what the checksum covers."""
    _, _, length = HEAD.unpack_from(content)
    return length.to_bytes(2, "little") + content[HEAD.size :]


def seeds() -> dict[str, dict[str, bytes]]:
    """A sound input or more for each target."""
    asked = {
        "user": {"user": "u"},
        "context": {"site": 3},
        "candidates": [{"ad": "x", "brand": 7}, {"ad": True, "brand": None}, {}],
    }
    mixed = asked | {"candidates": [{"ad": "\u00fc\u20ac", "tags": [1, "b"], "price": 2.5}], "explore": "ucb", "c": 2.0, "seed": 3}
    shown = [
        {"event": "impression", "id": "a1", "time": 1731283200.5, "user": 7, "ad": "x"},
        {"event": "click", "id": "a1", "time": 1731283260},
        {"time": 1731283200, "click": 1, "user": "u", "ad": None, "other": [1, {"a": 2}]},
    ]
    to_json, to_msgpack = msgspec.json.encode, msgspec.msgpack.encode
    text = b"\n".join(map(to_json, shown))
    manifest, arrays = (FOLDER / "snapshot" / MANIFEST).read_bytes(), (FOLDER / "snapshot" / "model.safetensors").read_bytes()
    both = {"array": to_json(shown), "packed": to_msgpack(shown), "lines": text, "one": to_json(shown[0])}
    return {
        "body_json": {"plain": to_json(asked), "mixed": to_json(mixed), "spaced": json.dumps(asked, indent=1).encode()},
        "body_msgpack": {"plain": to_msgpack(asked), "mixed": to_msgpack(mixed)},
        "request": {"json": b"j" + to_json(mixed), "msgpack": b"m" + to_msgpack(mixed), "plain": b"j" + to_json(asked)},
        "events": both,
        "lines": {
            "lines": text,
            "ends": text.replace(b"\n", b"\r\n\n") + b"\n",
            "arrays": to_json(shown[:2]) + b"\n" + to_json(shown),
        },
        "decoder": both | {"some": text + b"\x01" + to_msgpack(shown[1]) + b'\x01{"time": "2024-11-11T00:00:00Z", "click": 0}'},
        "tensors": {"two": pack({"a": np.arange(3), "b": np.array([[True]])}), "none": pack({})},
        "publication": {"full": published(FIRST_CONTENT)},
        "delta": {"delta": published((FOLDER / "published" / FolderEntry(2, DELTA).name).read_bytes())},
        "snapshot": {"snapshot": len(manifest).to_bytes(2, "little") + manifest + arrays},
    }


FIRST = FolderEntry(1, FULL)
FOLDER = Path(tempfile.mkdtemp(prefix="pbodl-fuzz-", dir=memory_folder()))
SHELF = FOLDER / "shelf"
atexit.register(shutil.rmtree, FOLDER, True)


def _prepare() -> bytes:
    """A snapshot, a full publication and a delta of a small model; returns the full one."""
    SHELF.mkdir()
    model = _model()
    model.save(FOLDER / "run").rename(FOLDER / "snapshot")
    folder, since = ModelFolder(FOLDER / "published"), mark(model)
    folder.write(FIRST, "a lineage", model, model.state(), {})
    model.learn([{"user": "u", "site": "s", "ad": "5", "brand": 1, "click": 1}])
    changed = changes(model, since)
    folder.write(FolderEntry(2, DELTA), "a lineage", model, changed, {})
    return (FOLDER / "published" / FIRST.name).read_bytes()


FIRST_CONTENT = _prepare()
