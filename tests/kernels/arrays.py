"""A naive network's weights as the kernels' arrays, and back."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.kernels import network
from pbodl.kernels.arguments import Dense, Features, Forgetting, LabelledSamples, NetworkWeights, Outputs, RowPrior, Rows, Shape
from pbodl.kernels.arguments import Network as NetworkArguments
from pbodl.kernels.layers import interaction
from tests.oracles.naive import Feature, Gauss, Name, Network

F32 = np.float32
START = 0.1  # the mean that dense weights go back to
OPS = {
    "concat": interaction.CONCAT, "sum": interaction.SUM, "fm": interaction.FM, "ffm": interaction.FFM,
    "group-fm": interaction.GROUP_FM,
}  # fmt: skip
MODES = {"exact": interaction.EXACT, "paper": interaction.PAPER, "slopes": interaction.SLOPES}
NEVER = Forgetting(np.float64(0.0), np.bool_(False))


class Arrays(NamedTuple):
    """What the fused kernels take."""

    rows: Rows
    dense: Dense
    shape: Shape
    prior: RowPrior

    @property
    def weights(self) -> NetworkWeights:
        return NetworkWeights(self.rows, self.dense)

    def network(self, forgetting: Forgetting, cap: float = 0.0) -> NetworkArguments:
        return NetworkArguments(self.shape, self.prior, forgetting, F32(cap))


def random_network(
    seed: int,
    op: str,
    hidden: tuple[int, ...] = (),
    linear: bool = True,
    fm_variance: str = "exact",
    dim: int = 2,
    rows: int = 6,
    group_of_field: tuple[int, ...] = (0, 1, 0),
    variances: tuple[float, float] = (0.1, 1.0),
) -> Network:
    """Weights large enough that every term of every formula counts; numbers that float32 holds exactly."""
    rng = np.random.default_rng(seed)
    made = Network(op, dim, hidden, linear, group_of_field, fm_variance)
    low, high = np.log(variances)
    for name in made.names(rows):
        mean, variance = F32(rng.normal(0.0, 0.7)), F32(np.exp(rng.uniform(low, high)))
        made.weights[name] = (float(mean), float(variance))
    return made


def as_arrays(made: Network, prior_variance: float = 0.5) -> Arrays:
    """Rows and padded dense layers; the padding is NaN, which would show wherever it was read."""
    n_rows = 1 + max(name[1] for name in made.weights if name[0] == "embedding")
    depth, sizes = made.groups * made.dim, made.sizes
    linear = (n_rows if made.linear else 0, 1)
    rows = Rows(
        np.zeros((n_rows, depth), F32), np.zeros((n_rows, depth), F32), np.zeros(linear, F32), np.zeros(linear, F32),
        np.zeros(n_rows), np.zeros(n_rows, np.uint32),
    )  # fmt: skip
    padded = (len(sizes) - 1, max(sizes[1:]), max(sizes[:-1]) + 3)
    centre, total = np.full(padded[::2], np.nan, F32), np.full(padded[::2], np.nan)
    for layer, n_in in enumerate(sizes[:-1]):
        centre[layer, :n_in] = [made.centre.get((layer, i), 0.0) for i in range(n_in)]
        total[layer, : n_in + 1] = 0.0
    weights = np.full((2, *padded), np.nan, F32)
    dense = Dense(weights[0], weights[1], np.zeros(1), np.full(padded, prior_variance, F32), centre, total, np.empty(padded, F32))
    n_fields = len(made.group_of_field)
    shape = Shape(
        np.int64(OPS[made.op]), np.int64(MODES[made.fm_variance]), np.array(sizes, np.int64),
        np.int64(interaction.width(OPS[made.op], made.dim, n_fields)), F32(made.shortcut), np.array(made.group_of_field, np.int32),
        F32(1.0),
    )  # fmt: skip
    embedding, linear = np.full((n_fields, depth), prior_variance, F32), np.full(n_fields, prior_variance, F32)
    prior = RowPrior(embedding, linear, F32(0.3), np.uint64(1))
    arrays = Arrays(rows, dense, shape, prior)
    for name, (mean, variance) in made.weights.items():
        means, variances, index = place(arrays, name)
        means[index], variances[index] = mean, variance
    dense.start[:] = np.where(np.isnan(dense.mean), np.nan, START)
    return arrays


def place(arrays: Arrays, name: Name) -> tuple[NDArray, NDArray, tuple[int, ...]]:
    """The arrays that hold a weight's mean and variance, and where in them."""
    if name[0] == "embedding":
        _, row, group, k = name
        groups = int(arrays.shape.group_of_field.max()) + 1 if arrays.shape.op == interaction.FFM else 1
        return arrays.rows.mean, arrays.rows.variance, (row, group * (arrays.rows.mean.shape[1] // groups) + k)
    if name[0] == "linear":
        return arrays.rows.linear_mean, arrays.rows.linear_variance, (name[1], 0)
    return arrays.dense.mean, arrays.dense.variance, name[1:]


def read(arrays: Arrays, name: Name) -> Gauss:
    """A weight's mean and variance."""
    means, variances, index = place(arrays, name)
    return float(means[index]), float(variances[index])


def as_features(samples: Sequence[Sequence[Feature]]) -> Features:
    """Samples in CSR form; a feature's key is its row."""
    flat = [item for sample in samples for item in sample]
    rows = np.array([item.row for item in flat], np.int32)
    return Features(
        np.cumsum([0] + [len(sample) for sample in samples]).astype(np.int64), rows, rows.astype(np.uint64),
        np.array([item.x for item in flat], F32), np.array([item.field for item in flat], np.int32),
    )  # fmt: skip


def learn(
    arrays: Arrays,
    samples: Sequence[Sequence[Feature]],
    clicks: Sequence[int] | NDArray,
    powers: Sequence[float] | NDArray | None = None,
    clock: Sequence[float] | NDArray | None = None,
    forgetting: Forgetting = NEVER,
    cap: float = 0.0,
) -> Outputs:
    """`learn_batch` on the arrays, which it changes."""
    n = len(samples)
    out = Outputs(np.empty(n), np.empty(n), np.zeros(6, np.int64))
    with np.errstate(all="ignore"):
        labelled = LabelledSamples(
            as_features(samples), np.array(clicks, F32),
            np.ones(n, F32) if powers is None else np.array(powers, F32),
            np.zeros(n) if clock is None else np.array(clock, np.float64), np.zeros(n, F32), np.ones(n, F32),
        )  # fmt: skip
        network.learn_batch(arrays.weights, arrays.network(forgetting, cap), labelled, out)
    return out


def predict(
    arrays: Arrays, features: Features, now: float = 0.0, forgetting: Forgetting = NEVER
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`predict_batch`: mean and variance of z_L of every sample."""
    mean, variance = np.empty(len(features.indptr) - 1), np.empty(len(features.indptr) - 1)
    with np.errstate(all="ignore"):
        network.predict_batch(arrays.weights, arrays.network(forgetting), features, now, mean, variance)
    return mean, variance


def copied(arrays: Arrays) -> Arrays:
    """The same weights in new arrays."""
    rows, dense, shape, prior = arrays
    return Arrays(
        Rows(*(array.copy() for array in rows)),
        Dense(*(part.copy() for part in dense)),
        shape, prior,
    )  # fmt: skip
