"""The reference agent knows the true effects of users and contexts, the form of the truth, and the prior that ads are drawn from.

The log-odds of `ad_world` are linear in what it does not know, an ad's quality and factors, θ = (a₀, a, a', a"):
    η = offset + x·θ       offset = b + s₁ u₀ + s₂ c₀       x = (s₃, s₄ u, s₅ c, s₆ u" c")
In the quality market ads are drawn independently from N(0, 1), so one Gaussian N(m, P) per ad, learned by Laplace's approximation
sample by sample, is all but the true posterior:
    p = σ(η at m)    w = p (1-p)    v = x'P x    m += P x (y-p)/(1 + w v)    P -= P x x'P w/(1 + w v)
What it gains by exploring is what exploring can gain in this market.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.experiments.ab.ad_market import FACTORS, HOUR, PAIR, TRIPLE
from pbodl.experiments.ab.ad_world import HOURS, WIDTH, AdWorld, Requests, context_of

KNOWN = 3 + FACTORS  # what is known about a pair: the ad's number, the offset, and x
UNKNOWN = 1 + FACTORS  # length of x


class Beliefs(NamedTuple):
    """The agent's Gaussians, one per ad."""

    mean: NDArray[np.float64]  # [ads, UNKNOWN]
    covariance: NDArray[np.float64]  # [ads, UNKNOWN, UNKNOWN]

    @classmethod
    def before(cls, ads: int) -> "Beliefs":
        """The prior."""
        return cls(np.zeros((ads, UNKNOWN)), np.tile(np.eye(UNKNOWN), (ads, 1, 1)))


@jit
def _known(requests, truth, indptr, ads, known):
    """MODIFIES: known (pairs, KNOWN)."""
    context, scales = np.empty(WIDTH, np.float32), truth.scales
    for i in range(len(indptr) - 1):
        hour = np.int64(requests.time[i] / HOUR) % HOURS
        context_of(truth, requests.site[i], requests.position[i], requests.connection[i], hour, context)
        u = truth.user[requests.user[i]]
        for n in range(indptr[i], indptr[i + 1]):
            known[n, 0], known[n, 1], known[n, 2] = ads[n], truth.intercept + scales[0] * u[0] + scales[1] * context[0], scales[2]
            for k in range(PAIR):
                known[n, 3 + k], known[n, 3 + PAIR + k] = scales[3] * u[1 + k], scales[4] * context[1 + k]
            for k in range(TRIPLE):
                known[n, 3 + 2 * PAIR + k] = scales[5] * u[1 + PAIR + k] * context[1 + PAIR + k]


def known_of(world: AdWorld, requests: Requests, indptr: NDArray[np.int64], ads: NDArray[np.int32]) -> NDArray[np.float64]:
    """What is known about pairs of requests and ads, [pairs, KNOWN]."""
    known = np.empty((len(ads), KNOWN))
    _known(requests, world.truth, indptr, ads, known)
    return known


@jit
def learn_known(known, clicks, beliefs):
    """Learn impressions one after the other. MODIFIES: beliefs."""
    along = np.empty(UNKNOWN)
    for n in range(len(clicks)):
        ad, x = int(known[n, 0]), known[n, 2:]
        m, p = beliefs.mean[ad], beliefs.covariance[ad]
        odds, v = known[n, 1], 0.0
        for i in range(UNKNOWN):
            along[i] = 0.0
            for j in range(UNKNOWN):
                along[i] += p[i, j] * x[j]
            odds += x[i] * m[i]
            v += x[i] * along[i]
        chance = 1.0 / (1.0 + math.exp(-odds))
        w = chance * (1.0 - chance)
        for i in range(UNKNOWN):
            m[i] += along[i] * (clicks[n] - chance) / (1.0 + w * v)
            for j in range(UNKNOWN):
                p[i, j] -= along[i] * along[j] * w / (1.0 + w * v)


@jit
def rank_known(known, beliefs, noise, ctr, predicted):
    """The CTRs to rank by, with the noise of each pair in deviations, and the predicted ones. MODIFIES: ctr, predicted."""
    for n in range(len(known)):
        ad, x = int(known[n, 0]), known[n, 2:]
        m, p = beliefs.mean[ad], beliefs.covariance[ad]
        odds, v = known[n, 1], 0.0
        for i in range(UNKNOWN):
            odds += x[i] * m[i]
            for j in range(UNKNOWN):
                v += x[i] * p[i, j] * x[j]
        # The mean of σ under a Gaussian, by the usual approximation.
        predicted[n] = 1.0 / (1.0 + math.exp(-odds / math.sqrt(1.0 + math.pi * v / 8.0)))
        ctr[n] = predicted[n] if len(noise) == 0 else 1.0 / (1.0 + math.exp(-odds - math.sqrt(v) * noise[n]))
