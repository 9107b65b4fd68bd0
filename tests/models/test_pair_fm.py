"""`PairFM`: what it can express, what it starts from, and how it agrees with other models where they are the same."""

import itertools

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.kernels.layers.pairs import DOUBT
from pbodl.models.adaptation import PROPORTIONS, in_force
from pbodl.models.pair_fm import WITHIN
from tests.click_log import PLAIN, RICH, click_log

TWO = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])


def matches(rounds: int) -> list[dict]:
    return [{"user": u, "ad": a, "click": int(u == a)} for _ in range(rounds) for u in range(3) for a in range(3)]


def test_it_learns_which_pairs_match():
    model = pbodl.PairFM(TWO)
    model.learn(matches(60))
    p = model.predict([{"user": 1, "ad": 1}, {"user": 1, "ad": 2}])
    assert p.ctr[0] > 0.7 and p.ctr[1] < 0.25


def test_it_has_a_weight_for_every_pair_of_fields_and_a_bias():
    model = pbodl.PairFM(RICH)
    pairs = len(RICH.fields) * (len(RICH.fields) - 1) // 2
    state = model.state()
    assert state["dense.0.mean"].shape == (1, pairs + 1)
    # Pairs across groups start with the whole weight, pairs within one of several groups with WITHIN of it.
    groups = [field.group for field in RICH.fields]
    start = [0.35 * (WITHIN if a == b else 1.0) for a, b in itertools.combinations(groups, 2)]
    assert 0 < sum(weight < 0.35 for weight in start) < pairs
    np.testing.assert_array_equal(state["dense.0.mean"], np.append(start, 0.0)[None].astype(np.float32))
    one_group = pbodl.PairFM(pbodl.Schema(label="click", fields=[pbodl.Field(name, group="ad") for name in "abc"]))
    np.testing.assert_array_equal(one_group.state()["dense.0.mean"], np.array([[0.35, 0.35, 0.35, 0.0]], np.float32))
    np.testing.assert_array_equal(state["dense.0.variance"], np.append(np.full(pairs, 0.1), 1.0)[None].astype(np.float32))


def test_without_vectors_it_is_linear_probit_regression():
    # Vectors at zero with next to no variance: what is left are the linear weights and the bias, as AdPredictor has them.
    prior = pbodl.Prior(embedding=1e-12, linear=0.02, bias=0.02)
    ours = pbodl.PairFM(PLAIN, prior=prior, initial_spread=0.0, adapt_prior=False)
    theirs = pbodl.AdPredictor(PLAIN, prior_variance=0.02)
    rows = click_log(400)
    ours.learn(rows), theirs.learn(rows)
    comp, ref = ours.predict(rows), theirs.predict(rows)
    np.testing.assert_allclose(comp.mean, ref.mean, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(comp.variance, DOUBT * ref.variance, rtol=2e-4)


def test_the_level_of_the_clicks_is_learned_by_the_bias():
    model = pbodl.PairFM(TWO)
    rng = np.random.default_rng(1)
    model.learn(
        [{"user": int(rng.integers(50)), "ad": int(rng.integers(50)), "click": int(rng.random() < 0.03)} for _ in range(3000)]
    )
    assert model.predict({"user": "new", "ad": "new"}).ctr == pytest.approx(0.03, abs=0.015)


def test_proportions_of_vectors_follow_the_stream_and_their_scale_does_not(monkeypatch):
    monkeypatch.setattr("pbodl.models.adaptation.FIRST", 128)
    fields = {"user": "user", "ad": "ad", "noise": "context"}
    schema = pbodl.Schema(label="click", fields=[pbodl.Field(name, group=group) for name, group in fields.items()])
    model, rng = pbodl.PairFM(schema), np.random.default_rng(2)
    before = model.row_prior
    model.learn([{**row, "noise": int(rng.integers(40))} for row in matches(300)])
    assert (model.row_prior.linear_variance != before.linear_variance).all()
    user, ad, noise = variances = in_force(model)[0]  # by group: user, ad, context
    assert user[1] > 1.5 * noise[:2].max() and ad[0] > 1.5 * noise[:2].max()
    meet = ~np.eye(3, dtype=bool)  # a field alone in its group never meets its own group's vectors
    assert variances[meet].mean() == pytest.approx(before.variance[0, 0], rel=1e-3)
    low, high = (before.variance[0, 0] * share for share in PROPORTIONS)
    assert (variances >= low * 0.999).all() and (variances <= high * 1.001).all()


def test_linear_weights_start_narrower_where_fields_are_many():
    def linear(n: int, **prior) -> float:
        schema = pbodl.Schema(label="click", fields=[pbodl.Field(f"f{i}", group="ad") for i in range(n)])
        return pbodl.PairFM(schema, prior=pbodl.Prior(**prior)).spec.prior.linear

    assert [linear(n) for n in (1, 11, 44)] == pytest.approx([0.1, 0.04, 0.01])
    assert linear(11, linear=0.5) == 0.5
    assert pbodl.FMMLP(TWO).spec.prior.linear == 0.03


def test_parameters_of_other_models_are_refused():
    with pytest.raises(TypeError):
        pbodl.PairFM(TWO, hidden=(8,))
    with pytest.raises(InputError, match="pair_weight"):
        pbodl.PairFM(TWO, pair_weight=float("nan"))
