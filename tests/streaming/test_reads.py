"""What becomes of a stream is a function of its bytes: neither the sizes of the reads nor what was read together matter."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbodl.data.schema import Field, Schema
from pbodl.streaming.events import EventDecoder, Events
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.sources.followed_files import FollowedFiles
from tests.streaming.traffic import SCHEMA, click, impression

LISTS = Schema(label="click", time="time", fields=[Field("tags", kind="multi"), Field("ad"), Field("price", kind="number")])
GOOD = [impression("a", 100.25, user=7, ad="x"), click("a", 101), {"time": 104, "click": 1, "user": "7", "ad": 1.0}]
JSON_LINES = [
    *map(msgspec.json.encode, GOOD),
    msgspec.json.encode(GOOD[:2]),  # an array on a line
    b"oops", b"", b"  ", b"\r", b"[1, 2]", b"null", b'"', b"{", b"}", b"[", b"\xff\xfe", b"\xef\xbb\xbf{}", b"\x81\xa2id\x01",
    b'{"event": "click", "id": 1, "time": 1731283200500}',
    b'{"event": "click", "id": 1,', b'"time": 5}',  # an object on two lines is none
    b'{"event": "click", "id": 1, "time": 5}{"event": "click", "id": 2, "time": 5}',
    b'{"event": "impression", "id": 3, "time": 5, "tags": ["a", "b", "c", "d"], "ad": "\xc3\xa9"}',
    b'{"event": "impression", "id": 3, "time": 5, "ad": "\xff"}',
    b'{"event": "impression", "id": 4, "time": "1970-01-01T00:01:00", "ad": {"a": 1}}',
    b'{"time": 104, "click": 2, "ad": true, "tags": [1.5, true]}', b'{"time": 104, "click": "2", "tags": [true]}',
    b'{"event": "impression", "id": 5, "time": true, "price": 1e400, "ad": 12345678901234567890123}',
]  # fmt: skip
PACKED = [
    msgspec.msgpack.encode(event)
    for event in (
        GOOD, impression("t", datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)), impression("b", 5, ad=b"\xff"),
        impression("b", 5, ad=datetime.datetime(2020, 1, 1)), impression("b", b"x", ad=b"abc"), impression("d", 5, ad={(1, 2): 3}),
        impression("f", float("nan"), ad=float("inf")), [1, GOOD[0], None],
    )
]  # fmt: skip
CSV_LINES = [
    b"impression,a,100,x,,3", b"click,a,101,,,", b",,104,y,1,2.5", b"oops", b"", b'impression,b,102,"x', b'x",b,1', b'"a""b",,,,,',
    b"impression,c,103,\xff,,", b"click,d,1731283200500,,,", b"clack,e,1,,,", b"impression,f,5,x,,dear", b'impression,g,6,"a,b",,1',
    b"a\rb", b"click,h,7,,,,,",
]  # fmt: skip
HEADER = b"event,id,time,ad,click,price\n"


def content(events: Events) -> list[tuple]:
    """All events, good and bad, in their order."""
    rows, row = iter(range(len(events.rows))), list[tuple]()
    found: list[tuple] = []
    for number in range(len(events) + 1):
        found += [("bad", *bad) for before, bad in zip(events.before, events.bad, strict=True) if before == number]
        if number < len(events):
            row = [] if events.kinds[number] == 1 else [next(rows)]
            keys = [events.rows.keys[events.rows.indptr[n] : events.rows.indptr[n + 1]].tolist() for n in row]
            labels = [float(np.asarray(events.rows.clicks)[n]) for n in row]
            found.append((int(events.kinds[number]), int(events.ids[number]), float(events.times[number]), keys, labels))
    return found


def read(path: Path, decoder: EventDecoder, piece: int, stops: Sequence[int], text: bytes) -> list[tuple]:
    """What a reader finds in a file that has grown to each of the stops in turn, and is read by a new reader each time."""
    found, after = list[tuple](), StreamPosition()
    for stop in [*sorted(stops), len(text)]:
        path.write_bytes(text[:stop])
        source = FollowedFiles(str(path), piece)
        while pack := source.read(after, 0.0):
            assert pack.gap is None
            found, after = found + content(decoder.decode(pack.contents)), StreamPosition.of(pack.position.plain())
        source.close()
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_any_split_of_the_bytes_into_reads_gives_the_same(form: str, data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.sampled_from(JSON_LINES if form == "jsonl" else CSV_LINES), min_size=1, max_size=12))
    bom = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    text = bom + (b"" if form == "jsonl" else HEADER) + b"\n".join(lines) + b"\n"
    decoder = EventDecoder(data.draw(st.sampled_from([SCHEMA, LISTS])), data.draw(st.sampled_from([None, 4])))
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"events.{form}"
        whole = read(path, decoder, 1 << 20, [], text)
        stops = data.draw(st.lists(st.integers(0, len(text)), max_size=4))
        assert read(path, decoder, data.draw(st.integers(1, 200)), stops, text) == whole
        each = [part for line in lines for part in alone(path, decoder, form, line)]
        assert each == whole


def alone(path: Path, decoder: EventDecoder, form: str, line: bytes) -> list[tuple]:
    """What a line gives in a file of its own."""
    beside = path.with_name(f"alone.{form}")
    return read(beside, decoder, 1 << 20, [], (b"\n" if form == "jsonl" else HEADER) + line + b"\n")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*JSON_LINES, *PACKED, b"oops\n" + b"\n".join(JSON_LINES[:3])]), max_size=8))
@pytest.mark.parametrize("schema", [SCHEMA, LISTS])
def test_a_message_is_judged_alone(schema: Schema, messages: list[bytes]) -> None:
    decoder = EventDecoder(schema)
    assert content(decoder.decode(messages)) == [part for message in messages for part in content(decoder.decode([message]))]


def test_one_bad_line_is_one_bad_event(tmp_path: Path) -> None:
    good = b"".join(msgspec.json.encode(impression(f"i{n}", n)) + b"\n" for n in range(3000))
    for first in (b"oops\n", b"[1]\n", b"\xff\n", b'"\n', b"\x90\n"):
        (tmp_path / "events.jsonl").write_bytes(first + good)
        events = EventDecoder(SCHEMA).decode(FollowedFiles(str(tmp_path / "events.jsonl")).read(StreamPosition(), 0.0).contents)
        assert (len(events), len(events.bad)) == (3000, 1)
    (tmp_path / "events.jsonl").write_bytes(b"\xef\xbb\xbf" + good)
    events = EventDecoder(SCHEMA).decode(FollowedFiles(str(tmp_path / "events.jsonl")).read(StreamPosition(), 0.0).contents)
    assert (len(events), len(events.bad)) == (3000, 0)
    rows = b"".join(b"%d,u,a,0\n" % n for n in range(3000))
    (tmp_path / "rows.csv").write_bytes(b'time,user,ad,click\n5,"u,a,0\n6,\xff,a,0\n' + rows)
    events = EventDecoder(SCHEMA).decode(FollowedFiles(str(tmp_path / "rows.csv")).read(StreamPosition(), 0.0).contents)
    assert (len(events), len(events.bad)) == (3000, 2)


def test_an_event_with_more_features_than_the_table_has_rows_is_bad() -> None:
    few, many = ({"event": "impression", "id": n, "time": n, "tags": list(range(n)), "ad": 1, "price": 1} for n in (2, 5))
    events = EventDecoder(LISTS, capacity=4).decode([msgspec.json.encode([few, many, few])])
    assert len(events) == len(events.rows) == 2 and events.before == [1]
    assert events.bad[0].reason == "it has 7 features, more than the model's capacity of 4"
