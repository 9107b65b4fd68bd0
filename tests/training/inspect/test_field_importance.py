"""Importance and drift of fields, on logs where both are known."""

import numpy as np
import pytest

import pbodl
from pbodl import Field, InputError, Schema
from pbodl.data.convert import from_data
from pbodl.training.inspect.field_importance import field_importance, stability, with_exchanged
from tests.click_log import RICH, click_log
from tests.training.logs import chunks

SCHEMA = Schema(
    label="click", fields=[Field("useful"), Field("useless"), Field("drifts"), Field("x", kind="number", transform="scale")]
)


def log(rows: int, seed: int, shift: float = 0.0) -> list[dict]:
    rng = np.random.default_rng(seed)
    useful, useless = rng.integers(0, 4, rows), rng.integers(0, 4, rows)
    drifts = np.where(rng.uniform(size=rows) < shift, "new", rng.choice(["a", "b"], rows, p=[0.7 - 0.4 * shift, 0.3 + 0.4 * shift]))
    clicks = rng.uniform(size=rows) < 0.1 + 0.2 * useful
    return [
        {"useful": int(u), "useless": int(n), "drifts": str(d), "x": 1.0, "click": int(c)}
        for u, n, d, c in zip(useful, useless, drifts, clicks, strict=True)
    ]


@pytest.fixture(scope="module")
def model():
    model = pbodl.PairFM(SCHEMA, dim=2)
    model.learn(log(4000, 0))
    return model


def test_what_matters_and_what_drifted(model):
    before = {name: array.copy() for name, array in model.state().items()}
    found = field_importance(model, chunks(log(3000, 1, shift=0.5), SCHEMA, size=1000))
    fields = {line["field"]: line for line in found["fields"]}
    assert found["rows"] == 3000 and found["fields"][0]["field"] == "useful"
    low, high = fields["useful"]["adds_interval"]
    assert 0.03 < low < fields["useful"]["adds"] < high
    low, high = fields["useless"]["adds_interval"]
    assert low < 0.002 and high < 0.01
    assert fields["drifts"]["new"] == pytest.approx(0.5, abs=0.05)
    assert fields["drifts"]["new_interval"][0] < 0.5 < fields["drifts"]["new_interval"][1]
    assert fields["drifts"]["stability"] > 0.25 > 0.02 > fields["useless"]["stability"]
    assert fields["useless"]["new"] == 0.0 and "new" not in fields["x"]
    for name, array in model.state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("values", [2, 12, 40])
def test_the_index_of_a_stable_field_is_inside_its_interval(values):
    """A replicate's index has more noise than that of the log, and none of it is negative."""
    schema = Schema(label="click", fields=[Field("stable")])
    rows = [{"stable": n % values, "click": n % 2} for n in range(1000 * values)]
    model = pbodl.PairFM(schema, dim=2)
    model.learn(rows)
    (line,) = field_importance(model, chunks(rows[: 50 * values], schema))["fields"]
    low, high = line["stability_interval"]
    assert 0.0 <= low <= line["stability"] <= high and high > 0.0
    assert line["new_interval"][0] <= line["new"] <= line["new_interval"][1]


def test_the_log_loss_is_that_of_the_model(model):
    rows = log(500, 2)
    found = field_importance(model, chunks(rows, SCHEMA))
    assert found["log_loss"] == pytest.approx(pbodl.evaluate(model, rows)["log_loss"])
    assert field_importance(model, chunks(rows, SCHEMA, size=100), rows=250)["rows"] == 250
    with pytest.raises(InputError, match="no rows"):
        field_importance(model, [])


@pytest.mark.parametrize("kind", [pbodl.FTRLProximal, pbodl.MatchBox, pbodl.AdPredictor])
def test_other_models(kind):
    schema = Schema(label="click", fields=[Field("useful", group="user"), Field("drifts", group="ad")])
    model = kind(schema)
    model.learn(log(1000, 0))
    found = field_importance(model, chunks(log(400, 1), schema))
    assert found["fields"][0]["field"] == "useful"


def test_exchanging_moves_one_field_alone():
    rows = click_log(40)
    order = np.random.default_rng(0).permutation(40)
    index = RICH.field_index("tags")
    comp = with_exchanged(from_data(RICH, rows, labelled=True), index, order)
    ref = from_data(RICH, [{**row, "tags": rows[other]["tags"]} for row, other in zip(rows, order, strict=True)], labelled=True)
    for name in ("keys", "values", "fields", "indptr"):
        np.testing.assert_array_equal(getattr(comp, name), getattr(ref, name), err_msg=name)


def test_stability_is_zero_for_the_same_shares():
    assert stability(np.array([10.0, 30.0]), np.array([[1000.0, 3000.0]]))[0] < 1e-3
