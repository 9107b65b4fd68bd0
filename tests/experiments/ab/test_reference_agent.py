"""The reference agent: what it knows adds up to the truth, and its beliefs are those of a Bayesian."""

import numpy as np
import pytest
from scipy.special import expit

from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.reference_agent import UNKNOWN, Beliefs, known_of, learn_known, rank_known


@pytest.fixture(scope="module")
def world():
    return AdWorld(4, 2, 2000, 20, "quality")


def test_what_is_known_and_unknown_makes_the_truth(world):
    requests = world.requests(1).part(slice(0, 50))
    candidates = world.candidates(requests)
    known = known_of(world, requests, candidates.indptr, candidates.ad)
    theta = np.concatenate([world.ads.quality[:, :1], world.ads.factors], axis=1)[candidates.ad]
    np.testing.assert_allclose(expit(known[:, 1] + (known[:, 2:] * theta).sum(axis=1)), candidates.probability, rtol=1e-4)


def test_the_unknown_has_the_prior_that_the_agent_believes():
    theta = [
        np.concatenate([w.ads.quality[:, :1], w.ads.factors], axis=1) for w in (AdWorld(s, 1, 100, 300, "quality") for s in (1, 2))
    ]
    covariance = np.cov(np.concatenate(theta).T)
    np.testing.assert_allclose(covariance, np.eye(UNKNOWN), atol=0.25)


def test_beliefs_end_near_the_posterior():
    rng = np.random.default_rng(0)
    truth, n = rng.normal(size=UNKNOWN), 4000
    known = np.concatenate([np.zeros((n, 1)), np.full((n, 1), -1.0), rng.normal(size=(n, UNKNOWN))], axis=1)
    clicks = (rng.random(n) < expit(known[:, 1] + known[:, 2:] @ truth)).astype(np.float32)
    beliefs = Beliefs.before(2)
    learn_known(known, clicks, beliefs)
    error, deviation = beliefs.mean[0] - truth, np.sqrt(np.diag(beliefs.covariance[0]))
    assert (deviation < 0.15).all() and (np.abs(error) < 4.5 * deviation).all()
    np.testing.assert_array_equal(beliefs.covariance[1], np.eye(UNKNOWN))


def test_draws_average_to_the_prediction():
    beliefs, known = Beliefs.before(1), np.zeros((40_000, 2 + UNKNOWN))
    known[:, 1], known[:, 2] = -2.0, 0.8
    ctr, predicted = np.empty(len(known)), np.empty(len(known))
    rank_known(known, beliefs, np.random.default_rng(1).standard_normal(len(known)), ctr, predicted)
    assert ctr.mean() == pytest.approx(predicted[0], rel=0.03)
    rank_known(known, beliefs, np.zeros(0), ctr, predicted)
    np.testing.assert_array_equal(ctr, predicted)
