"""`PairFM`: what it can express, what it starts from, and how it agrees with other models where they are the same."""

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.kernels.layers.pairs import DOUBT
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
    np.testing.assert_array_equal(state["dense.0.mean"], np.append(np.full(pairs, 0.3), 0.0)[None].astype(np.float32))
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


def test_only_linear_weights_follow_the_stream_with_their_prior(monkeypatch):
    monkeypatch.setattr("pbodl.models.adaptation.FIRST", 128)
    model = pbodl.PairFM(TWO)
    before = model.row_prior
    model.learn(matches(30))
    assert (model.row_prior.linear_variance != before.linear_variance).all()
    np.testing.assert_array_equal(model.row_prior.variance, before.variance)


def test_parameters_of_other_models_are_refused():
    with pytest.raises(TypeError):
        pbodl.PairFM(TWO, hidden=(8,))
    with pytest.raises(InputError, match="pair_weight"):
        pbodl.PairFM(TWO, pair_weight=float("nan"))
