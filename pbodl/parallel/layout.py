"""How a model's weights stand in messages: row weights side by side, dense weights as one vector, moments as sums."""

import itertools

import numpy as np
from numpy.typing import NDArray

from pbodl.models.deep_probit import DeepProbit


def to_vector(padded: NDArray[np.float32], sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """The dense weights of all layers, without the padding that the kernels want."""
    layers = enumerate(itertools.pairwise(sizes.tolist()))
    return np.concatenate([padded[layer, :n_out, : n_in + 1].ravel() for layer, (n_in, n_out) in layers])


def from_vector(vector: NDArray[np.float32], sizes: NDArray[np.int64], padded: NDArray[np.float32]) -> None:
    """Put dense weights back among their padding. MODIFIES: padded."""
    start = 0
    for layer, (n_in, n_out) in enumerate(itertools.pairwise(sizes.tolist())):
        stop = start + n_out * (n_in + 1)
        padded[layer, :n_out, : n_in + 1] = vector[start:stop].reshape(n_out, n_in + 1)
        start = stop


def side_by_side(model: DeepProbit, at: NDArray[np.int32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Means and variances of some rows of a model, [rows, width]: the embedding's, then that of the linear term, if there is one."""
    column = model.table.column
    mean, variance = column("mean")[at], column("variance")[at]
    if not model.spec.linear:
        return mean, variance
    return np.hstack([mean, column("linear_mean")[at]]), np.hstack([variance, column("linear_variance")[at]])


def sums_of(moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Count, sum and sum of squares from running moments (count, mean, squared deviations), which hold one observation of 0 besides."""
    count, mean, squares = moments.T
    return np.stack([count, mean * (count + 1.0), squares + mean * mean * (count + 1.0)], axis=1)


def moments_of(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Running moments from their sums; the inverse of `sums_of`."""
    count, total, squares = sums.T
    mean = total / (count + 1.0)
    return np.stack([count, mean, np.maximum(squares - mean * total, 0.0)], axis=1)
