"""The compiled scan gives what the general way gives, or gives the messages back."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbodl.streaming.events import EventDecoder
from tests.streaming.test_events import EVENTS, encodings, same
from tests.streaming.traffic import SCHEMA, click, impression

WHOLE = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.one_of(st.none(), st.booleans(), WHOLE, TEXT, FLOATS, st.lists(WHOLE, max_size=2))
TIMES = st.one_of(st.integers(-(10**12), 10**12), st.floats(0, 1e12))
EVENT = st.fixed_dictionaries(
    {"event": st.sampled_from(["impression", "click", None]), "id": st.one_of(TEXT, WHOLE), "time": TIMES},
    optional={"user": VALUES, "ad": VALUES, "click": st.sampled_from([0, 1, True, None]), "else": VALUES},
)


def ways(messages: list[bytes]):
    decoder = EventDecoder(SCHEMA)
    scanned = decoder._plain.scan(messages)
    decoder._plain.fits = False
    return scanned, decoder.decode(messages)


def agree(messages: list[bytes]) -> bool:
    scanned, ref = ways(messages)
    if scanned is not None:
        assert not ref.bad
        same(replace(ref, kinds=scanned[0], ids=scanned[1], times=scanned[2], rows=scanned[3]), ref)
    return scanned is not None


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENT, min_size=1, max_size=6), st.sampled_from(sorted(encodings(EVENTS))))
def test_both_ways_agree(events: list[dict], form: str) -> None:
    agree(encodings(events)[form])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 400), st.integers(0, 255), st.booleans())
def test_damage_is_never_read_otherwise(place: int, byte: int, packed: bool) -> None:
    message = bytearray(msgspec.msgpack.encode(EVENTS[:2]) if packed else msgspec.json.encode(EVENTS[:2]))
    message[place % len(message)] = byte
    agree([bytes(message)])
    agree([bytes(message[: place % len(message)])])


@pytest.mark.parametrize("form", encodings(EVENTS))
def test_plain_events_take_the_fast_way(form: str) -> None:
    plain = [impression("a", 1.25, user="ü€😀", ad=-7), click("a", 1413936074.4550695), impression(3, 2, user=True, ad=None)]
    plain.append(EVENTS[4] | {"ad": 2})
    assert agree(encodings(plain)[form])


def test_many_events_find_room() -> None:
    events = [impression(n, n) for n in range(5000)]
    assert agree([json.dumps(events, separators=(",", ":")).encode()])
    assert agree([msgspec.msgpack.encode({"event": "click", "id": 1, "time": 2})] * 3000)


def test_text_that_is_not_utf8_is_given_back() -> None:
    for bad in (b"\xff", b"\xc3", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf"):
        message = msgspec.msgpack.encode(impression("a", 1.0, user="?" * len(bad))).replace(b"?" * len(bad), bad)
        scanned, ref = ways([message])
        assert scanned is None and len(ref.bad) == 1
    assert np.isfinite(ways([msgspec.json.encode(impression("a", 1.5))])[1].times).all()
