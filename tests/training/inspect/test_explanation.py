"""Explanations: leave one out, for every kind of model; exact where the model is linear."""

import json

import numpy as np
import pytest

import pbodl
from pbodl.baselines import AdPredictor, FTRLProximal, MatchBox
from pbodl.data.convert import from_data
from pbodl.errors import InputError
from pbodl.training.inspect.explanation import explained, read_row
from tests.click_log import PLAIN, RICH, click_log
from tests.contract import FACTORIES, fingerprint

LOG = click_log(300)
ROW = {**LOG[5], "tags": ["tag1", "tag2", "tag1"], "site": None, "price": 12.5, "age": 30.0}


def trained(make, schema=RICH):
    model = make(schema)
    model.learn(LOG)
    return model


@pytest.mark.parametrize("kind", FACTORIES)
def test_every_kind_can_be_asked(kind):
    model = trained(FACTORIES[kind])
    before = fingerprint(model)
    found = explained(model, ROW)
    assert fingerprint(model) == before
    prediction = model.predict(ROW)
    assert (found["ctr"], found["mean"]) == (prediction.ctr[0], prediction.mean[0])
    assert found["std"] == pytest.approx(np.sqrt(prediction.variance[0]))
    total = found["base"]["mean"] + found["interactions"] + sum(one["contribution"] for one in found["features"])
    assert total == pytest.approx(found["mean"])
    names = {one["feature"] for one in found["features"]}
    assert {f"user={ROW['user']}", "tags=tag1", "tags=tag2", "site=(missing)", "price=12.5 to 15", "age=(its number)"} <= names
    assert len(names) == len(found["features"]) == 8
    sizes = [abs(one["contribution"]) for one in found["features"]]
    assert sizes == sorted(sizes, reverse=True)
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("kind", FACTORIES)
def test_a_contribution_is_with_less_without(kind):
    """If a list has one value, emptying the list leaves exactly that feature out."""
    model = trained(FACTORIES[kind])
    row = {**ROW, "tags": ["tag3"]}
    one = next(one for one in explained(model, row)["features"] if one["feature"] == "tags=tag3")
    full, without = model.predict(row), model.predict({**row, "tags": []})
    assert one["contribution"] == pytest.approx(full.mean[0] - without.mean[0], abs=1e-6)
    assert one["ctr_without"] == pytest.approx(without.ctr[0], rel=1e-6)
    share = (full.variance[0] - without.variance[0]) / full.variance[0] if full.variance[0] else 0.0
    assert one["variance_share"] == pytest.approx(share, abs=1e-5)


@pytest.mark.parametrize("make", [AdPredictor, FTRLProximal])
def test_linear_models_add_up(make):
    model = trained(make)
    found = explained(model, ROW)
    assert found["interactions"] == pytest.approx(0.0, abs=1e-9)
    if make is AdPredictor:
        variance = found["base"]["std"] ** 2 + sum(one["std"] ** 2 for one in found["features"])
        assert variance == pytest.approx(found["std"] ** 2)


def test_the_linear_share_of_a_deep_model():
    """Without embeddings to speak of, all of a contribution is the linear term's."""
    make = lambda schema: pbodl.SparseMLP(schema, dim=1, hidden=(), initial_spread=0.0, prior=pbodl.Prior(embedding=1e-12))  # noqa: E731
    found = explained(trained(make), ROW)
    for one in found["features"]:
        assert one["linear"]["mean"] == pytest.approx(one["contribution"], abs=1e-5)
        assert one["linear"]["std"] == pytest.approx(one["std"], abs=1e-4)


def test_what_is_known_of_a_feature():
    model = trained(FACTORIES["fm-mlp"])
    found = explained(model, {**ROW, "ad": "never seen"})
    by_name = {one["feature"]: one for one in found["features"]}
    unseen = by_name["ad=never seen"]
    assert (unseen["count"], unseen["variance_left"]) == (0, 1.0)
    user = by_name[f"user={ROW['user']}"]
    assert user["count"] == sum(row["user"] == ROW["user"] for row in LOG)
    assert user["variance_left"] < 1.0
    assert unseen["linear"] == {"mean": 0.0, "std": pytest.approx(np.sqrt(model.spec.prior.linear))}


def test_missing_fields_and_other_columns():
    model = trained(FACTORIES["fm-mlp"], PLAIN)
    found = explained(model, {"user": 3, "ad": "ad1"})
    assert {one["feature"] for one in found["features"]} == {"user=3", "ad=ad1", "site=(missing)"}
    assert found["ctr"] == model.predict({"user": 3, "ad": "ad1"}).ctr[0]
    with pytest.raises(InputError, match="unknown field 'usr'"):
        explained(model, {"usr": 3})


def test_sampled_streams_are_recalibrated():
    model = trained(lambda schema: pbodl.FMMLP(schema, dim=2, hidden=(), negative_rate=0.1))
    assert explained(model, ROW)["ctr"] == model.predict(ROW).ctr[0]


def test_matchbox_is_not_linear():
    found = explained(trained(lambda schema: MatchBox(schema, dim=2)), ROW)
    assert len(from_data(RICH, ROW, False).keys) == len(found["features"])


@pytest.mark.parametrize(("text", "words"), [("[1]", "holds list"), ("{", "not JSON"), (None, "cannot be read")])
def test_files_that_are_no_row(tmp_path, text, words):
    if text is not None:
        (tmp_path / "row.json").write_text(text)
    with pytest.raises(InputError, match=words):
        read_row(tmp_path / "row.json")
    (tmp_path / "row.json").write_text('{"ad": 1}')
    assert read_row(tmp_path / "row.json") == {"ad": 1}
