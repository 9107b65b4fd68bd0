"""Paired bootstrap: is the difference between two models on the same rows more than chance?"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CLIP = 1e-7  # predictions are kept in float32


class Difference(NamedTuple):
    """Model minus reference, with its 95 % interval."""

    auc: float
    auc_low: float
    auc_high: float
    log_loss: float
    log_loss_low: float
    log_loss_high: float


def resampled(models: Sequence[NDArray[np.float32]], clicks: NDArray[np.uint8], replicates: int = 200, seed: int = 0) -> Floats:
    """AUC and log loss of every model, on the rows themselves and on each replicate: (1 + replicates, models, 2).

    A replicate draws every row Poisson(1) times, the same for all models.
    """
    rng = np.random.default_rng(seed)
    ranks = [_ranked(predicted) for predicted in models]
    losses = [_loss(predicted, clicks) for predicted in models]
    clicked = clicks > 0
    figures = np.empty((replicates + 1, len(models), 2))
    for draw, replicate in enumerate(figures):
        weights = rng.poisson(1.0, len(clicks)).astype(np.float64) if draw else np.ones(len(clicks))
        for number, (rank, loss) in enumerate(zip(ranks, losses, strict=True)):
            replicate[number] = _auc(rank, clicked, weights), weights @ loss / weights.sum()
    return figures


def difference(figures: Floats, model: int, reference: int) -> Difference:
    """Model minus reference, by their indices in `resampled`."""
    drawn = figures[:, model] - figures[:, reference]
    low, high = np.quantile(drawn[1:], [0.025, 0.975], axis=0)
    return Difference(drawn[0, 0], low[0], high[0], drawn[0, 1], low[1], high[1])


def paired_difference(
    model: NDArray[np.float32], reference: NDArray[np.float32], clicks: NDArray[np.uint8], replicates: int = 200, seed: int = 0
) -> Difference:
    """The difference of two models in AUC and log loss."""
    return difference(resampled([model, reference], clicks, replicates, seed), 0, 1)


def _ranked(predicted: NDArray[np.float32]) -> NDArray[np.int64]:
    """The rank of each row's prediction among the distinct ones."""
    return np.unique(predicted, return_inverse=True)[1]


def _loss(predicted: NDArray[np.float32], clicks: NDArray[np.uint8]) -> NDArray[np.float64]:
    p = np.clip(predicted.astype(np.float64), CLIP, 1.0 - CLIP)
    return -np.where(clicks > 0, np.log(p), np.log1p(-p))


def _auc(rank: NDArray[np.int64], clicked: NDArray[np.bool_], weights: NDArray[np.float64]) -> float:
    size = int(rank.max()) + 1
    negatives = np.bincount(rank, weights=weights * ~clicked, minlength=size)
    positives = np.bincount(rank, weights=weights * clicked, minlength=size)
    below = np.cumsum(negatives) - negatives
    return float(positives @ (below + 0.5 * negatives) / (negatives.sum() * positives.sum()))
