"""The prior of all ads together, and the posterior when each ad has seen its own clicks.

An ad's quality and each of its factors are sums over the levels of the market, so that ads of one campaign resemble each other:
    Cov(θ_i, θ_j) = K_ij        K = Σ shares of the levels that i and j have in common, for quality and for factors
An impression tells about one ad alone, so what all impressions say is one site N(A_i⁻¹ h_i, A_i⁻¹) per ad, and the posterior is
    precision  Λ = K⁻¹ + diag(A₁, A₂, ...)        mean  Λ⁻¹ h
Between two calls of `share` each ad learns by itself from its marginal; the change of its precision is what its site gained.
Ads that are not on the market yet say nothing, and are left out: their turn comes with their first `share`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from pbodl.errors import InputError
from pbodl.experiments.ab.ad_market import Ads, MarketKind

Floats = NDArray[np.float64]


class Beliefs(NamedTuple):
    """Gaussians, one per ad."""

    mean: Floats  # [ads, unknown]
    covariance: Floats  # [ads, unknown, unknown]


class AdHierarchy:
    """The joint Gaussian of all ads' θ, of `unknown` numbers each: quality, and then factors."""

    def __init__(self, ads: Ads, kind: MarketKind, unknown: int) -> None:
        self.ads, self.unknown = ads, unknown
        self.independent = set(kind.quality) == set(kind.taste) == {"ad"}
        self._prior = [_prior(ads, kind.quality), *[_prior(ads, kind.taste)] * (unknown - 1)]
        n = len(ads.bid)
        self._precision, self._shift = np.zeros((n, unknown, unknown)), np.zeros((n, unknown))  # the sites A and h
        self._before = self.before()

    def before(self) -> Beliefs:
        """The prior of every ad by itself."""
        variances = np.stack([np.diag(prior) for prior in self._prior], axis=1)
        return Beliefs(np.zeros_like(variances), variances[:, :, np.newaxis] * np.eye(self.unknown))

    def share(self, beliefs: Beliefs, until: float, noise: np.random.Generator, draws: int) -> Floats:
        """Replace the beliefs about the ads on the market up to `until` by the marginals of the joint posterior.

        Returns draws of θ, [draws, ads, unknown]; those of later ads are zero. MODIFIES: beliefs.
        """
        self._update_sites(beliefs)
        live, size = np.flatnonzero(self.ads.start <= until), self.unknown
        n = len(live)
        joint = np.zeros((n, size, n, size))
        inverses = [np.linalg.inv(self._prior[k][np.ix_(live, live)]) for k in (0, 1)]
        for k in range(size):
            joint[:, k, :, k] = inverses[min(k, 1)]
        joint[np.arange(n), :, np.arange(n), :] += self._precision[live]
        lower, failed = lapack.dpotrf(joint.reshape(n * size, n * size), lower=True, clean=True)
        if failed:
            raise InputError("the joint precision of the ads is not positive definite")
        half = solve_triangular(lower, self._shift[live].reshape(-1), lower=True)
        mean = solve_triangular(lower, half, lower=True, trans="T").reshape(n, size)
        inverse, _ = lapack.dpotri(lower, lower=True)
        blocks = inverse.reshape(n, size, n, size)[np.arange(n), :, np.arange(n), :]
        low = np.tril(blocks)
        beliefs.mean[live] = mean
        beliefs.covariance[live] = low + np.tril(blocks, -1).transpose(0, 2, 1)
        self._before = Beliefs(beliefs.mean.copy(), beliefs.covariance.copy())
        drawn = np.zeros((draws, len(self.ads.bid), size))
        if draws:
            spread = solve_triangular(lower, noise.standard_normal((n * size, draws)), lower=True, trans="T")
            drawn[:, live] = mean + spread.T.reshape(draws, n, size)
        return drawn

    def _update_sites(self, beliefs: Beliefs) -> None:
        """Add what the ads learned since the last call."""
        learned = np.flatnonzero((beliefs.covariance != self._before.covariance).any(axis=(1, 2)))
        new, old = np.linalg.inv(beliefs.covariance[learned]), np.linalg.inv(self._before.covariance[learned])
        self._precision[learned] += new - old
        self._shift[learned] += np.einsum("nij,nj->ni", new, beliefs.mean[learned])
        self._shift[learned] -= np.einsum("nij,nj->ni", old, self._before.mean[learned])


def _prior(ads: Ads, shares: dict[str, float]) -> Floats:
    """The covariance of one number of all ads."""
    levels = {"industry": ads.industry, "advertiser": ads.advertiser, "campaign": ads.campaign, "material": ads.material}
    covariance = shares["ad"] * np.eye(len(ads.bid))
    for level, of in levels.items():
        covariance += shares.get(level, 0.0) * (of[:, np.newaxis] == of)
    return covariance
