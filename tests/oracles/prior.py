"""Weights that are observed directly, w ~ N(0, v₀), y = w + noise: everything about their prior in closed form, float64."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def posterior(seen: Floats, precision: Floats, v_prior: float, draw: Floats) -> tuple[Floats, Floats]:
    """Bayes from scratch: mean and variance of weights that start at N(draw, v_prior), seen with a noise of this precision."""
    total = precision + 1.0 / v_prior
    return (precision * seen + draw / v_prior) / total, 1.0 / total


def log_evidence(seen: Floats, precision: Floats, v_prior: float) -> float:
    """log Π N(y; 0, v₀ + noise)."""
    variance = v_prior + 1.0 / precision
    return float(-0.5 * (np.log(variance) + seen**2 / variance).sum())


def likeliest_variance(seen: Floats, precision: Floats, candidates: Floats) -> float:
    """The candidate of the largest evidence: no derivative, no fixed point."""
    return float(max(candidates, key=lambda variance: log_evidence(seen, precision, variance)))
