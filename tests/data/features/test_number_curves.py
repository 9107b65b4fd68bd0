"""Numbers on a curve: every way to the features gives the same, and their shares are those of linear interpolation."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pbodl
from pbodl import Field, InputError, Schema
from pbodl.data.convert import from_data
from pbodl.data.features.number_curves import curve_features
from pbodl.data.hashing import hash_value
from pbodl.data.numbers import curve, shares
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import Encoder

EDGES = (-2.0, 0.0, 0.5, 10.0)
PRICES = [-5.0, -2.0, -0.5, 0.0, 0.1, 0.5, 7.0, 10.0, 1e9, None]
SCHEMA = Schema(
    label="click",
    fields=[
        Field("age", group="user", kind="number", transform="curve", edges=(18.0, 30.0, 60.0)),
        Field("ad", group="ad"),
        Field("price", group="ad", kind="number", transform="curve", edges=EDGES),
    ],
)
ROWS = [{"click": i % 2, "age": 10.0 + 3.3 * i, "ad": f"a{i % 3}", "price": price} for i, price in enumerate(PRICES)]
finite = st.floats(-1e12, 1e12)


@given(st.lists(finite, min_size=2, max_size=8, unique=True), st.lists(finite, min_size=1, max_size=20))
def test_shares_are_those_of_linear_interpolation(edges, numbers):
    edges = sorted(edges)
    heights = np.cos(np.arange(len(edges)))
    found = [sum(heights[index] * share for index, share in shares(number, edges)) for number in numbers]
    np.testing.assert_allclose(found, np.interp(numbers, edges, heights), atol=1e-6)
    left, share = curve(np.array(numbers), edges)
    together = (1.0 - share.astype(float)) * heights[left] + share * heights[left + 1]
    np.testing.assert_array_equal(together, [_sum(heights, shares(number, edges), len(edges)) for number in numbers])


def _sum(heights, parts, n):
    """In the order of `together`; what has no share adds nothing."""
    of = dict(parts)
    left = min(min(of), n - 2)
    return of.get(left, 0.0) * heights[left] + of.get(left + 1, 0.0) * heights[left + 1]


def test_features_are_the_edges_around_a_number_or_the_missing_value():
    field = SCHEMA.fields[2]
    keys, parts, filled = curve_features(field, np.array([np.nan if price is None else price for price in PRICES]))
    found = [
        {int(key): float(share) for key, share in zip(k[f], p[f], strict=True)} for k, p, f in zip(keys, parts, filled, strict=True)
    ]
    knot = [hash_value("price", index) for index in range(4)]
    assert found[0] == found[1] == {knot[0]: 1.0}
    assert found[2] == {knot[0]: 0.25, knot[1]: 0.75}
    assert found[3] == {knot[1]: 1.0}
    assert found[4] == {knot[1]: pytest.approx(0.8), knot[2]: pytest.approx(0.2)}
    assert found[7] == found[8] == {knot[3]: 1.0}
    assert found[9] == {hash_value("price", None): 1.0}


def test_tables_rows_and_requests_give_the_same_features():
    table = from_data(SCHEMA, pa.Table.from_pylist(ROWS), True)
    rows = from_data(SCHEMA, ROWS, True)
    for name in ("keys", "values", "fields", "indptr"):
        np.testing.assert_array_equal(getattr(table, name), getattr(rows, name))
    encoder = Encoder(SCHEMA)
    own = encoder.encode_own([(row["ad"], row["price"]) for row in ROWS])
    for i, row in enumerate(ROWS):
        shared = encoder.encode_shared({"age": row["age"]})
        keys = np.concatenate([shared.keys[0], own.keys[i][own.filled[i]]])
        values = np.concatenate([shared.values[0], own.values[i][own.filled[i]]])
        begin, end = rows.indptr[i : i + 2]
        np.testing.assert_array_equal(keys, rows.keys[begin:end])
        np.testing.assert_array_equal(values, rows.values[begin:end])


def test_a_server_scores_as_the_model_predicts():
    rng = np.random.default_rng(0)
    rows = [{"click": int(rng.random() < 0.3), "age": rng.uniform(10, 70), "ad": i % 5, "price": rng.normal()} for i in range(600)]
    model = pbodl.PairFM(SCHEMA, dim=4)
    model.learn(rows)
    tested = [{**row, "age": 41.0} for row in rows[:20]]
    scored = Predictor.of(model).score({"age": 41.0}, {}, [{"ad": row["ad"], "price": row["price"]} for row in tested])
    np.testing.assert_allclose(scored.ctr, model.predict(tested).ctr, rtol=1e-5)


def test_a_model_learns_a_curve_that_no_few_buckets_can_follow():
    """Clicks follow a straight line; a curve with two edges is right, two buckets cannot be."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.0, 1.0, 30_000)
    true = 1.0 / (1.0 + np.exp(2.0 - 4.0 * x))
    table = pa.table({"click": (rng.random(len(x)) < true).astype(int), "x": x, "ad": ["a"] * len(x)})

    def loss(**about):
        schema = Schema(label="click", fields=[Field("x", kind="number", **about), Field("ad", group="ad")])
        predicted = pbodl.PairFM(schema).learn(table)[15_000:]
        p = true[15_000:]
        return -np.mean(p * np.log(predicted) + (1 - p) * np.log1p(-predicted)) + np.mean(p * np.log(p) + (1 - p) * np.log1p(-p))

    assert loss(transform="curve", edges=(0.0, 1.0)) < 0.002
    assert loss(edges=(0.5,)) > 0.02


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"kind": "number", "edges": [1.0]}, "needs two edges or more"),
        ({"kind": "number"}, "needs two edges or more"),
        ({"kind": "number", "edges": [1.0, 1.0]}, "in rising order"),
        ({"kind": "number", "edges": [-1e308, 1e308]}, "less than 1e308 apart"),
        ({"kind": "number", "edges": [1.0, 2.0], "resolution": 2}, "resolution is 2"),
        ({"edges": [1.0, 2.0]}, "is for kind='number'"),
    ],
)
def test_a_curve_that_is_none_is_refused(about, message):
    with pytest.raises(InputError, match=message):
        Field("price", transform="curve", **about)


def test_a_curve_cannot_be_crossed():
    with pytest.raises(InputError, match="which must be a category, a number in buckets"):
        Schema(label="click", fields=[*SCHEMA.fields, Field("both", group="ad", cross=["ad", "price"])])
