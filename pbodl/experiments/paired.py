"""Paired bootstrap: is the difference between two models on the same rows more than chance?"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CLIP = 1e-7  # predictions are kept in float32


class Difference(NamedTuple):
    """Model minus reference, with its 95 % interval."""

    auc: float
    auc_low: float
    auc_high: float
    log_loss: float
    log_loss_low: float
    log_loss_high: float


def paired_difference(
    model: NDArray[np.float32], reference: NDArray[np.float32], clicks: NDArray[np.uint8], replicates: int = 200, seed: int = 0
) -> Difference:
    """The difference in AUC and log loss; every row is drawn Poisson(1) times, for both models alike."""
    rng = np.random.default_rng(seed)
    places = [_ranked(p) for p in (model, reference)]
    losses = [_loss(p, clicks) for p in (model, reference)]
    clicked = clicks > 0
    drawn = np.empty((replicates + 1, 2))
    for i in range(replicates + 1):
        weights = np.ones(len(clicks)) if i == 0 else rng.poisson(1.0, len(clicks)).astype(np.float64)
        auc = [_auc(place, clicked, weights) for place in places]
        loss = [float(weights @ each / weights.sum()) for each in losses]
        drawn[i] = auc[0] - auc[1], loss[0] - loss[1]
    low, high = np.quantile(drawn[1:], [0.025, 0.975], axis=0)
    return Difference(drawn[0, 0], low[0], high[0], drawn[0, 1], low[1], high[1])


def _ranked(predicted: NDArray[np.float32]) -> NDArray[np.int64]:
    """For each row the place of its prediction among the distinct ones."""
    return np.unique(predicted, return_inverse=True)[1]


def _loss(predicted: NDArray[np.float32], clicks: NDArray[np.uint8]) -> NDArray[np.float64]:
    p = np.clip(predicted.astype(np.float64), CLIP, 1.0 - CLIP)
    return -np.where(clicks > 0, np.log(p), np.log1p(-p))


def _auc(place: NDArray[np.int64], clicked: NDArray[np.bool_], weights: NDArray[np.float64]) -> float:
    size = int(place.max()) + 1
    negatives = np.bincount(place, weights=weights * ~clicked, minlength=size)
    positives = np.bincount(place, weights=weights * clicked, minlength=size)
    below = np.cumsum(negatives) - negatives
    return float(positives @ (below + 0.5 * negatives) / (negatives.sum() * positives.sum()))
