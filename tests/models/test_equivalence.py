"""Models that must agree: with AdPredictor, with each other, and with themselves under changes that mean nothing."""

from typing import Any

import numpy as np
import pytest

import pbodl
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.spec import Prior
from tests.click_log import PLAIN, RICH, click_log
from tests.contract import assert_same_state
from tests.oracles.adpredictor import NaiveAdPredictor

LOG = click_log(300)
SMALL: dict[str, Any] = {"dim": 3, "hidden": (5, 4)}


def adpredictor(schema: Schema, prior: float, bias_prior: float) -> pbodl.SparseMLP:
    return pbodl.SparseMLP(
        schema, dim=1, hidden=(), linear=False, initial_spread=0.0, prior=Prior(embedding=prior, bias=bias_prior)
    )


@pytest.mark.parametrize(("prior", "bias_prior"), [(0.02, 0.05), (1.0, 1.0), (30.0, 0.5)])
def test_sum_of_one_dimension_without_hidden_layer_is_adpredictor(prior: float, bias_prior: float) -> None:
    comp, ref = adpredictor(PLAIN, prior, bias_prior), NaiveAdPredictor(prior, bias_prior)
    expected = []
    for row in LOG:
        features = [(name, row[name]) for name in ("user", "ad", "site")]
        expected.append(ref.predict(features))
        ref.learn(features, row["click"])
    np.testing.assert_allclose(comp.learn(LOG), expected, rtol=2e-5)
    state = comp.state()
    mean, variance = ref.weights.pop("bias")
    assert state["dense.0.mean"].shape == (1, 1)
    assert state["dense.0.mean"][0, 0] == pytest.approx(mean, rel=1e-4)
    assert state["dense.0.variance"][0, 0] == pytest.approx(variance, rel=1e-4)
    places = {key: place for place, key in enumerate(state["embedding.keys"].tolist())}
    assert len(places) == len(ref.weights)
    for feature, (mean, variance) in ref.weights.items():
        place = places[hash_value(*feature)]
        assert state["embedding.mean"][place, 0] == pytest.approx(mean, rel=1e-3, abs=1e-5)
        assert state["embedding.variance"][place, 0] == pytest.approx(variance, rel=1e-4)


def test_the_linear_term_alone_is_adpredictor_too() -> None:
    # Embeddings that start at zero with next to no variance stay where they are.
    ref = adpredictor(PLAIN, 0.3, 0.1)
    prior = Prior(embedding=1e-12, linear=0.3, bias=0.1)
    comp = pbodl.SparseMLP(PLAIN, dim=1, hidden=(), linear=True, initial_spread=0.0, prior=prior)
    np.testing.assert_allclose(comp.learn(LOG), ref.learn(LOG), rtol=1e-5)
    np.testing.assert_allclose(comp.state()["linear.mean"], ref.state()["embedding.mean"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dim", [1, 3])
def test_without_hidden_layer_concat_is_sum(dim: int) -> None:
    ref, comp = (kind(PLAIN, dim=dim, hidden=(), prior=Prior(0.1, 0.02, 0.05)) for kind in (pbodl.SparseMLP, pbodl.DeepProbit))
    np.testing.assert_allclose(comp.learn(LOG), ref.learn(LOG), rtol=1e-5)
    np.testing.assert_allclose(comp.state()["embedding.mean"], ref.state()["embedding.mean"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"linear": False}, {"fm_variance": "paper"}, {"hidden": ()}, {"half_life": "1h"}])
def test_ffm_of_one_group_is_fm(options: dict[str, Any]) -> None:
    alike = [Field(f.name, group="context", kind=f.kind, transform=f.transform, derive=f.derive) for f in RICH.fields]
    schema = Schema(label="click", time="time", weight="weight", fields=alike)
    ref, comp = (kind(schema, **{**SMALL, **options}) for kind in (pbodl.FMMLP, pbodl.FFMMLP))
    np.testing.assert_array_equal(comp.learn(LOG), ref.learn(LOG))
    assert_same_state(comp, ref)


@pytest.mark.parametrize("groups", [[f"group {n}" for n in range(len(PLAIN.fields))], ["context"] * len(PLAIN.fields)])
def test_pairs_of_groups_are_pairs_of_fields_where_each_is_a_group_or_all_are_one(groups: list[str]) -> None:
    fields = [Field(field.name, group=group) for field, group in zip(PLAIN.fields, groups, strict=True)]
    schema = Schema(label="click", time="time", fields=fields)
    ref, comp = (pbodl.FMMLP(schema, **SMALL, pairs=pairs) for pairs in ("fields", "groups"))
    np.testing.assert_allclose(comp.learn(LOG), ref.learn(LOG), rtol=1e-5)
    np.testing.assert_allclose(comp.state()["embedding.mean"], ref.state()["embedding.mean"], rtol=1e-4, atol=1e-6)


def test_features_of_one_group_do_not_meet_where_pairs_are_of_groups() -> None:
    schema = Schema(label="click", fields=[Field("user", group="user"), Field("age", group="user"), Field("ad", group="ad")])
    rng = np.random.default_rng(0)
    rows = [{"user": u, "age": a, "ad": "same", "click": int(u == a)} for u, a in rng.integers(0, 2, (400, 2)).tolist()]
    asked = [{"user": u, "age": a, "ad": "same"} for u in range(2) for a in range(2)]
    together = {}
    for pairs in ("fields", "groups"):
        model = pbodl.FMMLP(schema, dim=3, hidden=(), linear=False, pairs=pairs, fm_variance="exact")
        model.learn(rows)
        mean = model.predict(asked).mean
        together[pairs] = mean[0] - mean[1] - mean[2] + mean[3]  # what user and age say together
    assert abs(together["groups"]) < 1e-5 and together["fields"] > 0.1


def test_fm_of_one_feature_is_the_dense_layers_bias() -> None:
    # One feature has no partner: with the linear term off, it cannot say anything.
    schema = Schema(label="click", fields=[Field("ad", group="ad")])
    model = pbodl.FMMLP(schema, **SMALL, linear=False)
    model.learn([{"ad": i % 3, "click": int(i % 3 == 0)} for i in range(90)])
    ctr = model.predict([{"ad": i} for i in range(3)]).ctr
    np.testing.assert_array_equal(ctr, ctr[0])


@pytest.mark.parametrize("kind", [pbodl.SparseMLP, pbodl.FMMLP, pbodl.FFMMLP])
def test_the_order_of_fields_does_not_matter(kind: type[DeepProbit]) -> None:
    reversed_fields = Schema(label="click", time="time", weight="weight", fields=RICH.fields[::-1])
    ref, comp = kind(RICH, **SMALL), kind(reversed_fields, **SMALL)
    np.testing.assert_allclose(comp.learn(LOG), ref.learn(LOG), rtol=1e-4)


@pytest.mark.parametrize("kind", [pbodl.DeepProbit, pbodl.SparseMLP, pbodl.FMMLP, pbodl.FFMMLP])
def test_the_order_inside_a_list_does_not_matter(kind: type[DeepProbit]) -> None:
    ref, comp = kind(RICH, **SMALL), kind(RICH, **SMALL)
    turned = [{**row, "tags": row["tags"][::-1]} for row in LOG]
    np.testing.assert_allclose(comp.learn(turned), ref.learn(LOG), rtol=1e-4)


def test_a_value_given_twice_counts_double() -> None:
    schema = Schema(label="click", fields=[Field("tags", kind="multi")])
    model = adpredictor(schema, 0.5, 0.1)
    model.learn([{"tags": ["a"], "click": 1}] * 3)
    once, twice = model.predict([{"tags": ["a"]}, {"tags": ["a", "a"]}])[1:]
    bias = model.state()["dense.0.mean"][0, 0]
    assert once[1] - bias == pytest.approx(2 * (once[0] - bias), rel=1e-5)
    bias_variance = model.state()["dense.0.variance"][0, 0]
    assert twice[1] - bias_variance == pytest.approx(4 * (twice[0] - bias_variance), rel=1e-5)


@pytest.mark.parametrize("kind", [pbodl.DeepProbit, pbodl.SparseMLP, pbodl.FMMLP, pbodl.FFMMLP])
def test_the_papers_model_is_five_settings(kind: type[DeepProbit]) -> None:
    options: dict[str, Any] = {"linear": False, "pairs": "fields", "fm_variance": "paper", "adapt_prior": False}
    ref = kind(PLAIN, **SMALL, **options, prior=Prior(0.01, 0.01, 0.01, bias=None))
    comp = kind(PLAIN, **SMALL, paper=True)
    assert comp.spec == ref.spec
    np.testing.assert_array_equal(comp.learn(LOG), ref.learn(LOG))
    assert not any(name.startswith("linear") for name in comp.state())
    state = kind(PLAIN, **SMALL, paper=True).state()
    np.testing.assert_array_equal(state["dense.0.variance"], np.float32(0.01))


def test_exact_and_printed_variance_agree_in_the_mean_alone() -> None:
    exact, printed = (pbodl.FMMLP(PLAIN, dim=4, hidden=(), initial_spread=1.0, fm_variance=form) for form in ("exact", "paper"))
    printed.learn(LOG)
    exact.load_state(printed.state())
    left, right = exact.predict(LOG), printed.predict(LOG)
    np.testing.assert_allclose(left.mean, right.mean, rtol=1e-4, atol=1e-6)
    assert np.mean(np.abs(left.variance / right.variance - 1)) > 0.1


def test_labels_may_be_bools_or_floats() -> None:
    models = [pbodl.FMMLP(PLAIN, **SMALL) for _ in range(3)]
    for model, form in zip(models, (int, bool, float), strict=True):
        model.learn([{**row, "click": form(row["click"])} for row in LOG[:50]])
    assert_same_state(models[1], models[0])
    assert_same_state(models[2], models[0])
