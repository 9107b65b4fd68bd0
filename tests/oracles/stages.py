"""What is known of a click that comes late, from first principles: histories, their likelihoods, and posteriors by quadrature.

An impression is clicked with probability p; of its clicks, the fraction F(age) comes by an age. Nothing here knows of stages as
ratios: a history has the probability of what was seen.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

DIGITS = 40


class Stage(NamedTuple):
    """What one look at an impression says."""

    clicked: bool
    before: float
    by: float


def history_likelihood(p: NDArray, stages: Sequence[Stage]) -> NDArray:
    """The probability of what is known after the last of an impression's stages, by p."""
    last = stages[-1]
    return p * (last.by - last.before) if last.clicked else 1.0 - p * last.by


def histories(fractions: Sequence[float]) -> list[list[Stage]]:
    """All that can happen to an impression that is looked at when these fractions of the clicks have come: clicked in stage k, or
    never."""
    edges = [0.0, *fractions]
    open_stages = [Stage(False, edges[k], edges[k + 1]) for k in range(len(fractions))]
    clicked = [[*open_stages[:k], Stage(True, edges[k], edges[k + 1])] for k in range(len(fractions))]
    return [*clicked, open_stages]


def precise_parts(t: Any, stage: Stage) -> tuple[Any, Any]:
    """Numerator and denominator of a stage's likelihood at p = Φ(t), without rounding; a click without its factor b - a."""
    p = mpmath.erfc(-t / mpmath.sqrt(2)) / 2
    not_p = mpmath.erfc(t / mpmath.sqrt(2)) / 2
    by, before = (1 - mpmath.mpf(f) + mpmath.mpf(f) * not_p for f in (stage.by, stage.before))
    return (p if stage.clicked else by), before


def precise_slopes(t: float, stage: Stage) -> tuple[float, float]:
    """The first derivative of log Z of a stage by t, and minus the second, with many digits."""
    with mpmath.workdps(DIGITS):

        def log_z(x: Any) -> Any:
            above, below = precise_parts(x, stage)
            return mpmath.log(above) - mpmath.log(below)

        return float(mpmath.diff(log_z, mpmath.mpf(t))), float(-mpmath.diff(log_z, mpmath.mpf(t), 2))


def chance(p: float, stage: Stage) -> float:
    """The probability that an impression that was open before a stage is clicked within it."""
    return p * (stage.by - stage.before) / (1.0 - stage.before * p)


def posterior_of(mean: float, variance: float, likelihood: Callable[[NDArray], NDArray]) -> tuple[float, float]:
    """Mean and variance of N(z | mean, variance) times a likelihood of p = Φ(z), by the trapezium rule."""
    u = np.linspace(-12.0, 12.0, 60_001)
    z = mean + np.sqrt(variance) * u
    density = np.exp(-0.5 * u**2) * likelihood(ndtr(z))
    share = density / density.sum()
    centre = float(share @ z)
    return centre, float(share @ (z - centre) ** 2)
