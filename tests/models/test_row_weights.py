"""Counts of rows with weights: in metrics and state, from older snapshots, on clusters, and what priors make of them."""

import numpy as np
import pytest

import pbodl
from pbodl.models.adaptation import REACH
from pbodl.models.learning import POWERS, bounded_reach, weight_sums
from pbodl.parallel.simulated import Cluster
from tests.models.test_hard_streams import Stream, log_of

SCHEMA, LOG = log_of(Stream("pair-fm", "alone", 3000, 0.17, "log-normal", "as drawn", frozenset(), 3))


@pytest.mark.parametrize("make", [pbodl.PairFM, pbodl.FMMLP])
def test_rows_with_large_weights_are_counted_alike_by_one_worker_and_by_many(make):
    model, cluster = make(SCHEMA), Cluster(make(SCHEMA), workers=4, rows=64, shards=2)
    model.learn(LOG)
    cluster.learn(LOG)
    ref = np.maximum(LOG.weights.astype(np.float64), 1.0)
    for counted in (model, cluster.model()):
        total, squares = weight_sums(counted, len(LOG))
        assert total == pytest.approx(ref.sum(), rel=0.1)
        assert squares == pytest.approx((ref**2).sum(), rel=0.01)
        assert 0 < counted.metrics()["damped_rows"] < len(LOG) / 2


def test_weights_up_to_1_are_not_counted():
    model = pbodl.PairFM(SCHEMA)
    model.learn(LOG._replace(weights=np.minimum(LOG.weights, np.float32(1.0))))
    assert not model.state()[POWERS].any()


def test_a_state_keeps_the_counts_and_older_ones_had_none():
    model, comp, older = pbodl.FMMLP(SCHEMA), pbodl.FMMLP(SCHEMA), pbodl.FMMLP(SCHEMA)
    model.learn(LOG)
    state = model.state()
    comp.load_state(state)
    assert comp.metrics() == model.metrics()
    older.load_state({name: array for name, array in state.items() if name != POWERS})
    assert older.metrics() == model.metrics() | {"damped_rows": 0}


def test_the_mean_weight_bounds_how_far_a_prior_grows():
    for weight, most in ((1.0, REACH[1]), (2.0, REACH[1] / 2), (100.0, 1.0)):
        weights = np.full(1000, weight)
        assert bounded_reach(REACH, weights.sum(), (weights**2).sum()) == (REACH[0], most)
    heavy = pbodl.PairFM(SCHEMA)
    heavy.learn(LOG._replace(weights=np.full(len(LOG), 20.0, np.float32)))
    specified = pbodl.PairFM(SCHEMA).row_prior.linear_variance
    assert (heavy.row_prior.linear_variance <= specified * np.float32(1.0 + 1e-6)).all()
