"""Weights in transit: copies of some rows and of the dense layers of a model, as plain arrays without padding, and back."""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.kernels.arguments import Features
from pbodl.kernels.layers.embedding import forget_rows
from pbodl.kernels.network import forget_dense
from pbodl.models.adaptation import in_force, row_prior
from pbodl.models.deep_probit import DeepProbit


class Weights(NamedTuple):
    """k rows of weights (the embedding's, then the linear one), and the shared part: n dense weights, moments of scaled numbers."""

    mean: NDArray[np.float32]  # [k, width]
    variance: NDArray[np.float32]
    last_seen: NDArray[np.float64]  # [k]
    dense_mean: NDArray[np.float32]  # [n]; [0] where the shared part is elsewhere
    dense_variance: NDArray[np.float32]
    dense_last_seen: NDArray[np.float64]  # [1]
    centre: NDArray[np.float32]  # as in `kernels.arguments.Dense`
    total: NDArray[np.float64]
    scale: NDArray[np.float64]  # [fields, 3]
    prior: NDArray[np.float32]  # [fields, groups + 1]: current variances of the embedding's groups and of the linear weight


def take(model: DeepProbit, at: NDArray[np.int32], shared: bool = True) -> Weights:
    """Copies of a model's weights: rows `at`, and the shared part if `shared`."""
    column = model.table.column
    mean, variance = column("mean")[at], column("variance")[at]
    if model.spec.linear:
        mean, variance = np.hstack([mean, column("linear_mean")[at]]), np.hstack([variance, column("linear_variance")[at]])
    dense = [np.zeros(0, np.float32)] * 2
    if shared:
        dense = [to_vector(padded, model.shape.sizes) for padded in (model.dense.mean, model.dense.variance)]
    return Weights(
        mean, variance, model.table.last_seen[at], dense[0], dense[1], model.dense.last_seen.copy(), model.dense.centre.copy(),
        model.dense.total.copy(), model.scale.moments.copy(), prior_in_force(model),
    )  # fmt: skip


def put(weights: Weights, model: DeepProbit, at: NDArray) -> None:
    """Set rows `at` of a model to these weights, and the shared part if they have it."""
    column = model.table.column
    dim = column("mean").shape[1]
    column("mean")[at], column("variance")[at] = weights.mean[:, :dim], weights.variance[:, :dim]
    if model.spec.linear:
        column("linear_mean")[at], column("linear_variance")[at] = weights.mean[:, dim:], weights.variance[:, dim:]
    model.table.last_seen[at] = weights.last_seen
    if len(weights.dense_mean):
        from_vector(weights.dense_mean, model.shape.sizes, model.dense.mean)
        from_vector(weights.dense_variance, model.shape.sizes, model.dense.variance)
        model.dense.last_seen[:] = weights.dense_last_seen
        model.dense.centre[:], model.dense.total[:] = weights.centre, weights.total
        model.scale.moments = weights.scale.copy()


def prior_in_force(model: DeepProbit) -> NDArray[np.float32]:
    """The current prior variances, in the layout of `Weights.prior`."""
    return np.column_stack(in_force(model))


def take_over_prior(weights: Weights, model: DeepProbit) -> None:
    """Give new rows of the model the prior that these weights had."""
    model.row_prior = row_prior(model.spec, weights.prior[:, :-1], weights.prior[:, -1])


def forget(model: DeepProbit, at: NDArray[np.int32], now: float) -> None:
    """Decay rows `at` and the dense layers up to the clock `now`; without decay, only note that they were seen."""
    table = model.table
    if model.forgetting.half_life > 0.0:
        ones, fields = np.ones(len(at), np.float32), table.field[at].astype(np.int32)
        features = Features(np.array([0, len(at)]), at, table.keys[at], ones, fields)
        forget_rows(model.rows(), features, 0, now, model.row_prior, model.forgetting)
        forget_dense(model.dense, model.shape, now, model.forgetting)
    else:
        table.last_seen[at] = now


def to_vector(padded: NDArray[np.float32], sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """The dense weights of all layers, without the kernels' padding."""
    layers = enumerate(itertools.pairwise(sizes.tolist()))
    return np.concatenate([padded[layer, :n_out, : n_in + 1].ravel() for layer, (n_in, n_out) in layers])


def from_vector(vector: NDArray[np.float32], sizes: NDArray[np.int64], padded: NDArray[np.float32]) -> None:
    """Put dense weights back into the padded array. MODIFIES: padded."""
    start = 0
    for layer, (n_in, n_out) in enumerate(itertools.pairwise(sizes.tolist())):
        stop = start + n_out * (n_in + 1)
        padded[layer, :n_out, : n_in + 1] = vector[start:stop].reshape(n_out, n_in + 1)
        start = stop


def sums_of(moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Count, sum and sum of squares, which add up, from count, mean and squared deviations (`data.running_scale`), which do not."""
    count, mean, squares = moments.T
    return np.stack([count, mean * count, squares + mean * mean * count], axis=1)


def moments_of(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Running moments from their sums: the inverse of `sums_of`."""
    count, total, squares = sums.T
    mean = total / np.maximum(count, 1.0)
    return np.stack([count, mean, np.maximum(squares - mean * total, 0.0)], axis=1)
