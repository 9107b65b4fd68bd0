"""Events to arrays: formats, packs, and what is set aside."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.streaming.events import CLICK, IMPRESSION, JOINED, EventDecoder, Events
from tests.streaming.traffic import SCHEMA, click, impression

MIXED = Schema(
    label="clicked", time="at", weight="importance",
    fields=[Field("tags", kind="multi"), Field("price", kind="number"), Field("device-id"), Field("ad", group="ad")],
)  # fmt: skip


def same(comp: Events, ref: Events) -> None:
    for name in ("kinds", "ids", "times"):
        np.testing.assert_array_equal(getattr(comp, name), getattr(ref, name))
    for one, other in zip(comp.rows, ref.rows, strict=True):
        np.testing.assert_array_equal(one, other)


def encodings(events: list[dict]) -> dict[str, list[bytes]]:
    return {
        "a JSON array": [msgspec.json.encode(events)],
        "a msgpack array": [msgspec.msgpack.encode(events)],
        "JSON lines": [b"\n".join(map(msgspec.json.encode, events)) + b"\n"],
        "JSON, one by one": list(map(msgspec.json.encode, events)),
        "msgpack, one by one": list(map(msgspec.msgpack.encode, events)),
        "indented JSON": [json.dumps(events, indent=1, ensure_ascii=False).encode()],
        "two packs": [msgspec.json.encode(events[:2]), msgspec.msgpack.encode(events[2:])],
    }


EVENTS = [
    impression("a", 100.25, user=7, ad="x"), click("a", 101), impression(5, 102, user="ü", ad=None),
    impression("c", 103.0, user=True, ad=2.5),
    {"time": 104, "click": 1, "user": "7", "ad": 1.0},
    {"event": None, "time": 105, "click": 0, "ad": "x", "stranger": [1, {"a": 2}]},
]  # fmt: skip


@pytest.mark.parametrize("form", encodings(EVENTS))
def test_every_encoding_gives_the_same(form: str) -> None:
    comp = EventDecoder(SCHEMA).decode(encodings(EVENTS)[form])
    assert comp.kinds.tolist() == [IMPRESSION, CLICK, IMPRESSION, IMPRESSION, JOINED, JOINED]
    assert comp.times.tolist() == [100.25, 101, 102, 103, 104, 105]
    assert comp.ids[0] == comp.ids[1] and len(set(comp.ids[:4].tolist())) == 3
    rows = [{"click": 0, "user": None, "ad": None, **event} for event in EVENTS if event.get("event") != "click"]
    same(comp, replace(comp, rows=from_data(SCHEMA, rows, labelled=True)))
    assert comp.rows.clicks.tolist() == [0, 0, 0, 1, 0] and not comp.bad


def test_tables_of_files_and_other_schemas() -> None:
    events = [
        {"event": "impression", "id": n, "at": 10 + n, "tags": ["a", "b"][: n % 3], "price": n / 3, "device-id": "d", "ad": n,
         "importance": 2}
        for n in range(6)
    ]  # fmt: skip
    comp = EventDecoder(MIXED).decode([msgspec.json.encode(events)])
    same(comp, replace(comp, rows=from_data(MIXED, [{"clicked": 0, **event} for event in events], labelled=True)))
    same(EventDecoder(MIXED).decode(pa.Table.from_pylist(events)), comp)


BAD = {
    "not an object": (b"[1, 2]", 2, "not a JSON or msgpack object"),
    "no JSON": (b'{"event": "impression", ', 1, "not a JSON or msgpack object"),
    "nothing": (b"", 1, "not a JSON or msgpack object"),
    "not UTF-8": (b'{"event": "impression", "id": "\xff"}', 1, "not a JSON or msgpack object"),
    "another kind": (msgspec.json.encode({**impression("z", 1.0), "event": "clik"}), 1, r"'clik' \(did you mean 'click'\?\)"),
    "a strange kind": (msgspec.json.encode({**impression("z", 1.0), "event": [1]}), 1, "its event is"),
    "no id": (msgspec.json.encode(impression(None, 1.0)), 1, "it has no id"),
    "a click without an id": (b'{"event": "click", "time": 5}', 1, "it has no id"),
    "no time": (b'{"event": "click", "id": 5}', 1, "time column 'time' holds None"),
    "a time that is none": (msgspec.json.encode(impression("z", "tomorrow")), 1, "time column 'time' holds 'tomorrow'"),
    "a label that is none": (b'{"time": 5, "click": 2}', 1, "label 'click' holds 2"),
    "no label": (b'{"time": 5}', 1, "label 'click' holds None"),
    "an object for a feature": (msgspec.json.encode(impression("z", 1.0, ad={"a": 1})), 1, "cannot be a feature"),
}


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize("packed", [False, True])
def test_bad_events_are_set_aside_with_their_reason(fault: str, packed: bool) -> None:
    bad, count, reason = BAD[fault]
    good = [msgspec.json.encode(event) for event in EVENTS]
    messages = [*good[:3], bad, *good[3:]]
    if packed and bad.startswith(b"{") and bad.endswith(b"}"):
        messages = [b"[" + b", ".join(messages) + b"]"]
    if packed and fault == "not UTF-8":
        return  # JSON that is not UTF-8 is no JSON as a whole
    comp = EventDecoder(SCHEMA).decode(messages)
    same(comp, EventDecoder(SCHEMA).decode(good))
    assert len(comp.bad) == count
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(comp.bad[0].reason)
    assert comp.runs == (0, count, 0)


def test_runs_of_bad_events_are_counted() -> None:
    good, bad = msgspec.json.encode(EVENTS[0]), b"?"
    assert EventDecoder(SCHEMA).decode([bad, bad, good, bad, good]).runs == (2, 2, 0)
    assert EventDecoder(SCHEMA).decode([good, bad, bad, bad]).runs == (0, 3, 3)
    assert EventDecoder(SCHEMA).decode([bad, bad]).runs == (2, 2, 2)


def test_times_as_text_and_clicks_alone() -> None:
    texts = EventDecoder(SCHEMA).decode([msgspec.json.encode([{**click("a", 0), "time": "1970-01-01T00:01:00"}, click("b", 61)])])
    assert texts.times.tolist() == [60, 61] and len(texts.rows) == 0
    assert len(EventDecoder(SCHEMA).decode([])) == 0


def test_a_column_named_event_is_refused() -> None:
    with pytest.raises(InputError, match="rename the column"):
        EventDecoder(Schema(label="click", fields=[Field("event")]))
