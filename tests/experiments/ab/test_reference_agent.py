"""The reference agent: what it knows adds up to the truth, and its beliefs are those of a Bayesian."""

import numpy as np
import pytest
from scipy.special import expit

from pbodl.experiments.ab.ad_hierarchy import Beliefs
from pbodl.experiments.ab.ad_market import DAY
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.reference_agent import UNKNOWN, ReferenceAgent, known_of, learn_known, rank_drawn, rank_known


def unknown_of(world):
    return np.concatenate([world.ads.lasting[:, np.newaxis], world.ads.factors], axis=1)


def independent(ads):
    return Beliefs(np.zeros((ads, UNKNOWN)), np.tile(np.eye(UNKNOWN), (ads, 1, 1)))


@pytest.mark.parametrize("market", ["standard", "quality"])
def test_what_is_known_and_unknown_makes_the_truth(market):
    world = AdWorld(4, 2, 2000, 20, market)
    requests = world.requests(1).part(slice(0, 50))
    candidates = world.candidates(requests)
    known = known_of(world, requests, candidates.indptr, candidates.ad)
    theta = unknown_of(world)[candidates.ad]
    np.testing.assert_allclose(expit(known[:, 1] + (known[:, 2:] * theta).sum(axis=1)), candidates.probability, rtol=1e-4)


def test_the_unknown_has_the_prior_that_the_agent_believes():
    theta = [unknown_of(world) for world in (AdWorld(s, 1, 100, 300, "quality") for s in (1, 2))]
    covariance = np.cov(np.concatenate(theta).T)
    np.testing.assert_allclose(covariance, np.eye(UNKNOWN), atol=0.25)


def test_beliefs_end_near_the_posterior():
    rng = np.random.default_rng(0)
    truth, n = rng.normal(size=UNKNOWN), 4000
    known = np.concatenate([np.zeros((n, 1)), np.full((n, 1), -1.0), rng.normal(size=(n, UNKNOWN))], axis=1)
    clicks = (rng.random(n) < expit(known[:, 1] + known[:, 2:] @ truth)).astype(np.float32)
    beliefs = independent(2)
    learn_known(known, clicks, beliefs)
    error, deviation = beliefs.mean[0] - truth, np.sqrt(np.diag(beliefs.covariance[0]))
    assert (deviation < 0.15).all() and (np.abs(error) < 4.5 * deviation).all()
    np.testing.assert_array_equal(beliefs.covariance[1], np.eye(UNKNOWN))


def test_draws_average_to_the_prediction():
    beliefs, known = independent(1), np.zeros((40_000, 2 + UNKNOWN))
    known[:, 1], known[:, 2] = -2.0, 0.8
    ctr, predicted = np.empty(len(known)), np.empty(len(known))
    rank_known(known, beliefs, np.random.default_rng(1).standard_normal(len(known)), ctr, predicted)
    assert ctr.mean() == pytest.approx(predicted[0], rel=0.03)
    rank_known(known, beliefs, np.zeros(0), ctr, predicted)
    np.testing.assert_array_equal(ctr, predicted)


def test_a_request_ranks_by_the_draw_that_it_chose():
    rng = np.random.default_rng(2)
    draws, known = rng.normal(size=(3, 4, UNKNOWN)), rng.normal(size=(6, 2 + UNKNOWN))
    known[:, 0] = [0, 3, 1, 2, 0, 3]
    ctr = np.empty(6)
    rank_drawn(known, np.array([0, 2, 6]), draws, np.array([2, 0]), ctr)
    ref = [known[n, 1] + known[n, 2:] @ draws[2 if n < 2 else 0, int(known[n, 0])] for n in range(6)]
    np.testing.assert_allclose(ctr, expit(ref))


def test_without_noise_left_thompson_sampling_is_greedy_and_learning_finds_the_best_ad():
    world = AdWorld(5, 2, 2000, 20)
    requests, shown = world.requests(1), np.arange(40_000) % 20
    greedy, drawing = (ReferenceAgent(world, policy, np.random.default_rng(3)) for policy in ("greedy", "thompson"))
    some = requests.part(np.random.default_rng(4).integers(0, len(requests), len(shown)))
    known = known_of(world, some, np.arange(len(shown) + 1), shown.astype(np.int32))
    truth = expit(known[:, 1] + (known[:, 2:] * unknown_of(world)[shown]).sum(axis=1))
    clicks = (np.random.default_rng(5).random(len(shown)) < truth).astype(np.float32)
    indptr = np.arange(0, len(shown) + 1, 20)
    regrets = []
    for agent in (greedy, drawing):
        regrets.append([])
        for part in (slice(0, 0), slice(0, None)):
            agent.learn(known[part], clicks[part])
            agent.publish(DAY)
            ctr, predicted = agent.rank(known, indptr)
            best = indptr[:-1] + ctr.reshape(-1, 20).argmax(axis=1)
            regrets[-1].append(1 - truth[best].mean() / truth.reshape(-1, 20).max(axis=1).mean())
        assert (ctr == predicted).all() == (agent is greedy)
    # Ignorant, a draw is as good as any other; with 2000 impressions of each ad, little is left to gain.
    assert all(before > 0.3 > 0.1 > after for before, after in regrets)
