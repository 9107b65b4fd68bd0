"""Stages visited several times: each has a site of its own, and predictions of weight 0 have none."""

import numpy as np
import pytest
from scipy.special import ndtr

import pbodl
from pbodl.data.convert import from_data
from pbodl.training.visits.reinforcement import EP, Passes
from tests.click_log import PLAIN
from tests.oracles.stages import Stage, history_likelihood, posterior_of
from tests.parallel.logs import by_key, fm, log_loss, market_log
from tests.stages import in_stages

PRIOR = 0.5
BIAS = pbodl.Schema(label="click", fields=[pbodl.Field("of", kind="multi")])


def toy(seed, n=40):
    """Rows whose bias alone learns, their stages, and the exact posterior of the bias."""
    rng = np.random.default_rng(seed)
    log = from_data(BIAS, [{"of": [], "click": int(click)} for click in rng.random(n) < ndtr(-0.6)], labelled=True)
    operations = in_stages(log, seed)
    batch, seen = operations.batch, {}
    for at in np.flatnonzero(~operations.is_prediction):
        stage = Stage(bool(batch.clicks[at]), float(batch.came_before[at]), float(batch.came_by[at]))
        seen.setdefault(int(operations.row[at]), []).append(stage)

    def likelihood(p):
        log_likelihood = sum(np.log(history_likelihood(p, history)) for history in seen.values())
        return np.exp(log_likelihood - log_likelihood.max())

    return operations, posterior_of(0.0, PRIOR, likelihood)


def learned(batch, learning=None):
    model = pbodl.SparseMLP(BIAS, dim=1, hidden=(), linear=False, initial_spread=0.0, prior=pbodl.Prior(bias=PRIOR))
    if learning is not None:
        model.learn_with(learning)
    model.learn(batch)
    return float(model.dense.mean[0, 0, 0]), float(model.dense.variance[0, 0, 0])


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_ep_reaches_the_exact_posterior_of_stages(seed):
    operations, exact = toy(seed)
    mean, variance = learned(operations.batch, EP(passes=200, rows=1000, tolerance=1e-4))
    assert abs(mean - exact[0]) < 0.1 * np.sqrt(exact[1])
    assert variance == pytest.approx(exact[1], rel=0.1)


@pytest.mark.parametrize("learning", [EP(passes=3, rows=10_000), Passes(2, rows=10_000), Passes(3, rows=10_000, paper=True)])
def test_impressions_count_once_and_predictions_change_nothing(learning):
    log = market_log(400)
    operations = in_stages(log)
    ref, comp, alone = fm(), fm(), fm()
    ref.learn(log)
    for model in (comp, alone):
        model.learn_with(learning)
    ctr = comp.learn(operations.batch)
    taught = alone.learn(operations.batch.take(np.flatnonzero(~operations.is_prediction)))
    assert comp.rows_learned == 400
    np.testing.assert_array_equal(comp.table.count[comp.table.find(ref.table.keys)], ref.table.count)
    np.testing.assert_array_equal(ctr[~operations.is_prediction], taught)  # of the first visit
    left, right = by_key(comp), by_key(alone)
    for name in ("embedding.mean", "embedding.variance", "linear.mean", "dense.0.mean", "dense.1.variance", "embedding.count"):
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def test_visits_bring_stages_to_where_the_log_leads():
    log, later = market_log(4000), market_log(6000).rows(4000, 6000)
    losses = []
    for batch in (log, in_stages(log).batch):
        model = pbodl.PairFM(PLAIN)
        model.learn_with(EP(passes=3))
        model.learn(batch)
        losses.append(log_loss(later, model.predict(later).ctr))
    assert abs(losses[1] - losses[0]) < 0.01
