"""The encoder's keys are those that rows of a log get, however a candidate's values are given."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.dict_rows import from_rows
from pbodl.data.schema import Field, Schema
from pbodl.serving.scoring.request_encoding import Encoder

SCHEMA = Schema(
    label="click",
    fields=[
        Field("user", group="user"),
        Field("ad", group="ad"),
        Field("brand", group="ad"),
        Field("labels", group="ad", kind="multi"),
        Field("price", group="ad", kind="number"),
        Field("size", group="ad", kind="number", transform="scale"),
    ],
)
TEXTS = Schema(label="click", fields=[Field("user", group="user"), Field("ad", group="ad"), Field("brand", group="ad")])
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_infinity=False, allow_nan=False) | st.text() | st.just("a\0b")
NUMBERS = st.none() | st.floats(-1e30, 1e30)
CANDIDATE = st.tuples(VALUES, VALUES, st.none() | st.lists(VALUES, max_size=4), NUMBERS, NUMBERS)
PLAIN = st.tuples(st.text(), st.text())


def features(encoded) -> list[list[tuple]]:
    """Field, key and value of each feature of every sample, sorted."""
    filled = np.ones(encoded.keys.shape, bool) if encoded.filled is None else encoded.filled
    return [
        sorted(zip(encoded.fields[on].tolist(), keys[on].tolist(), values[on].tolist(), strict=True))
        for keys, values, on in zip(encoded.keys, encoded.values, filled, strict=True)
    ]


def expected(schema: Schema, names: list[str], candidates: list[tuple]) -> list[list[tuple]]:
    rows = [{"user": "x", **dict(zip(names, candidate, strict=True))} for candidate in candidates]
    batch = from_rows(schema, rows, labelled=False)
    triples = list(zip(batch.fields.tolist(), batch.keys.tolist(), batch.values.tolist(), strict=True))
    user = 0  # the place of the one field that is shared
    samples = [triples[start:stop] for start, stop in itertools.pairwise(batch.indptr)]
    return [sorted(feature for feature in sample if feature[0] != user) for sample in samples]


@given(st.lists(CANDIDATE, max_size=6))
def test_candidates_of_every_kind(candidates):
    encoder = Encoder(SCHEMA)
    names = [field.name for field in encoder.own]
    assert features(encoder.encode_own(candidates)) == expected(SCHEMA, names, candidates)


@given(st.lists(PLAIN, max_size=6))
def test_candidates_of_texts(candidates):
    encoder = Encoder(TEXTS)
    assert features(encoder.encode_own(candidates)) == expected(TEXTS, ["ad", "brand"], candidates)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers()), max_size=6))
def test_candidates_of_numbers(candidates):
    encoder = Encoder(TEXTS)
    assert features(encoder.encode_own(candidates)) == expected(TEXTS, ["ad", "brand"], candidates)
