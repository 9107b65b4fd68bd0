"""What negative sampling does to a prediction beyond its CTR: to the CTR's standard deviation, and to the latent Gaussian.

A model that learns from a share w of the negatives predicts p for that stream. The whole stream has the odds q/(1-q) = w p/(1-p)
(`data.sampling.recalibrate`), so dq/dp = q (1-q)/(p (1-p)), which multiplies the standard deviation.

The latent Gaussian N(m, v) of a probit model has p = Φ(h) with h = m/√(1+v), and to first order a CTR of variance φ(h)² ρ with
ρ = v/(1+v). The recalibrated one, N(m', v'), has q = Φ(h'), and ρ' = (dh'/dh)² ρ, so that its CTR has the recalibrated standard
deviation. h' has no formula; Newton's method finds it on the scale of the log-odds, where it is almost a straight line.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pbodl.kernels.click_moments import click_moments
from pbodl.kernels.network import click_probability

if TYPE_CHECKING:
    from pbodl.models.contract import Model, Prediction

Floats = NDArray[np.float64]
STEPS = 12
LARGEST_SHARE = 0.999  # of ρ', which an approximation could carry beyond 1


def ctr_deviation(ctr: Floats, mean: Floats, variance: Floats) -> Floats:
    """The standard deviation of recalibrated CTRs, whose latent Gaussians are not recalibrated."""
    sampled, deviation = np.empty(len(ctr)), np.empty(len(ctr))
    click_moments(mean.astype(np.float32), variance.astype(np.float32), sampled, deviation)
    spread = sampled * (1.0 - sampled)
    return deviation * np.where(spread > 0.0, ctr * (1.0 - ctr) / np.where(spread > 0.0, spread, 1.0), 1.0)


def recalibrated_latent(model: "Model", predicted: "Prediction") -> tuple[Floats, Floats]:
    """Mean and standard deviation of the latent Gaussian behind the recalibrated CTR."""
    _, mean, variance = predicted
    kept = model.negative_rate
    if kept == 1.0:
        return mean, np.sqrt(variance)
    if model.link == "logit":
        return mean + np.log(kept), np.sqrt(variance)
    h = mean / np.sqrt(1.0 + variance)
    log_odds, slope = _log_odds(h)
    wanted, moved = log_odds + np.log(kept), h
    for _ in range(STEPS):
        reached, tangent = _log_odds(moved)
        moved = moved + (wanted - reached) / tangent
    share = np.minimum((slope / _log_odds(moved)[1]) ** 2 * variance / (1.0 + variance), LARGEST_SHARE)
    variance = share / (1.0 - share)
    return moved * np.sqrt(1.0 + variance), np.sqrt(variance)


def _log_odds(h: Floats) -> tuple[Floats, Floats]:
    """log Φ(h)/Φ(-h), and its derivative."""
    h = np.clip(h, -30.0, 30.0)
    above, below, none = np.empty(len(h)), np.empty(len(h)), np.zeros(len(h))
    click_probability(h, none, above)
    click_probability(-h, none, below)
    return np.log(above / below), np.exp(-0.5 * h * h) / (np.sqrt(2.0 * np.pi) * above * below)
