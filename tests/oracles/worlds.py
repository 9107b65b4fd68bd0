"""Tiny worlds whose truth is known: rows drawn with a latent z and a click with probability Φ(z)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Columns = dict[str, NDArray[Any]]


class Market:
    """Users meet ads on sites; z is a sum of effects plus a product of rank two of user and ad. Few are frequent, many rare."""

    def __init__(self, seed: int, users: int = 40, ads: int = 30, sites: int = 8) -> None:
        self._rng = np.random.default_rng(seed)
        normal = self._rng.normal
        self._sizes = {"user": users, "ad": ads, "site": sites}
        self._user_factors, self._ad_factors = normal(0, 1, (users, 2)), normal(0, 1, (ads, 2))
        self._effects = {"user": normal(0, 0.3, users), "ad": normal(0, 0.4, ads), "site": normal(0, 0.3, sites)}

    def draw(self, n: int) -> tuple[Columns, NDArray[np.float64]]:
        """n rows with their clicks, and the latent z of each."""
        rows = {name: self._rng.choice(size, n, p=_popularity(size)) for name, size in self._sizes.items()}
        pairs = (self._user_factors[rows["user"]] * self._ad_factors[rows["ad"]]).sum(axis=1)
        z = -0.9 + 0.5 * pairs + sum(self._effects[name][rows[name]] for name in rows)
        return rows | {"click": clicks(z, self._rng)}, z


class FromThePrior:
    """Weights drawn from a factorisation machine's own prior: a bias, a weight per feature, and vectors of `dim` numbers."""

    def __init__(self, seed: int, dim: int, embedding: float, linear: float, bias: float) -> None:
        self._rng = np.random.default_rng(seed)
        self._sizes = {"user": 60, "ad": 40, "site": 8}
        normal = self._rng.normal
        self._bias = normal(0, np.sqrt(bias))
        self._weights = {name: normal(0, np.sqrt(linear), size) for name, size in self._sizes.items()}
        self._vectors = {name: normal(0, np.sqrt(embedding), (size, dim)) for name, size in self._sizes.items()}

    def draw(self, n: int) -> tuple[Columns, NDArray[np.float64]]:
        """n rows with their clicks, and the latent z of each."""
        rows = {name: self._rng.choice(size, n, p=_popularity(size)) for name, size in self._sizes.items()}
        z = np.full(n, self._bias)
        for name in rows:
            z += self._weights[name][rows[name]]
        names = list(rows)
        for i, left in enumerate(names):
            for right in names[i + 1 :]:
                z += (self._vectors[left][rows[left]] * self._vectors[right][rows[right]]).sum(axis=1)
        return rows | {"click": clicks(z, self._rng)}, z


def _popularity(size: int) -> NDArray[np.float64]:
    share = np.arange(1, size + 1) ** -0.8
    return share / share.sum()


def clicks(z: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    return (rng.random(len(z)) < stats.norm.cdf(z)).astype(np.int64)


def log_loss(p: NDArray[np.float64], clicked: NDArray[np.int64]) -> float:
    return float(-np.mean(np.log(np.where(clicked == 1, p, 1 - p))))


def places_in_prediction(
    clicked: NDArray[np.int64], shown: NDArray[np.int64], mean: NDArray, variance: NDArray, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Where a number of clicks falls in its predicted distribution: uniform on [0, 1] if the prediction is honest.

    The prediction is binomial with probability Φ(z), z ~ N(mean, variance), taken by Monte Carlo; ties are spread at random.
    """
    z = mean[:, None] + np.sqrt(variance)[:, None] * rng.standard_normal((len(mean), 400))
    p = stats.norm.cdf(z)
    below = stats.binom.cdf(clicked[:, None] - 1, shown[:, None], p).mean(axis=1)
    equal = stats.binom.pmf(clicked[:, None], shown[:, None], p).mean(axis=1)
    return below + rng.random(len(mean)) * equal
