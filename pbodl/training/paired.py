"""Paired bootstrap: is the difference between two models on the same rows more than chance?

A replicate draws blocks of neighbouring rows, each Poisson(1) times, the same for all models. Single rows would promise too much:
neighbours in a log are alike, with the same user, campaign and hour. The AUC of a replicate needs no second look at the rows. With
drawn counts c it is cᵀ A c, over the drawn clicks times the drawn non-clicks, where A[b, d] counts the pairs of a click in block b
and a non-click in block d that the model orders rightly; ties count half.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.training.stream_metrics import interval

Floats = NDArray[np.float64]
CLIP = 1e-7  # predictions are kept in float32
BLOCKS = 500  # at most; a block has one row or more


class Difference(NamedTuple):
    """Model minus reference, with its 95 % interval; NaN where a figure is undefined (one class alone)."""

    auc: float
    auc_low: float
    auc_high: float
    log_loss: float
    log_loss_low: float
    log_loss_high: float


def resampled(
    models: Sequence[NDArray], clicks: NDArray, replicates: int = 200, seed: int = 0, weights: NDArray | None = None
) -> Floats:
    """AUC and log loss of every model, on the rows themselves and on each replicate: (1 + replicates, models, 2).

    weights  the number of rows that each row stands for; 1 by default
    """
    n = len(clicks)
    weights = np.ones(n) if weights is None else weights.astype(np.float64)
    clicked = clicks > 0
    blocks = min(n, BLOCKS)
    block = np.arange(n) * blocks // max(n, 1)
    counts = np.ones((replicates + 1, blocks))
    counts[1:] = np.random.default_rng(seed).poisson(1.0, (replicates, blocks))
    positives, negatives = (counts @ np.bincount(block, weights * side, blocks) for side in (clicked, ~clicked))
    figures = np.empty((replicates + 1, len(models), 2))
    with np.errstate(divide="ignore", invalid="ignore"):  # a replicate may lack clicks
        for number, predicted in enumerate(models):
            right = np.zeros((blocks, blocks))
            _count_pairs(*_by_rank(predicted, clicked, block, weights), right)
            figures[:, number, 0] = ((counts @ right) * counts).sum(axis=1) / (positives * negatives)
            loss = np.bincount(block, weights * losses(predicted, clicked), blocks)
            figures[:, number, 1] = counts @ loss / (positives + negatives)
    return figures


def difference(figures: Floats, model: int, reference: int) -> Difference:
    """Model minus reference, by their indices in `resampled`."""
    drawn = figures[:, model] - figures[:, reference]
    (auc_low, auc_high), (low, high) = (interval(drawn[1:, column]) for column in (0, 1))
    return Difference(float(drawn[0, 0]), auc_low, auc_high, float(drawn[0, 1]), low, high)


def paired_difference(
    model: NDArray, reference: NDArray, clicks: NDArray, replicates: int = 200, seed: int = 0, weights: NDArray | None = None
) -> Difference:
    """The difference of two models in AUC and log loss."""
    return difference(resampled([model, reference], clicks, replicates, seed, weights), 0, 1)


def plain_difference(found: Difference) -> dict[str, Any]:
    """A difference for JSON: None instead of NaN."""
    return {name: value if np.isfinite(value) else None for name, value in found._asdict().items()}


def losses(predicted: NDArray, clicks: NDArray) -> Floats:
    """The log loss of each row."""
    p = np.clip(predicted.astype(np.float64), CLIP, 1.0 - CLIP)
    return -np.where(clicks > 0, np.log(p), np.log1p(-p))


def _by_rank(
    predicted: NDArray, clicked: NDArray[np.bool_], block: NDArray[np.int64], weights: Floats
) -> tuple[NDArray, NDArray[np.bool_], NDArray[np.int64], Floats]:
    order = np.argsort(predicted, kind="stable")
    return predicted[order], clicked[order], block[order], weights[order]


@jit
def _count_pairs(predicted, clicked, block, weights, right):
    """Rows come in ascending order of their predictions. MODIFIES: right (blocks, blocks)."""
    below = np.zeros(len(right))  # weight of the non-clicks below, by block; half of those with the same prediction
    start = 0
    while start < len(predicted):
        stop = start
        while stop < len(predicted) and predicted[stop] == predicted[start]:
            if not clicked[stop]:
                below[block[stop]] += 0.5 * weights[stop]
            stop += 1
        for i in range(start, stop):
            if clicked[i]:
                row = right[block[i]]
                for other in range(len(below)):
                    row[other] += weights[i] * below[other]
        for i in range(start, stop):
            if not clicked[i]:
                below[block[i]] += 0.5 * weights[i]
        start = stop
