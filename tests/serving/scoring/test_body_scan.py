"""The compiled reader of bodies: what it reads is what the general way reads, and what it cannot read it leaves alone."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.serving.scoring.body_scan import Scanner
from pbodl.serving.scoring.request_encoding import Encoded
from pbodl.serving.web.http_messages import JSON, MSGPACK, Parsed, RequestError, Wire

OWN = ["ad", "brand", "a name of more than thirty-two bytes", "ü"]
SCHEMA = Schema(label="click", fields=[Field("user", group="user"), Field("site"), *(Field(name, group="ad") for name in OWN)])
WIRE = Wire(SCHEMA)
TEXTS = st.text() | st.text("abc{}[],:\\\"'é\x00\x1f 123", max_size=20) | st.just("a text of more than sixteen bytes")
VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
PLAIN = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text("abc {}[],:'-é", max_size=20)
CANDIDATES = st.lists(st.dictionaries(st.sampled_from(OWN), PLAIN), max_size=4) | st.lists(
    st.dictionaries(st.sampled_from(OWN), VALUES), max_size=4
)
USERS, CONTEXTS = (st.dictionaries(st.just(name), VALUES) for name in ("user", "site"))
REQUESTS = st.fixed_dictionaries({"candidates": CANDIDATES}, optional={"user": USERS, "context": CONTEXTS, "seed": st.just(3)})
MARKS = st.sampled_from([b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"1"])
WAYS = {
    "short": (JSON, msgspec.json.encode),
    "long": (JSON, lambda request: json.dumps(request, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    "escaped": (JSON, lambda request: json.dumps(request).encode()),
    "msgpack": (MSGPACK[0], msgspec.msgpack.encode),
}


def general(wire: Wire, body: bytes, kind: str) -> Parsed:
    """The request as the general way reads it."""
    parsed = wire._read(body, kind)
    return parsed._replace(own=wire._encoder.encode_own(parsed.own))


def outcome(read, *asked) -> tuple:
    """What came of reading: the request, or what is wrong with it."""
    try:
        parsed = read(*asked)
    except RequestError as error:
        return error.status, error.code, error.message, error.field
    own = parsed.own if isinstance(parsed.own, Encoded) else WIRE._encoder.encode_own(parsed.own)
    return own.keys.tolist(), own.values.tolist(), *parsed._replace(own=[])


def assert_the_same(body: bytes, kind: str) -> None:
    assert outcome(WIRE.read, body, kind) == outcome(general, WIRE, body, kind)


@pytest.mark.parametrize("way", WAYS)
@given(request=REQUESTS)
def test_every_request_is_read_as_the_general_way_reads_it(way, request):
    kind, encode = WAYS[way]
    assert_the_same(encode(request), kind)


@pytest.mark.parametrize("way", WAYS)
@given(request=REQUESTS, data=st.data())
def test_broken_bodies_are_refused_as_the_general_way_refuses_them(way, request, data):
    kind, encode = WAYS[way]
    body = bytearray(encode(request))
    for _ in range(data.draw(st.integers(1, 3))):
        first = data.draw(st.integers(0, len(body)))
        last = data.draw(st.integers(first, min(first + 3, len(body))))
        body[first:last] = data.draw(st.binary(max_size=3) | MARKS)
    assert_the_same(bytes(body), kind)


@pytest.mark.parametrize(
    "body",
    [
        b'{"candidates":[{"ad":"1"}],"candidates":[]}',
        b'{"candidates":[],"candidates":[{"ad":"1"}]}',
        b'{"candidates":[{"ad":"1"}],"\\u0063andidates":[]}',
        b'{"candidates":[{"ad":"1","ad":2}]}',
        b'{"candidates":[{"ad":"1"},]}',
        b'{"candidates":[{"ad":"1"}]} x',
        b'{"candidates":[{"ad":"1"}]',
        b'{"candidates":[{"ad":01}]}',
        b'{"candidates":[{"ad":-0}]}',
        b'{"candidates":[{"ad":"\xed\xa0\x80"}]}',
        b'{"candidates":[{"ad":"\xc3\xa9 and more than that"}]}',
        b'{"candidates":[{"add":"1"}]}',
        b'{"candidates":[{"ad":["1"]}]}',
        b'{"candidates":[[]]}',
        b'{"candidates":{"ad":"1"}}',
        b'{"user":{"candidates":[{"ad":"1"}]}}',
        b'{"user":{"user":"]}"},"candidates":[{"ad":"1"}]}',
        b'{"user":{"user":"\\"}"},"candidates":[{"ad":"1"}]}',
        b' {"candidates" : [ { } , {"ad" : null} ] , "explore" : "none" } ',
        b'[{"candidates":[{"ad":"1"}]}]',
        b"",
    ],
)
def test_edges(body):
    assert_the_same(body, JSON)


@pytest.mark.parametrize(("kind", "encode"), WAYS.values(), ids=WAYS)
def test_the_plain_case_is_read_here(kind, encode):
    ads = [{"ad": f"ad-{n}", "brand": n % 7, "a name of more than thirty-two bytes": None} for n in range(50)]
    body = encode({"user": {"user": "x"}, "candidates": [*ads, {"brand": True, "ad": "another order"}, {}], "detail": True})
    listed = Scanner([Field(name) for name in OWN[:3]], kind == JSON).read(body)
    assert listed is not None
    assert listed.keys[7].tolist() == [hash_value("ad", "ad-7"), hash_value("brand", 0), hash_value(OWN[2], None)]
    assert listed.keys[50].tolist() == [hash_value("ad", "another order"), hash_value("brand", "true"), hash_value(OWN[2], "")]
    assert len(listed.keys) == 52


def test_many_small_candidates_find_room():
    for kind, encode in WAYS.values():
        listed = Scanner([Field("ad")], kind == JSON).read(encode({"candidates": [{}] * 1000}))
        assert listed is not None
        np.testing.assert_array_equal(listed.keys, np.full((1000, 1), hash_value("ad", None), np.uint64))
