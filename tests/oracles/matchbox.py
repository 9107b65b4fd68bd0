"""MatchBox message by message, in natural parameters and float64, with nothing simplified.

The variational message of the product is not taken from its formula but from its definition: the logarithm of the message to s is
E_t[log N(s t; μ, σ²)], a parabola in s whose coefficients are read off three points, the expectation taken by quadrature.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(12)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Natural(NamedTuple):
    precision: float
    precision_mean: float

    @classmethod
    def of(cls, mean: float, variance: float) -> "Natural":
        return cls(1.0 / variance, mean / variance)

    def times(self, other: "Natural") -> "Natural":
        return Natural(self.precision + other.precision, self.precision_mean + other.precision_mean)

    def over(self, other: "Natural") -> "Natural":
        return Natural(self.precision - other.precision, self.precision_mean - other.precision_mean)

    @property
    def mean(self) -> float:
        return self.precision_mean / self.precision

    @property
    def variance(self) -> float:
        return 1.0 / self.precision


def truncated(mean: float, variance: float, sign: float) -> tuple[float, float]:
    """Mean and variance of a Gaussian that is known to have this sign."""
    deviation = np.sqrt(variance)
    bounds = (-mean / deviation, np.inf) if sign > 0 else (-np.inf, -mean / deviation)
    law = stats.truncnorm(*bounds, loc=mean, scale=deviation)
    return float(law.mean()), float(law.var())


def product_moments(s: Natural, t: Natural) -> tuple[float, float]:
    """Mean and variance of s t for independent Gaussians, by quadrature over both."""
    values = np.outer(s.mean + np.sqrt(s.variance) * NODES, t.mean + np.sqrt(t.variance) * NODES)
    both = np.outer(WEIGHTS, WEIGHTS)
    mean = float((both * values).sum())
    return mean, float((both * values**2).sum()) - mean**2


def product_message(other: Natural, mean: float, variance: float) -> Natural:
    """The variational message to one factor of a product that is told to be N(mean, variance), given the other's marginal."""
    draws = other.mean + np.sqrt(other.variance) * NODES
    below, at, above = ((WEIGHTS * -((s * draws - mean) ** 2) / (2 * variance)).sum() for s in (-1.0, 0.0, 1.0))
    return Natural(float(2 * at - above - below), float((above - below) / 2))


class NaiveMatchBox:
    """Weights (name, feature) -> (mean, variance): names 0 ... K-1 the traits, "b" the bias."""

    def __init__(self, dim: int, beta: float, rounds: int, settled: float, initial: Any) -> None:
        self.dim, self.beta, self.rounds, self.settled, self.initial = dim, beta, rounds, settled, initial
        self.weights: dict[Any, tuple[float, float]] = {}

    def weight(self, name: Any, feature: Any) -> tuple[float, float]:
        return self.weights.get((name, feature)) or self.initial(name, feature)

    def total(self, name: Any, side: dict[Any, float]) -> Natural:
        parts = [(x, *self.weight(name, feature)) for feature, x in side.items()]
        return Natural.of(sum(x * m for x, m, _ in parts), sum(x * x * v for x, _, v in parts))

    def latent(self, user: dict[Any, float], ad: dict[Any, float]) -> tuple[float, float]:
        """Mean and variance of r without noise."""
        z = [product_moments(self.total(k, user), self.total(k, ad)) for k in range(self.dim)]
        b = self.total("b", {**user, **ad, "always": 1.0})
        return b.mean + sum(mean for mean, _ in z), b.variance + sum(variance for _, variance in z)

    def learn(self, user: dict[Any, float], ad: dict[Any, float], click: int) -> None:
        sign = 1.0 if click else -1.0
        everything = {**user, **ad, "always": 1.0}
        s_prior, t_prior = ([self.total(k, side) for k in range(self.dim)] for side in (user, ad))
        b = self.total("b", everything)
        s, t = list(s_prior), list(t_prior)
        for _ in range(self.rounds):
            before = s + t
            z = [product_moments(s[k], t[k]) for k in range(self.dim)]
            mean, variance = b.mean + sum(m for m, _ in z), b.variance + sum(v for _, v in z) + self.beta**2
            r = Natural.of(*truncated(mean, variance, sign)).over(Natural.of(mean, variance))
            for k in range(self.dim):
                mean_z, variance_z = r.mean - (mean - z[k][0]), r.variance + (variance - z[k][1])
                s[k] = s_prior[k].times(product_message(t[k], mean_z, variance_z))
                t[k] = t_prior[k].times(product_message(s[k], mean_z, variance_z))
            steps = [abs(new.mean - old.mean) / np.sqrt(new.variance) for new, old in zip(s + t, before, strict=True)]
            if max(steps) < self.settled:
                break
        to_b = Natural.of(r.mean - (mean - b.mean), r.variance + (variance - b.variance))
        for k in range(self.dim):
            self.spread(k, user, s[k].over(s_prior[k]))
            self.spread(k, ad, t[k].over(t_prior[k]))
        self.spread("b", everything, to_b)

    def spread(self, name: Any, side: dict[Any, float], message: Natural) -> None:
        """The exact message of a sum to each of its terms."""
        old = {feature: self.weight(name, feature) for feature in side}
        for feature, x in side.items():
            others = [(side[f], *old[f]) for f in side if f != feature]
            mean = message.mean - sum(y * m for y, m, _ in others)
            variance = message.variance + sum(y * y * v for y, _, v in others)
            new = Natural.of(*old[feature]).times(Natural(x * x / variance, x * mean / variance))
            self.weights[name, feature] = (new.mean, new.variance)
