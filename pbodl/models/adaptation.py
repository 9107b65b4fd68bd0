"""A model's prior: variances field by field, and centres of hidden units; as specified, and as the stream corrects them.

At fixed moments, after 8192, 12288, 16384, 24576, 32768, ... rows, every field's prior variances are estimated from its rows
(`kernels.prior_exchange`): one for the linear weights, and one for each group of the embedding (FFM has several vectors per
feature, and so learns which groups do not interact). PSEUDO well-determined weights of the specified variance count as prior
evidence, and the estimate stays within REACH of the specification. All rows then exchange the old prior for the new one, as if they
had had it from the start, and new rows start from it.

At the same moments the centre of every hidden unit (`kernels.network`) moves to the unit's mean since the last moment. The biases
absorb the difference, so that no activation's mean changes. What changes is the prior, under which weights and biases are
independent: from then on the bias carries the usual level, and the weights the deviations from it.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import wrapping
from pbodl.kernels.arguments import RowPrior, Rows
from pbodl.kernels.layers.interaction import PAIRS
from pbodl.kernels.prior_exchange import exchange_priors, field_evidence
from pbodl.models.spec import LARGEST, SMALLEST, TableSpec

if TYPE_CHECKING:
    from pbodl.models.deep_probit import DeepProbit

FIRST = 8192  # rows; a power of two, as minibatches usually are
PSEUDO = 5.0
REACH = (1 / 50, 10.0)
F32 = np.float32


def next_moment(rows_learned: int) -> int:
    """The next number of rows, above `rows_learned`, after which priors are estimated.

    >>> [next_moment(n) for n in (0, 8191, 8192, 12_288, 100_000)]
    [8192, 8192, 12288, 16384, 131072]
    """
    double = FIRST << (rows_learned // FIRST).bit_length()
    return double * 3 // 4 if FIRST <= rows_learned < double * 3 // 4 else double


def row_prior(spec: TableSpec, embedding: NDArray, linear: NDArray) -> RowPrior:
    """The prior of rows with these variances: embedding (fields, groups), linear (fields,)."""
    variance = np.repeat(embedding.astype(F32), spec.dim, axis=1)
    return RowPrior(variance, linear.astype(F32), F32(spec.initial_spread), np.uint64(spec.seed))


def specified(spec: TableSpec, names: list[str], groups: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The specification's variances: embedding (fields, groups), linear (fields,)."""
    embedding = np.array([[spec.prior.of_field(name, "embedding")] * groups for name in names], F32)
    return embedding, np.array([spec.prior.of_field(name, "linear") for name in names], F32)


def in_force(model: "DeepProbit") -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The current prior variances of the model's rows: embedding (fields, groups), linear (fields,)."""
    return model.row_prior.variance[:, :: model.spec.dim].copy(), model.row_prior.linear_variance.copy()


def adapt(model: "DeepProbit") -> None:
    """Estimate the prior variances from the current rows and exchange them; move the centres of the hidden units."""
    exchange(model, estimated(model, evidence(model)))
    move_centres(model)


def evidence(model: "DeepProbit") -> NDArray[np.float64]:
    """The rows' evidence about the prior variances, (2, fields, weights of a row); evidence of several parts of a table adds up."""
    table, rows, prior = model.table, model.rows(), model.row_prior
    fields, width = prior.variance.shape
    parts = {}

    def gather(start: int, stop: int) -> None:
        found = parts[start] = np.zeros((2, fields, width + 1))
        some, keys, of_rows = _some(rows, start, stop), table.keys[start:stop], table.field[start:stop]
        field_evidence(some, keys, of_rows, prior, model.forgetting, found[0], found[1])

    with wrapping():
        table.spread(gather, table.size)
    return np.sum([parts[start] for start in sorted(parts)], axis=0)


def estimated(model: "DeepProbit", found: NDArray[np.float64]) -> RowPrior:
    """The prior that the evidence implies."""
    spec, (squares, determined) = model.spec, found
    fields, width = model.row_prior.variance.shape
    names = [field.name for field in model.schema.fields]
    grouped = (fields, width // spec.dim, spec.dim)
    embedding, linear = specified(spec, names, grouped[1])
    if model.op != PAIRS:  # there the weights of the pairs carry the scale
        by_group = found[:, :, :width].reshape(2, *grouped).sum(axis=3)
        embedding = _estimate(by_group[0], by_group[1], embedding)
    return row_prior(spec, embedding, _estimate(squares[:, width], determined[:, width], linear))


def exchange(model: "DeepProbit", prior: RowPrior) -> None:
    """Exchange the prior of all rows for this one."""
    table, rows, old = model.table, model.rows(), model.row_prior
    model.row_prior = prior

    def work(start: int, stop: int) -> None:
        exchange_priors(_some(rows, start, stop), table.keys[start:stop], table.field[start:stop], old, prior)

    with wrapping():
        table.spread(work, table.size)


def _some(rows: Rows, start: int, stop: int) -> Rows:
    """A range of the rows."""
    return Rows(*(column[start:stop] for column in rows))


def move_centres(model: "DeepProbit") -> None:
    """Move each hidden unit's centre to its mean since the last move."""
    dense = model.dense
    for layer, (n_in, n_out) in enumerate(model.layers()):
        total, centre = dense.total[layer], dense.centre[layer, :n_in]
        if total[n_in] > 0.0:
            moved = (total[:n_in] / total[n_in]).astype(F32)
            dense.mean[layer, :n_out, n_in] += dense.mean[layer, :n_out, :n_in] @ (moved - centre)
            centre[:], total[:] = moved, 0.0


def _estimate(squares: NDArray[np.float64], determined: NDArray[np.float64], centre: NDArray[np.float32]) -> NDArray:
    start = centre.astype(np.float64)
    found = (squares + PSEUDO * start) / (np.maximum(determined, 0.0) + PSEUDO)
    return np.clip(np.clip(found, REACH[0] * start, REACH[1] * start), SMALLEST, LARGEST)
