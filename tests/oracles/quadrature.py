"""Integrals by brute force: excess moments of the normal distribution, rectified Gaussians, and the posterior of one weight."""

from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
from numpy.typing import NDArray

DIGITS = 40


class Rectified(NamedTuple):
    """z = max(0, s (Z + α)) for s = 1, with what its derivatives need."""

    mean: Any
    variance: Any
    above: Any  # Φ(α)
    below: Any  # 1 - Φ(α)
    density: Any  # φ(α)


def excess_moment(x: float, power: int) -> Any:
    """E[(Z-x)₊^power]/φ(x) = ∫₀^∞ u^power exp(-x u - u²/2) du, for x ≥ 0."""
    with mpmath.workdps(DIGITS):
        x = mpmath.mpf(x)
        scale = 1 / (1 + x)
        return mpmath.quad(lambda u: u**power * mpmath.exp(-x * u - u * u / 2), [0, scale, 8 * scale, 50 * scale, mpmath.inf])


def rectified(alpha: float) -> Rectified:
    """Moments of max(0, Z + α) by the textbook formulas, with so many digits that their cancellation in the tail does no harm."""
    with mpmath.workdps(3 * DIGITS):
        a = mpmath.mpf(alpha)
        phi, above, below = mpmath.npdf(a), mpmath.erfc(-a / mpmath.sqrt(2)) / 2, mpmath.erfc(a / mpmath.sqrt(2)) / 2
        mean = a * above + phi
        return Rectified(mean, (a * a + 1) * above + a * phi - mean**2, above, below, phi)


def rectified_by_integration(alpha: float) -> tuple[Any, Any]:
    """Mean and variance of max(0, Z + α) by integration over the side of 0 that has the smaller share."""
    with mpmath.workdps(DIGITS):
        x = abs(mpmath.mpf(alpha))
        first, second = (mpmath.npdf(x) * excess_moment(float(x), power) for power in (1, 2))
        if alpha < 0:
            return first, second - first**2
        mean = x + first  # since max(0, a) = a + max(0, -a)
        return mean, 1 + x * x - second - mean**2


def posterior(mean: float, variance: float, log_likelihood: Callable[[NDArray], NDArray]) -> tuple[float, float, float]:
    """Normalisation, mean and variance of N(w | mean, variance) times a likelihood, by the trapezium rule on 80 deviations
    in steps of 1/1000."""
    u = np.linspace(-40.0, 40.0, 80_001)
    log = log_likelihood(mean + np.sqrt(variance) * u) - 0.5 * u**2
    top = log.max()
    density = np.exp(log - top)
    share = density / density.sum()
    centre = float(share @ u)
    z = density.sum() * np.exp(top) * 1e-3 / np.sqrt(2 * np.pi)
    return float(z), mean + np.sqrt(variance) * centre, variance * float(share @ (u - centre) ** 2)
