"""AdPredictor against River's, our own sum operation, a naive transcription, and its dynamics' definition."""

from typing import Any

import numpy as np
import pytest
from river import linear_model
from scipy import stats

import pbodl
from pbodl.baselines import AdPredictor
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from tests.click_log import PLAIN, RICH, click_log
from tests.oracles.adpredictor import NaiveAdPredictor

NAMES = ("user", "ad", "site")
LOG = click_log(2000)


def active(row: dict[str, Any]) -> dict[str, int]:
    return {f"{name}={row[name]}": 1 for name in NAMES}


@pytest.mark.parametrize(("beta", "epsilon"), [(0.1, 0.05), (1.0, 0.0), (0.3, 0.001), (0.1, 0.0)])
def test_step_by_step_like_river(beta: float, epsilon: float) -> None:
    river = linear_model.AdPredictor(beta=beta, epsilon=epsilon)
    ours = AdPredictor(PLAIN, prior_variance=1.0, beta=beta, epsilon=epsilon)
    ref = []
    for row in LOG:
        ref.append(river.predict_proba_one(active(row))[True])
        river.learn_one(active(row), bool(row["click"]))
    comp = ours.learn(LOG)
    # River holds t = y m/Σ to ±5; no sample of this stream comes there, so that its guard is never felt.
    surprise = np.abs(stats.norm.ppf(ref))
    assert surprise.max() < 5
    np.testing.assert_allclose(comp, ref, rtol=0, atol=1e-6)
    state = ours.state()
    means = dict(zip(state["weight.keys"].tolist(), state["weight.mean"], strict=True))
    variances = dict(zip(state["weight.keys"].tolist(), state["weight.variance"], strict=True))
    for row in LOG[:50]:
        for name in NAMES:
            key, feature = hash_value(name, row[name]), f"{name}={row[name]}"
            assert means[key] == pytest.approx(river.means[feature], abs=1e-6)
            assert variances[key] == pytest.approx(river.variances[feature], abs=1e-6)
    assert state["bias.mean"][0] == pytest.approx(river.means["__bias__"], abs=1e-6)


def test_where_rivers_guard_differs() -> None:
    # At t = -8 River learns as if it were -5: its step is 5.19 deviations of the sum instead of 8.12.
    schema = Schema(label="click", fields=[Field("ad", group="ad")])
    ours = AdPredictor(schema, prior_variance=1.0)
    ours.learn([{"ad": 1, "click": 1}])
    state = ours.state()
    total = 1.0 + state["weight.variance"][0] + state["bias.variance"][0]
    state["weight.mean"][0] = 8.0 * np.sqrt(total) - state["bias.mean"][0]
    river = linear_model.AdPredictor(beta=1.0, epsilon=0.0)
    river.means = {"ad=1": state["weight.mean"][0], "__bias__": state["bias.mean"][0]}
    river.variances = {"ad=1": state["weight.variance"][0], "__bias__": state["bias.variance"][0]}
    ours.load_state(state)
    ours.learn([{"ad": 1, "click": 0}])
    river.learn_one({"ad=1": 1}, False)
    scale = state["weight.variance"][0] / np.sqrt(total)
    steps = [(mean - state["weight.mean"][0]) / scale for mean in (ours.state()["weight.mean"][0], river.means["ad=1"])]
    assert steps[0] == pytest.approx(-np.exp(stats.norm.logpdf(-8) - stats.norm.logcdf(-8)))
    assert steps[1] == pytest.approx(-np.exp(stats.norm.logpdf(-5) - stats.norm.logcdf(-5)))


@pytest.mark.parametrize("prior", [0.02, 1.0, 30.0])
def test_naive_transcription(prior: float) -> None:
    ref, comp = NaiveAdPredictor(prior, prior), AdPredictor(PLAIN, prior_variance=prior)
    expected = []
    for row in LOG[:300]:
        features = [(name, row[name]) for name in NAMES]
        expected.append(ref.predict(features))
        ref.learn(features, row["click"])
    np.testing.assert_allclose(comp.learn(LOG[:300]), expected, rtol=1e-9)


@pytest.mark.parametrize("half_life", [None, "1h"])
def test_sum_operation_of_one_dimension(half_life: str | None) -> None:
    # With numbers, lists, weights and time: everything that both understand. Ours decays a bias in steps, hence the tolerance.
    prior = pbodl.Prior(embedding=0.3, bias=0.3)
    ref = pbodl.SparseMLP(
        RICH, dim=1, hidden=(), linear=False, initial_spread=0.0, prior=prior, half_life=half_life, decay_mean=True
    )
    comp = AdPredictor(RICH, prior_variance=0.3, half_life=half_life)
    np.testing.assert_allclose(comp.learn(LOG), ref.learn(LOG), rtol=2e-4 if half_life else 2e-5)
    for left, right in zip(comp.predict(LOG), ref.predict(LOG), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)


def test_only_the_ratio_of_prior_and_noise_matters() -> None:
    ref, comp = AdPredictor(PLAIN, prior_variance=0.5, beta=1.0), AdPredictor(PLAIN, prior_variance=4.5, beta=3.0)
    np.testing.assert_allclose(comp.learn(LOG), ref.learn(LOG), rtol=1e-9)
    for left, right in zip(comp.predict(LOG), ref.predict(LOG), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)


def test_half_life_halves_what_the_likelihood_said() -> None:
    schema = Schema(label="click", time="time", fields=[Field("ad", group="ad")])
    model = AdPredictor(schema, prior_variance=0.5, half_life="1h")
    model.learn([{"ad": 1, "click": 1, "time": 0.0}] * 30)
    (mean,), (variance,) = model.state()["weight.mean"], model.state()["weight.variance"]
    bias = model.state()
    model.learn([{"ad": 2, "click": 1, "time": 3600.0}])  # the clock goes on; the row of ad 1 is not touched
    assert model.state()["weight.mean"][0] == mean
    p = model.predict([{"ad": 1}])
    precision, precision_mean = 0.5 * (1 / variance) + 0.5 * 2.0, 0.5 * mean / variance
    now = model.state()
    assert p.mean[0] == pytest.approx(precision_mean / precision + now["bias.mean"][0], rel=1e-9)
    assert p.variance[0] == pytest.approx(1 / precision + now["bias.variance"][0], rel=1e-9)
    assert now["bias.variance"][0] > bias["bias.variance"][0]


def test_impossible_clicks_are_learned_from_safely() -> None:
    schema = Schema(label="click", fields=[Field("x", kind="number", transform="scale"), Field("ad", group="ad")])
    model = AdPredictor(schema, prior_variance=1e6, beta=1e-3)
    rows = [{"x": 10.0**i, "ad": i % 3, "click": i % 2} for i in range(30)] * 5
    ctr = model.learn(rows)
    assert np.isfinite(ctr).all()
    state = model.state()
    assert np.isfinite(state["weight.mean"]).all() and (state["weight.variance"] > 0).all()


@pytest.mark.nojit
def test_surer_where_it_saw_more() -> None:
    schema = Schema(label="click", fields=[Field("ad", group="ad")])
    model = AdPredictor(schema, prior_variance=1.0)
    model.learn([{"ad": 1, "click": i % 2} for i in range(50)] + [{"ad": 2, "click": 1}])
    often, once, never = model.predict([{"ad": 1}, {"ad": 2}, {"ad": 3}]).variance
    assert often < once < never
    assert model.table.count.tolist() == [50, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prior_variance": 0.0}, "prior_variance is 0.0; it must be a number above 0"),
        ({"beta": -1.0}, "beta is -1.0"),
        ({"epsilon": 1.0}, "epsilon is 1.0; it must be a number from 0"),
        ({"epsilon": 0.1, "half_life": "7d"}, "both forget"),
        ({"half_life": "soon"}, "half_life is 'soon'"),
        ({"half_life": "7d"}, "time column"),
        ({"negative_rate": 0.0}, "negative_rate"),
    ],
)
def test_bad_parameters_are_refused_in_prose(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        AdPredictor(PLAIN, **options)
