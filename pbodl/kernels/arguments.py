"""What the kernels are called with: bundles of arrays, so that no call spells out twenty arguments.

NetworkWeights   all weights of a model: rows of features and dense layers; learning changes them
Network          its shape, prior, forgetting and step cap; learning leaves them alone
LabelledSamples  the features, labels, powers, times and stages to learn from
Outputs          what learning reports: the moments predicted before each sample, and rejected updates
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, jit, viewed
from pbodl.kernels.normal import ZERO

USUAL = 16  # the default dimension: kernels have a branch for it, so that the compiler sees the constant


class Rows(NamedTuple):
    """The weights that features own, one row per feature."""

    mean: np.ndarray  # float32 (rows, D)
    variance: np.ndarray
    linear_mean: np.ndarray  # float32 (rows, 1); (0, 1) without the linear term
    linear_variance: np.ndarray
    last_seen: np.ndarray  # float64 (rows,): the clock when it was last learned from; with decay, up to which it is decayed
    count: np.ndarray  # type: ignore[assignment]  # uint32 (rows,): how many samples it was learned from; hides tuple.count


class Dense(NamedTuple):
    """The weights of all dense layers."""

    mean: np.ndarray  # float32 (L, widest out, widest in + 1)
    variance: np.ndarray
    last_seen: np.ndarray  # float64 (1,): the clock up to which they are decayed; 0 if they were never learned
    prior_variance: np.ndarray  # float32, as mean
    centre: np.ndarray  # float32 (L, widest in + 1): what is subtracted from the inputs of each layer; zero for z_0
    total: np.ndarray  # float64, as centre: the sum of the inputs since it was set, and at the bias their number; zero for z_0
    start: np.ndarray  # float32, as mean: the means before any data, which forgetting leads back to


class NetworkWeights(NamedTuple):
    """All weights of a model."""

    rows: Rows
    dense: Dense


class Shape(NamedTuple):
    """The layers of a network."""

    op: np.int64
    mode: np.int64  # of the variance: EXACT, PAPER or SLOPES (`layers.interaction`)
    sizes: np.ndarray  # int64 (L + 1,)
    width: np.int64  # of z_0
    shortcut: np.float32  # the multiple of the sum of z_0 that goes straight to z_L
    group_of_field: np.ndarray  # int32 (fields,)
    doubt: np.float32  # the reported variance over that of the weights


class PairShape(Shape):
    """The shape of a model of pairs: a type of its own, so that kernels are compiled for it alone (`_jit.by_type`)."""

    __slots__ = ()


class RowPrior(NamedTuple):
    """What a row is before any data: N(0, variance of its field), started at a small random mean."""

    variance: np.ndarray  # float32 (fields, D)
    linear_variance: np.ndarray  # float32 (fields,)
    initial_scale: np.float32
    seed: np.uint64


class Forgetting(NamedTuple):
    """Decay towards the prior: half-life in units of the clock (0: none), and whether means decay too.

    Means that started from a draw never decay to the prior's zero: they would be in the saddle of erratum E7. Those of layers go
    back to their draw (`network.forget_dense`).
    """

    half_life: np.float64
    also_mean: np.bool_


class NoForgetting(Forgetting):
    """Half-life 0: a type of its own, as most models never forget, and need not wait for the compilation of what does."""

    __slots__ = ()


class Network(NamedTuple):
    """Everything about a model that learning a batch does not change."""

    shape: Shape
    prior: RowPrior
    forgetting: Forgetting
    cap: np.float32  # the largest step of a mean, in units of its √variance; 0: no cap


class Features(NamedTuple):
    """A batch's features in CSR form: sample s owns entries indptr[s] to indptr[s+1]."""

    indptr: np.ndarray  # int64 (samples + 1,)
    rows: np.ndarray  # int32 (entries,): row of the table, -1 if unseen
    keys: np.ndarray  # uint64 (entries,)
    values: np.ndarray  # float32 (entries,)
    fields: np.ndarray  # int32 (entries,)


class LabelledSamples(NamedTuple):
    """Samples to learn from."""

    features: Features
    clicks: np.ndarray  # float32 (samples,): 0 or 1
    powers: np.ndarray  # float32 (samples,): the examples' weights; 0: predict alone
    clock: np.ndarray  # float64 (samples,)
    came_before: np.ndarray  # float32 (samples,): 0 for a final label (`layers.stage`)
    came_by: np.ndarray  # float32 (samples,): 1 for a final label


def rows_counted(samples: LabelledSamples) -> NDArray[np.bool_]:
    """Which samples count as rows learned: every impression once, by its first stage; no prediction alone."""
    return (samples.powers != ZERO) & (samples.came_before == ZERO)


class Outputs(NamedTuple):
    """What learning reports."""

    mean: np.ndarray  # float64 (samples,): of z_L, before the sample was learned
    variance: np.ndarray
    rejected: np.ndarray  # int64 (6,): updates that the guard rejected, of embeddings, linear weights and dense weights; and what
    # it did with rows of powers above 1 (`adf.DAMPED`, `EXTRA`, `EXTRA_SQUARES`)


@jit
def samples_between(samples, start, stop):
    """Samples start to stop of a batch: views, but for `indptr`, which counts from their own first entry."""
    every = samples.features
    first, last = every.indptr[start], every.indptr[stop]
    features = Features(
        every.indptr[start : stop + 1] - first, every.rows[first:last], every.keys[first:last], every.values[first:last],
        every.fields[first:last],
    )  # fmt: skip
    return LabelledSamples(
        features, samples.clicks[start:stop], samples.powers[start:stop], samples.clock[start:stop],
        samples.came_before[start:stop], samples.came_by[start:stop],
    )  # fmt: skip


@inlined
def counted(samples, sample):
    """1 if a sample counts as a row learned, else 0: `rows_counted` of one sample."""
    return np.uint32(1) if samples.powers[sample] != ZERO and samples.came_before[sample] == ZERO else np.uint32(0)


@jit
def outputs_between(outputs, start, stop):
    """Room for the outputs of samples start to stop: views; `rejected` counts for all samples."""
    return Outputs(outputs.mean[start:stop], outputs.variance[start:stop], outputs.rejected)


@jit
def largest(numbers):
    """The largest of some integers; 0 if all are below it. `numbers.max()` takes a second to compile."""
    most = np.int64(0)
    for i in range(len(numbers)):
        most = max(most, numbers[i])
    return most


@jit
def most_features(indptr):
    """The largest number of features in one sample."""
    most = 1
    for s in range(len(indptr) - 1):
        most = max(most, indptr[s + 1] - indptr[s])
    return most


@jit
def floats(n):
    """Room for n float32. For Numba `np.empty` is another function for every kind of shape, and it compiles each."""
    return np.empty(n, np.float32)


@jit
def vectors_of(n, groups, dim):
    """Room for n features, each with a vector for every group: float32 (n, G, K)."""
    return viewed(floats(n * groups * dim), (n, groups, dim))
