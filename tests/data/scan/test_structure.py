"""Values are counted without being read: never fewer than a reader makes, and never far beyond the bound."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.scan.structure import count_values

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=300)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20), max_leaves=50
)
OBJECTS = st.dictionaries(st.text(), VALUES)


def counted(body: bytes, is_json: bool, most: int = 10**6) -> int:
    return int(count_values(np.frombuffer(body, np.uint8), is_json, most))


def made(value) -> int:
    """How many values and containers a reader makes."""
    if isinstance(value, dict):
        return 1 + sum(map(made, value.values()))
    return 1 + sum(map(made, value)) if isinstance(value, list) else 1


def names(value) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(names, value.values()))
    return sum(map(names, value)) if isinstance(value, list) else 0


@given(OBJECTS)
def test_a_count_covers_what_a_reader_makes(value):
    finite = msgspec.json.decode(msgspec.json.encode(value))  # an infinity is null in JSON
    for body in (msgspec.json.encode(finite), json.dumps(finite, indent=1).encode()):
        assert made(finite) <= 2 * counted(body, True)  # the first value of a container has no mark of its own
        assert counted(body, True) <= 2 * made(finite)  # a container among others has a comma, too
    assert counted(msgspec.msgpack.encode(value), False) == made(value) + names(value)


@pytest.mark.parametrize(
    ("is_json", "body"), [(True, b'{"a":[' + b"1," * 1000), (False, b"\x81\xa1a\xdc\x03\xe8" + b"\x01" * 1000)]
)
def test_counting_stops_at_the_bound(is_json, body):
    assert counted(body, is_json, 10) == 11


def test_what_is_no_object_counts_nothing():
    for is_json, body in ((True, b"[" * 1000), (True, b""), (True, b" 3"), (False, b"\x91" * 1000), (False, b"")):
        assert counted(body, is_json) == 0


@given(st.binary())
def test_any_bytes_can_be_counted(body):
    for is_json in (True, False):
        assert 0 <= counted(body, is_json) <= len(body) + 1
        assert 0 <= counted((b"{" if is_json else b"\x8f") + body, is_json) <= len(body) + 2
