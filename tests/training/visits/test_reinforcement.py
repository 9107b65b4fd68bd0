"""Learning more from the same data: EP against the exact posterior, several passes, and taking back."""

import msgspec
import numpy as np
import pytest

import pbodl
from pbodl.data.hashing import hash_value
from pbodl.errors import InputError
from pbodl.parallel.threads.learning_threads import learn_with_threads
from pbodl.training.config import check_config
from pbodl.training.visits.reinforcement import EP, Passes
from tests.click_log import RICH, click_log
from tests.oracles.densities import probit_posterior
from tests.parallel.logs import differing, fm, log_loss, market_log, plain_log, rich_log

TOY = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
VARIANCE = 0.5
FEATURES = [("user", 0), ("user", 1), ("user", 2), ("ad", 0), ("ad", 1)]


def toy_log(seed: int, n: int = 40) -> list[dict[str, int]]:
    rng = np.random.default_rng(seed)
    user, ad = rng.integers(3, size=n), rng.integers(2, size=n)
    z = np.array([1.0, -0.5, 0.3])[user] + np.array([0.4, -0.8])[ad]
    clicks = z + rng.normal(size=n) > 0
    return [{"user": int(u), "ad": int(a), "click": int(c)} for u, a, c in zip(user, ad, clicks, strict=True)]


def toy_posterior(rows: list[dict[str, int]]):
    features = np.array([[row[name] == value for name, value in FEATURES] + [True] for row in rows], float)
    return probit_posterior(features, np.array([row["click"] for row in rows], float), VARIANCE)


def learned(rows: list[dict[str, int]], kernel=None):
    """Means and variances of the toy's weights, the bias last."""
    prior = pbodl.Prior(embedding=VARIANCE, bias=VARIANCE)
    model = pbodl.SparseMLP(TOY, dim=1, hidden=(), linear=False, initial_spread=0.0, prior=prior)
    if kernel is not None:
        model.learn_with(kernel)
    model.learn(rows)
    state = model.state()
    at = [state["embedding.keys"].tolist().index(hash_value(name, value)) for name, value in FEATURES]
    parts = ("mean", "variance")
    return tuple(np.append(state[f"embedding.{part}"][at, 0], state[f"dense.0.{part}"]).astype(float) for part in parts)


def orders(rows, n=5):
    return [[rows[i] for i in np.random.default_rng(order).permutation(len(rows))] for order in range(n)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ep_is_closer_to_the_exact_posterior_than_adf(seed):
    rows = toy_log(seed)
    exact = toy_posterior(rows)
    adf, ep = learned(rows), learned(rows, EP(passes=200, rows=1000, tolerance=1e-3))
    assert np.abs(ep[0] - exact.mean).mean() < 0.35 * np.abs(adf[0] - exact.mean).mean()
    assert np.abs(ep[0] - exact.mean).max() < 0.05
    assert exact.divergence(*ep) < exact.divergence(*adf) - 0.05


def test_ep_does_not_depend_on_the_order_where_adf_does():
    rows = toy_log(0)
    adf = np.array([learned(order)[0] for order in orders(rows)])
    ep = np.array([learned(order, EP(passes=200, rows=1000, tolerance=1e-3))[0] for order in orders(rows)])
    assert np.ptp(adf, axis=0).max() > 0.1
    assert np.ptp(ep, axis=0).max() < 0.02


def test_damping_changes_the_way_and_not_the_end():
    rows = toy_log(1)
    a, b = (learned(rows, EP(passes=500, rows=1000, damping=damping, tolerance=1e-4)) for damping in (0.3, 1.0))
    np.testing.assert_allclose(a[0], b[0], atol=2e-3)
    np.testing.assert_allclose(a[1], b[1], rtol=2e-2)


def test_ep_ends_when_nothing_moves_any_more():
    kernel = EP(passes=100, rows=1000, tolerance=1e-3)
    learned(toy_log(2), kernel)
    assert kernel.converged == kernel.minibatches == 1
    assert 3 < kernel.passes_made < 100


@pytest.mark.parametrize("kernel", [EP(passes=1, rows=64), Passes(passes=1, rows=64)], ids=["ep", "passes"])
def test_one_pass_is_adf(kernel):
    batch = plain_log(300)
    ref, comp = fm(), fm()
    comp.learn_with(kernel)
    np.testing.assert_array_equal(comp.learn(batch), ref.learn(batch))
    assert differing(ref, comp) == []


@pytest.mark.parametrize("kernel", [EP(passes=3, rows=32), Passes(passes=3, rows=32)], ids=["ep", "passes"])
def test_a_row_counts_once_however_often_it_is_visited(kernel):
    batch = rich_log(200)
    ref, comp = pbodl.FMMLP(RICH, dim=2, hidden=(4,), half_life="2d"), pbodl.FMMLP(RICH, dim=2, hidden=(4,), half_life="2d")
    ref.learn(batch)
    comp.learn_with(kernel)
    comp.learn(batch)
    a, b = ref.state(), comp.state()
    for name in ("embedding.keys", "embedding.count", "embedding.field", "counters", "clock", "scale.moments"):
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    # Nor is it counted twice in what the model is sure of.
    precision = [1 / state["linear.variance"].astype(float) - 1 / float(ref.row_prior.linear_variance[0]) for state in (a, b)]
    assert precision[1].sum() == pytest.approx(precision[0].sum(), rel=0.25)


def test_the_papers_passes_count_a_row_every_time():
    batch = plain_log(500)
    once, often = fm(), fm()
    often.learn_with(Passes(passes=3, rows=64, paper=True))
    once.learn(batch)
    often.learn(batch)
    precision = [1 / model.state()["linear.variance"].astype(float) - 1 / 0.03 for model in (once, often)]
    assert precision[1].sum() > 1.8 * precision[0].sum()


def test_reinforced_models_still_learn():
    batch = market_log(10_000, seed=7)
    options = {"prior": pbodl.Prior(embedding=0.5, linear=0.1, dense=0.05), "initial_spread": 0.1}
    ref = log_loss(batch, fm(**options).learn(batch))
    for kernel in (EP(passes=3, rows=64), Passes(passes=2, rows=64)):
        model = fm(**options)
        model.learn_with(kernel)
        assert log_loss(batch, model.learn(batch)) < ref + 0.01


@pytest.mark.parametrize(
    ("make", "what"), [(lambda: EP(passes=0), "passes"), (lambda: Passes(rows=0), "rows"), (lambda: EP(damping=0.0), "damping")]
)
def test_nonsense_is_refused(make, what):
    with pytest.raises(InputError, match=what):
        make()


@pytest.mark.parametrize(
    ("keys", "learning"),
    [
        ({"passes": 3}, lambda: Passes(3)),
        ({"passes": 3, "power": "paper"}, lambda: Passes(3, paper=True)),
        ({"passes": 4, "ep": True}, lambda: EP(4)),
    ],
)
def test_keys_of_the_configuration_say_how_often_rows_are_visited(tmp_path, keys, learning):
    tables = {"schema": msgspec.to_builtins(RICH), "model": {"kind": "fm-mlp", "dim": 2, "hidden": [4]}, "training": keys}
    config = check_config(tables)
    comp, ref = config.build(), pbodl.FMMLP(RICH, dim=2, hidden=(4,))
    ref.learn_with(learning())
    log = click_log(300)
    for model in (comp, ref):
        model.learn(log[:150])
    comp.save(tmp_path)
    comp = config.prepare(pbodl.load(tmp_path))  # a run that continues visits them as often
    for model in (comp, ref):
        model.learn(log[150:])
    states = comp.state(), ref.state()
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[1])
    with pytest.raises(InputError, match="leave out passes, or --workers"):
        learn_with_threads(comp, 2)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"passes": 0}, "from 1 to 100"),
        ({"passes": 3, "power": "twice"}, "allowed are 'once' and 'paper'"),
        ({"ep": True}, "give passes"),
        ({"power": "paper"}, "give passes, such as 5, or sets"),
        ({"sets": 0, "negative_rate": 0.3}, "from 1 to 16"),
        ({"sets": 2}, "all sets would have the same rows"),
        ({"sets": 2, "negative_rate": 1.0}, "Give a negative_rate below 1"),
        ({"passes": 3, "ep": True, "power": "paper"}, "remove one of them"),
    ],
)
def test_keys_that_make_no_sense_are_refused(keys, words):
    with pytest.raises(InputError, match=words):
        check_config({"schema": msgspec.to_builtins(RICH), "training": keys})
    with pytest.raises(InputError, match="for the deep probit models"):
        check_config({"schema": msgspec.to_builtins(RICH), "model": {"kind": "ftrl"}, "training": {"passes": 2}})
