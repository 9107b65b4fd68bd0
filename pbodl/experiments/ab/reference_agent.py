"""The reference agent knows the true effects of users and contexts, the form of the truth, and the prior that ads are drawn from.

The log-odds of `ad_world` are linear in what it does not know, an ad's lasting quality and its factors, θ = (a₀, a, a', a"):
    η = offset + x·θ       offset = b + s₁ u₀ + s₂ c₀ + s₃ drift       x = (s₃, s₄ u, s₅ c, s₆ u" c")
It is told how quality has drifted. Every ad has one Gaussian N(m, P), learned by Laplace's approximation sample by sample:
    p = σ(η at m)    w = p (1-p)    v = x'P x    m += P x (y-p)/(1 + w v)    P -= P x x'P w/(1 + w v)
In the quality market ads are drawn independently, so this is all but the true posterior. Where ads share an industry, an advertiser
or a campaign, `ad_hierarchy` makes the Gaussians of all ads consistent at every update.

What it gains by exploring is what exploring can gain in this market.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.experiments.ab.ad_hierarchy import AdHierarchy, Beliefs
from pbodl.experiments.ab.ad_market import FACTORS, HOUR, PAIR, TRIPLE
from pbodl.experiments.ab.ad_world import HOURS, WIDTH, AdWorld, Requests, context_of

KNOWN = 3 + FACTORS  # what is known about a pair: the ad's number, the offset, and x
UNKNOWN = 1 + FACTORS  # length of x
DRAWS = 64  # joint draws of all ads at an update; each request takes one


class Ranked(NamedTuple):
    """The CTRs to rank by, and the predicted ones."""

    ctr: NDArray[np.float64]
    predicted: NDArray[np.float64]


@jit
def _known(requests, truth, indptr, ads, known):
    """MODIFIES: known (pairs, KNOWN)."""
    context, scales = np.empty(WIDTH, np.float32), truth.scales
    for i in range(len(indptr) - 1):
        hour = np.int64(requests.time[i] / HOUR)
        context_of(truth, requests.site[i], requests.position[i], requests.connection[i], hour % HOURS, context)
        u = truth.user[requests.user[i]]
        for n in range(indptr[i], indptr[i + 1]):
            drift = truth.quality[ads[n], hour] - truth.lasting[ads[n]]
            offset = truth.intercept + scales[0] * u[0] + scales[1] * context[0] + scales[2] * drift
            known[n, 0], known[n, 1], known[n, 2] = ads[n], offset, scales[2]
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


@jit
def rank_drawn(known, indptr, draws, chosen, ctr):
    """The CTRs under the draw of all ads' θ that each request has chosen. MODIFIES: ctr."""
    for i in range(len(indptr) - 1):
        theta = draws[chosen[i]]
        for n in range(indptr[i], indptr[i + 1]):
            odds, of_ad = known[n, 1], theta[int(known[n, 0])]
            for j in range(UNKNOWN):
                odds += known[n, 2 + j] * of_ad[j]
            ctr[n] = 1.0 / (1.0 + math.exp(-odds))


class ReferenceAgent:
    """The agent of one arm."""

    def __init__(self, world: AdWorld, policy: str, noise: np.random.Generator) -> None:
        self.policy, self._noise = policy, noise
        self.hierarchy = AdHierarchy(world.ads, world.kind, UNKNOWN)
        self.beliefs: Beliefs = self.hierarchy.before()
        self._draws = np.empty((0, 0, 0))

    def learn(self, known: NDArray[np.float64], clicks: NDArray[np.float32]) -> None:
        learn_known(known, clicks, self.beliefs)

    def publish(self, until: float) -> None:
        """Let the ads on the market up to the next update learn from each other, and draw, if the policy needs it."""
        if not self.hierarchy.independent:
            draws = DRAWS if self.policy == "thompson" else 0
            self._draws = self.hierarchy.share(self.beliefs, until, self._noise, draws)

    def rank(self, known: NDArray[np.float64], indptr: NDArray[np.int64]) -> Ranked:
        thompson, joint = self.policy == "thompson", not self.hierarchy.independent
        noise = self._noise.standard_normal(len(known) if thompson and not joint else 0)
        ctr, predicted = np.empty(len(known)), np.empty(len(known))
        rank_known(known, self.beliefs, noise, ctr, predicted)
        if thompson and joint:
            rank_drawn(known, indptr, self._draws, self._noise.integers(0, DRAWS, len(indptr) - 1), ctr)
        return Ranked(ctr, predicted)
