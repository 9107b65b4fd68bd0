"""MatchBox against the same messages without shortcuts, and its moments against Monte Carlo."""

from typing import Any

import numpy as np
import pytest

from pbodl.baselines import MatchBox
from pbodl.baselines.matchbox_messages import SETTLED
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.kernels.layers.embedding import standard_draw
from tests.click_log import PLAIN, click_log
from tests.oracles.matchbox import NaiveMatchBox

LOG = click_log(120)
PAIR = Schema(label="click", fields=[Field("user", group="user"), Field("ad", group="ad")])
OPTIONS: dict[str, Any] = {"dim": 3, "prior_variance": 0.5, "bias_variance": 0.2, "initial_spread": 0.4}


def naive(model: MatchBox) -> NaiveMatchBox:
    """The naive twin, with the same first means."""
    spec = model.spec

    def initial(name: Any, feature: Any) -> tuple[float, float]:
        if name == "b":
            return 0.0, spec.bias_variance
        key = hash_value(*feature)
        with np.errstate(over="ignore"):
            draw = standard_draw(np.uint64(spec.seed), np.uint64(key), np.uint64(name))
        return spec.initial_spread * float(draw), spec.prior_variance

    return NaiveMatchBox(spec.dim, spec.beta, spec.rounds, float(SETTLED), initial)


def sides(row: dict[str, Any]) -> tuple[dict[Any, float], dict[Any, float]]:
    return {("user", row["user"]): 1.0, ("site", row["site"]): 1.0}, {("ad", row["ad"]): 1.0}


@pytest.mark.parametrize("options", [{"rounds": 1}, {"rounds": 5}, {"rounds": 50, "beta": 0.5}, {"dim": 1, "seed": 3}])
def test_the_same_messages_without_shortcuts(options: dict[str, Any]) -> None:
    comp = MatchBox(PLAIN, **(OPTIONS | options))
    ref = naive(comp)
    for row in LOG:
        # Moments before every sample: a difference in what was learned shows at the next.
        mean, variance = ref.latent(*sides(row))
        prediction = comp.predict(row)
        assert prediction.mean[0] * comp.spec.beta == pytest.approx(mean, rel=2e-3, abs=2e-3)
        assert prediction.variance[0] * comp.spec.beta**2 == pytest.approx(variance, rel=2e-3)
        ref.learn(*sides(row), row["click"])
        comp.learn(row)
    assert comp.metrics()["rejected"] == 0


def test_moments_by_monte_carlo() -> None:
    model = MatchBox(PLAIN, **OPTIONS)
    model.learn(LOG)
    state, rng, n = model.state(), np.random.default_rng(0), 400_000
    places = {key: place for place, key in enumerate(state["weight.keys"].tolist())}
    for row in LOG[:4]:
        traits = {}
        latent = rng.normal(state["bias.mean"][0], np.sqrt(state["bias.variance"][0]), n)
        for name in ("user", "site", "ad"):
            place = places[hash_value(name, row[name])]
            traits[name] = rng.normal(state["weight.mean"][place], np.sqrt(state["weight.variance"][place]), (n, 3))
            latent += rng.normal(state["weight.bias_mean"][place, 0], np.sqrt(state["weight.bias_variance"][place, 0]), n)
        latent += ((traits["user"] + traits["site"]) * traits["ad"]).sum(1)
        prediction = model.predict(row)
        assert abs(prediction.mean[0] - latent.mean()) < 5 * latent.std() / np.sqrt(n)
        squares = (latent - latent.mean()) ** 2
        assert abs(prediction.variance[0] - latent.var()) < 5 * squares.std() / np.sqrt(n)
        # The click's probability takes r for a Gaussian, which a sum of products only resembles.
        assert prediction.ctr[0] == pytest.approx((latent + rng.normal(size=n) > 0).mean(), abs=0.02)


def test_a_bias_alone_is_exact_by_monte_carlo() -> None:
    # With traits that can be neglected, one click moves the biases as weighing draws by their likelihood does.
    model = MatchBox(PAIR, dim=1, prior_variance=1e-9, bias_variance=0.7, initial_spread=0.0)
    model.learn([{"user": 1, "ad": 1, "click": 1}])
    rng, n = np.random.default_rng(1), 1_000_000
    draws = rng.normal(0, np.sqrt(0.7), (3, n))
    kept = draws[:, draws.sum(0) + rng.normal(size=n) > 0]
    state = model.state()
    for comp, variance, ref in (
        (state["weight.bias_mean"][0, 0], state["weight.bias_variance"][0, 0], kept[0]),
        (state["bias.mean"][0], state["bias.variance"][0], kept[2]),
    ):
        assert abs(comp - ref.mean()) < 5 * ref.std() / np.sqrt(len(ref))
        assert abs(variance - ref.var()) < 5 * ((ref - ref.mean()) ** 2).std() / np.sqrt(len(ref))


def test_it_learns_who_meets_which_ad() -> None:
    # No user and no ad is better than another; only pairs differ.
    rows = [{"user": u, "ad": a, "click": int(u % 2 == a % 2)} for _ in range(30) for u in range(6) for a in range(4)]
    model = MatchBox(PAIR, dim=4, prior_variance=1.0, initial_spread=0.3)
    model.learn(rows)
    same, other = model.predict([{"user": 1, "ad": 3}, {"user": 1, "ad": 2}]).ctr
    assert same > 0.85
    assert other < 0.15


def test_without_initial_means_the_product_learns_nothing() -> None:
    rows = [{"user": u, "ad": a, "click": int(u == a)} for _ in range(20) for u in range(2) for a in range(2)]
    model = MatchBox(PAIR, dim=2, prior_variance=1.0, initial_spread=0.0)
    model.learn(rows)
    assert not model.state()["weight.mean"].any()


def test_context_meets_the_ad_and_not_the_user() -> None:
    model = MatchBox(PLAIN, **OPTIONS)
    model.learn(LOG)
    # With the same ad, user and site add up: the mean is a sum of what each says.
    rows = [{"user": u, "site": s, "ad": "ad1"} for u in (1, 2) for s in ("site1", "site2")]
    m = model.predict(rows).mean
    assert m[3] - m[2] == pytest.approx(m[1] - m[0], abs=1e-5)


def test_drift_grows_variances_with_time() -> None:
    schema = Schema(label="click", time="time", fields=PAIR.fields)
    model = MatchBox(schema, dim=1, drift=0.01, time_step="1h", bias_variance=0.1, initial_spread=0.0)
    model.learn([{"user": 1, "ad": 1, "click": 1, "time": 0.0}])
    state = model.state()
    model.learn([{"user": 2, "ad": 2, "click": 1, "time": 7200.0}])
    now = model.state()
    np.testing.assert_array_equal(now["weight.variance"][:2], state["weight.variance"][:2])
    biases = now["weight.bias_variance"][:2, 0].astype(float) + 0.02
    traits = now["weight.variance"][:2, 0].astype(float) + 0.02
    prediction = model.predict([{"user": 1, "ad": 1}])
    assert prediction.variance[0] == pytest.approx(now["bias.variance"][0] + biases.sum() + traits.prod(), rel=1e-5)
    model.learn([{"user": 1, "ad": 1, "click": 1, "time": 7200.0}])
    assert (model.state()["weight.bias_variance"][:2, 0] > state["weight.bias_variance"][:2, 0]).all()


def test_rounds_end_when_the_marginals_settle() -> None:
    few, many = MatchBox(PLAIN, **OPTIONS, rounds=20), MatchBox(PLAIN, **OPTIONS, rounds=1000)
    np.testing.assert_allclose(few.learn(LOG), many.learn(LOG), atol=1e-3)
    assert len(LOG) < many.metrics()["rounds"] < 10 * len(LOG)


def test_extreme_values_keep_variances_positive() -> None:
    schema = Schema(label="click", fields=[Field("x", kind="number", transform="scale"), *PAIR.fields])
    model = MatchBox(schema, dim=2, prior_variance=1000.0, bias_variance=1000.0, beta=0.01, initial_spread=10.0)
    ctr = model.learn([{"x": 10.0**i, "user": i % 3, "ad": i % 2, "click": i % 2} for i in range(30)] * 5)
    assert np.isfinite(ctr).all()
    for name, array in model.state().items():
        assert np.isfinite(array).all(), name
        assert not name.endswith("variance") or (array > 0).all(), name


@pytest.mark.nojit
def test_initial_means_do_not_depend_on_the_order_of_arrival() -> None:
    schema = Schema(label="click", weight="weight", fields=PLAIN.fields)
    rows = [{**row, "weight": 0.0} for row in LOG[:10]]  # they make features known, and teach nothing
    ref, comp = MatchBox(schema, **OPTIONS), MatchBox(schema, **OPTIONS)
    before = ref.predict(rows)
    ref.learn(rows)
    comp.learn(rows[::-1])
    means = [dict(zip(model.table.keys.tolist(), model.table.column("mean").tolist(), strict=True)) for model in (ref, comp)]
    assert means[0] == means[1]
    np.testing.assert_allclose(comp.predict(rows), before, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": 0}, "dim is 0; it must be a whole number from 1"),
        ({"prior_variance": 0.0}, "prior_variance"),
        ({"rounds": 0}, "rounds"),
        ({"drift": -1.0}, "drift"),
        ({"drift": 0.1}, "time column"),
        ({"time_step": "now and then"}, "time_step"),
    ],
)
def test_bad_parameters_are_refused_in_prose(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        MatchBox(PLAIN, **options)


def test_it_needs_both_sides() -> None:
    with pytest.raises(InputError, match="group='ad'"):
        MatchBox(Schema(label="click", fields=[Field("user", group="user"), Field("site")]))
