"""What a row is worth, from its definition: divergence by numerical integration, and a half-life of the mean age."""

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, stats


def divergence(mean: float, variance: float, start: float, prior: float) -> float:
    """∫ p log(p/q) for p = N(mean, variance), q = N(start, prior)."""
    p, q = stats.norm(mean, np.sqrt(variance)), stats.norm(start, np.sqrt(prior))
    width = 12 * np.sqrt(variance)

    def integrand(x: float) -> float:
        return p.pdf(x) * (p.logpdf(x) - q.logpdf(x))

    return integrate.quad(integrand, mean - width, mean + width, points=[mean], epsabs=1e-12)[0]


def forgotten(variance: NDArray, prior: float, half_lives: NDArray) -> NDArray:
    """Variances after forgetting towards the prior, in precisions."""
    return 1.0 / (1.0 / prior + 0.5**half_lives * (1.0 / variance - 1.0 / prior))


def score(divergences: NDArray, last_seen: NDArray, now: float) -> NDArray:
    """Sum of a row's divergences, halved for every mean age of the rows that it has not been seen."""
    ages = now - last_seen
    return divergences.sum(axis=1) * 0.5 ** (ages / ages.mean())
