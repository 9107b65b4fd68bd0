"""Products of Gaussian densities on a grid, and the posterior of a linear probit model by drawing: no natural parameters here."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Floats = NDArray[np.float64]


def product_moments(*gaussians: tuple[float, float]) -> tuple[float, float]:
    """Mean and variance of the normalised product of densities N(mean, variance), by the trapezium rule."""
    narrowest = min(variance for _, variance in gaussians)
    low, high = min(m for m, _ in gaussians), max(m for m, _ in gaussians)
    x = np.linspace(low - 12 * np.sqrt(narrowest), high + 12 * np.sqrt(narrowest), 400_001)
    log = sum(-0.5 * (x - mean) ** 2 / variance for mean, variance in gaussians)
    share = np.exp(log - np.max(log))
    share /= share.sum()
    mean = float(share @ x)
    return mean, float(share @ (x - mean) ** 2)


class Moments(NamedTuple):
    mean: Floats
    covariance: Floats

    def divergence(self, mean: Floats, variance: Floats) -> float:
        """KL of a Gaussian with independent weights from the Gaussian with these moments."""
        precision = np.linalg.inv(self.covariance)
        apart = mean - self.mean
        spread = np.linalg.slogdet(self.covariance)[1] - np.log(variance).sum()
        return float(0.5 * ((np.diag(precision) * variance).sum() + apart @ precision @ apart - len(mean) + spread))


def probit_posterior(features: Floats, clicks: Floats, prior_variance: float, draws: int = 1_000_000, seed: int = 0) -> Moments:
    """Moments of the posterior of w ~ N(0, prior_variance) given clicks with probability Φ(features w), by draws from the prior."""
    w = np.random.default_rng(seed).normal(0.0, np.sqrt(prior_variance), (draws, features.shape[1]))
    log = np.zeros(draws)
    cells, which = np.unique(features, axis=0, return_inverse=True)
    for number, cell in enumerate(cells):
        yes = float(clicks[which.ravel() == number].sum())
        z = w @ cell
        log += yes * log_ndtr(z) + (float((which.ravel() == number).sum()) - yes) * log_ndtr(-z)
    share = np.exp(log - log.max())
    share /= share.sum()
    mean = share @ w
    return Moments(mean, ((w - mean) * share[:, None]).T @ (w - mean))
