"""The joint prior of the ads is that of the world, and sharing gives the posterior of brute force."""

import numpy as np
import pytest

from pbodl.experiments.ab.ad_hierarchy import AdHierarchy, Beliefs
from pbodl.experiments.ab.ad_market import DAY, MARKETS, make_market

SIZE = 3
KIND = MARKETS["standard"]


@pytest.fixture(scope="module")
def ads():
    return make_market(3, 4, 20, KIND)[0]


def prior_of(ads):
    """By the definition: what two ads have in common, level by level."""
    n = len(ads.bid)
    levels = {"industry": ads.industry, "advertiser": ads.advertiser, "campaign": ads.campaign, "material": ads.material}
    joint = np.zeros((n, SIZE, n, SIZE))
    for i in range(n):
        for j in range(n):
            for k in range(SIZE):
                shares = KIND.taste if k else KIND.quality
                joint[i, k, j, k] = sum(shares.get(level, 0) for level, of in levels.items() if of[i] == of[j])
                joint[i, k, j, k] += shares["ad"] * (i == j)
    return joint.reshape(n * SIZE, n * SIZE)


def learn(beliefs, ad, x, y, noise):
    """A linear observation y = x·θ + noise, by one ad's own Gaussian."""
    along = beliefs.covariance[ad] @ x
    gain = along / (x @ along + noise)
    beliefs.mean[ad] += gain * (y - x @ beliefs.mean[ad])
    beliefs.covariance[ad] -= np.outer(gain, along)


def test_the_worlds_ads_resemble_each_other_as_the_prior_says():
    worlds = [make_market(seed, 2, 40, KIND)[0] for seed in range(60)]
    for shares, values_of in ((KIND.quality, lambda ads: ads.lasting[:, np.newaxis]), (KIND.taste, lambda ads: ads.factors)):
        found = np.mean([likeness(ads, values_of(ads)) for ads in worlds])
        assert found == pytest.approx(shares["industry"] + shares["advertiser"] + shares["campaign"], abs=0.12)


def likeness(ads, values):
    """The mean product of values of two ads of one campaign, but of different materials."""
    alike = (ads.campaign[:, np.newaxis] == ads.campaign) & (ads.material[:, np.newaxis] != ads.material)
    return np.mean((values @ values.T / values.shape[1])[alike])


def test_sharing_is_the_posterior_of_brute_force(ads):
    rng = np.random.default_rng(0)
    hierarchy, joint = AdHierarchy(ads, KIND, SIZE), prior_of(ads)
    beliefs = hierarchy.before()
    alone = np.diag(joint).reshape(-1, SIZE)
    np.testing.assert_allclose(beliefs.covariance, [np.diag(variances) for variances in alone])
    precision, shift = np.linalg.inv(joint), np.zeros(len(joint))
    for until in (1.0, 2.0):
        live = np.flatnonzero(ads.start <= until * DAY)
        for _ in range(60):
            ad, x, y, noise = rng.choice(live), rng.normal(size=SIZE), rng.normal(), 0.7
            learn(beliefs, ad, x, y, noise)
            at = slice(SIZE * ad, SIZE * ad + SIZE)
            precision[at, at] += np.outer(x, x) / noise
            shift[at] += x * y / noise
        hierarchy.share(beliefs, until * DAY, rng, 0)
        covariance = np.linalg.inv(precision)
        mean = (covariance @ shift).reshape(-1, SIZE)
        np.testing.assert_allclose(beliefs.mean[live], mean[live], atol=1e-8)
        for ad in live:
            np.testing.assert_allclose(beliefs.covariance[ad], covariance[SIZE * ad :, SIZE * ad :][:SIZE, :SIZE], atol=1e-8)


def test_draws_have_the_moments_of_the_posterior(ads):
    hierarchy, rng = AdHierarchy(ads, KIND, SIZE), np.random.default_rng(1)
    beliefs, joint = hierarchy.before(), prior_of(ads)
    drawn = hierarchy.share(beliefs, 2 * DAY, rng, 20_000)
    live = np.flatnonzero(ads.start <= 2 * DAY)
    assert not drawn[:, ads.start > 2 * DAY].any()
    found = np.einsum("dik,djk->kij", drawn[:, live], drawn[:, live]) / len(drawn)
    ref = joint.reshape(len(ads.bid), SIZE, len(ads.bid), SIZE)[live][:, :, live]
    for k in range(SIZE):
        np.testing.assert_allclose(found[k], ref[:, k, :, k], atol=0.05)


def test_where_nothing_is_shared_the_agent_need_not_share():
    kind = MARKETS["quality"]
    ads = make_market(3, 2, 10, kind)[0]
    assert AdHierarchy(ads, kind, SIZE).independent and not AdHierarchy(ads, KIND, SIZE).independent
    assert isinstance(AdHierarchy(ads, kind, SIZE).before(), Beliefs)
