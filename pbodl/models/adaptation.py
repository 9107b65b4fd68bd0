"""A model's prior: variances field by field, and centres of hidden units; as specified, and as the stream corrects them.

At fixed moments, after 2048, 3072, 4096, 6144, 8192, ... rows, every field's prior variances are estimated from its rows
(`kernels.prior_exchange`): one for the linear weights, and one for each group of the embedding (FFM has several vectors per
feature, and so learns which groups do not interact). Some well-determined weights of the specified variance count as prior
evidence: PSEUDO linear weights, PSEUDO_VECTORS of vectors, which are known by their products only. The estimate stays within REACH
of the specification. All rows then exchange the old prior for the new one, as if they had had it from the start, and new rows start
from it. Where most weights are known a little, one estimate goes only part of the way to the likeliest prior. So linear weights get
ROUNDS of them at each moment. Vectors get one: a network whose vectors' priors follow faster becomes too unsure.

Rows with weights look like more rows than they are, so they bound how far a variance may grow (`learning`).

In a model of pairs, vectors and the pairs' weights share one scale, and two priors that follow would chase each other. There the
weights carry the scale: only the proportions of the vectors' variances follow, within PROPORTIONS, and their mean stays as
specified.

At the same moments the centre of every hidden unit (`kernels.network`) moves to the unit's mean since the last moment. The biases
absorb the difference, so that no activation's mean changes. What changes is the prior, under which weights and biases are
independent: from then on the bias carries the usual level, and the weights the deviations from it.

Before any data, the bias of the output starts where a row of unseen features gets the base rate. The means of dense weights start
from a draw, and without this correction the drawn network would have a level of its own, another for every seed. The bias is wide:
without a given base rate it starts at 1/2, and finds the level in the first rows.
"""

from collections.abc import Callable, Iterator, Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import wrapping
from pbodl.data.sampling import recalibrate
from pbodl.errors import InputError
from pbodl.kernels.arguments import RowPrior, Rows
from pbodl.kernels.layers.interaction import CONCAT, EXACT, PAIRS, SUM
from pbodl.kernels.prior_exchange import DETERMINED, exchange_priors, field_evidence
from pbodl.models.contract import State, check_state
from pbodl.models.learning import NONE, POWERS, bounded_reach, weight_sums
from pbodl.models.spec import LARGEST, SMALLEST, TableSpec

if TYPE_CHECKING:
    from pbodl.models.deep_probit import DeepProbit

FIRST = 2048  # rows; a power of two, as minibatches usually are
ROUNDS = 3
PSEUDO, PSEUDO_VECTORS = 0.3, 5.0
OLDEST = 30.0  # half-lives/ln 2: beyond it nothing is left of the start
REACH = (1 / 50, 10.0)
FAR = 2.0
HOME = "dense.home"
SOME = 0.05  # of the rows seen at most twice
PROPORTIONS = (1 / 10, 4.0)
F32 = np.float32
Floats = NDArray[np.float64]
_NORMAL = NormalDist()
_cdf = np.vectorize(_NORMAL.cdf, otypes=[np.float64])
_pdf = np.vectorize(_NORMAL.pdf, otypes=[np.float64])
UNKNOWN = 0.5


def next_moment(rows_learned: int) -> int:
    """The next number of rows, above `rows_learned`, after which priors are estimated.

    >>> [next_moment(n) for n in (0, 2047, 2048, 3072, 100_000)]
    [2048, 2048, 3072, 4096, 131072]
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


def adapt(model: "DeepProbit", rows: int) -> None:
    """After so many rows, estimate the prior variances from the table and exchange them; move the centres of the hidden units."""
    for prior in estimates(model, lambda: evidence(model, rows)):
        exchange(model, prior)
    move_centres(model)


def evidence(model: "DeepProbit", learned: int) -> NDArray[np.float64]:
    """The table's evidence about the prior variances, (3, fields, weights of a row); evidence of several parts of a table adds up.

    The third part has, in its first two numbers, the sums of the weights of all `learned` rows and of their squares.
    """
    table, rows, prior = model.table, model.rows(), model.row_prior
    fields, width = prior.variance.shape
    least, *ages = _forgotten(model)
    parts = {}

    def gather(start: int, stop: int) -> None:
        found = parts[start] = np.zeros((2, fields, width + 1))
        some, keys, of_rows = _some(rows, start, stop), table.keys[start:stop], table.field[start:stop]
        field_evidence(some, keys, of_rows, prior, least, *ages, found[0], found[1])

    with wrapping():
        table.spread(gather, table.size)
    weights = np.zeros((1, fields, width + 1))
    weights[0, 0, :2] = weight_sums(model, learned)
    return np.concatenate([np.sum([parts[start] for start in sorted(parts)], axis=0, initial=0.0), weights])


def _forgotten(model: "DeepProbit") -> tuple[float, float, float]:
    """What `field_evidence` must know of forgetting: the least γ that counts, and for how long the variances of embeddings and of
    linear weights have decayed without their means.

    The oldest row tells how old the model is, if some features come once and never again, as in most logs. Where all features come
    often, nothing tells the age, and well-determined weights are enough of an answer.
    """
    half_life, by_variance, table = float(model.forgetting.half_life), not model.spec.decay_mean, model.table
    known = table.size > 0 and float(np.mean(table.count <= 2)) >= SOME
    if not half_life or not known:
        return DETERMINED if half_life and by_variance else -np.inf, 0.0, 0.0
    span = model.clock - (0.0 if model.counts_rows else float(table.last_seen.min()))
    age = min(float(np.log(2.0)) * max(span, 0.0) / half_life, OLDEST)
    drawn = model.row_prior.initial_scale > 0.0  # such means never decay
    return -np.inf, age if by_variance or drawn else 0.0, age if by_variance else 0.0


def estimates(model: "DeepProbit", found: Callable[[], Floats]) -> Iterator[RowPrior]:
    """The priors of a moment; `found` gives the evidence under the one before."""
    first = estimated(model, found())
    yield first
    for _ in range(ROUNDS - 1 if model.spec.linear else 0):
        yield estimated(model, found())._replace(variance=first.variance)


def estimated(model: "DeepProbit", found: Floats) -> RowPrior:
    """The prior that the evidence implies."""
    spec, (squares, determined, weights) = model.spec, found
    fields, width = model.row_prior.variance.shape
    names = [field.name for field in model.schema.fields]
    grouped = (fields, width // spec.dim, spec.dim)
    embedding, linear = specified(spec, names, grouped[1])
    by_group = found[:2, :, :width].reshape(2, *grouped).sum(axis=3)
    reach = bounded_reach(REACH, weights[0, 0], weights[0, 1])
    if model.op == PAIRS:
        free = _estimate(by_group[0], by_group[1], embedding, PSEUDO_VECTORS, PROPORTIONS)
        embedding = _proportions(free, embedding, model.schema.group_codes)
    else:
        embedding = _estimate(by_group[0], by_group[1], embedding, PSEUDO_VECTORS, reach)
    return row_prior(spec, embedding, _estimate(squares[:, width], determined[:, width], linear, PSEUDO, reach))


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
            dense.mean[layer, :n_out, n_in] += _product(dense.mean[layer, :n_out, :n_in], moved - centre)
            centre[:], total[:] = moved, 0.0


def _proportions(found: NDArray, start: NDArray[np.float32], groups: NDArray[np.int32]) -> NDArray:
    """Estimates, (fields, groups), scaled so that those of vectors that meet another field have the mean of the specified ones."""
    others = np.bincount(groups, minlength=start.shape[1])[None, :] - (groups[:, None] == np.arange(start.shape[1]))
    meets = others > 0
    if not meets.any():
        return start
    scaled = found * (start[meets].mean(dtype=np.float64) / found[meets].mean())
    return np.clip(scaled, PROPORTIONS[0] * start, PROPORTIONS[1] * start)


def _estimate(
    squares: Floats, determined: Floats, centre: NDArray[np.float32], pseudo: float, reach: tuple[float, float]
) -> NDArray:
    start = centre.astype(np.float64)
    found = (squares + pseudo * start) / (np.maximum(determined, 0.0) + pseudo)
    return np.clip(np.clip(found, reach[0] * start, reach[1] * start), SMALLEST, LARGEST)


def settle_level(model: "DeepProbit") -> None:
    """Set the mean of the output bias so that a row of unseen features, one for each field, gets the base rate."""
    base_rate, kept = model.spec.base_rate, model.negative_rate
    if base_rate is None and model.spec.prior.bias is None:  # as the paper has it: one more weight, which starts at zero
        return
    rate = UNKNOWN if base_rate is None else float(recalibrate(np.array([base_rate]), 1.0 / kept)[0])
    mean, variance = cold_moments(model)
    n_in, bias = int(model.shape.sizes[-2]), model.dense.mean[-1, 0]
    scale = 1.0 if model.op == PAIRS else (n_in + 1.0) ** 0.5
    bias[n_in] += scale * (_NORMAL.inv_cdf(rate) * (1.0 + model.doubt * variance) ** 0.5 - mean)


def home_of(model: "DeepProbit") -> State:
    """For the state of a model with layers: where forgetting leads their means, if not to the model's own draws."""
    parts = _layered(model)
    if not parts:
        return {}
    return {HOME: np.concatenate([model.dense.start[at].reshape(-1) for at in parts if model.carried] or [np.zeros(0, F32)])}


def checked(model: "DeepProbit", state: Mapping[str, NDArray]) -> None:
    """Refuse a state that does not fit the model, or that is damaged; older releases wrote none of HOME and POWERS."""
    parts = _layered(model)
    given: State = {POWERS: NONE, **({HOME: np.zeros(0, F32)} if parts else {}), **state}
    check_state(model, given, rows=("embedding.", "linear.", HOME))
    size = sum(model.dense.start[at].size for at in parts)
    if parts and len(given[HOME]) not in (0, size):
        raise InputError(f"the state's {HOME!r} has {len(given[HOME]):,} weights; it must have none, or all {size:,} of the layers")


def settle_home(model: "DeepProbit", state: Mapping[str, NDArray]) -> None:
    """After a state was loaded: where forgetting leads the means of layers.

    A state has it if a migration carried the weights to places with other draws (`migration.shape_change`). Releases that did not
    say so are judged by the weights: if half of them are further from their draw than FAR prior deviations, they stay.
    """
    dense, parts = model.dense, _layered(model)
    if not parts:
        return
    home = state.get(HOME)
    if home is None:
        apart = [np.abs(dense.mean[at] - dense.start[at]) / np.sqrt(dense.prior_variance[at]) for at in parts]
        far = np.median(np.concatenate([each.reshape(-1) for each in apart])) > FAR
        home = np.concatenate([dense.mean[at].reshape(-1) for at in parts if far] or [np.zeros(0, F32)])
    model.carried = len(home) > 0
    for at in parts if model.carried else []:
        of_layer, home = np.split(home, [dense.start[at].size])
        dense.start[at] = of_layer.reshape(dense.start[at].shape)


def _layered(model: "DeepProbit") -> list[tuple[int, slice, slice]]:
    """The weights that go home: those of layers, without biases."""
    layers = [] if model.op == PAIRS else model.layers()
    return [np.s_[layer, :n_out, :n_in] for layer, (n_in, n_out) in enumerate(layers) if n_in]


def cold_moments(model: "DeepProbit") -> tuple[float, float]:
    """Mean and variance of z_L for a row of unseen features, whose vectors are taken to be zero on average."""
    shape, dense, prior = model.shape, model.dense, model.row_prior
    v_linear = float(prior.linear_variance.sum()) if model.spec.linear else 0.0
    if model.op == PAIRS:
        at = int(shape.sizes[0])
        return float(dense.mean[0, 0, at]), float(dense.variance[0, 0, at]) + v_linear
    v_0 = _variance_of_z_0(model)
    m, v, kept = np.zeros(len(v_0)), v_0, []
    layers = model.layers()
    for layer, (n_in, n_out) in enumerate(layers):
        m_w, v_w = (array[layer, :n_out, : n_in + 1].astype(np.float64) for array in (dense.mean, dense.variance))
        m, v = (m, v) if n_in else (m[:0], v[:0])
        own = (_product(v_w[:, :n_in], m * m) + v_w[:, n_in]) / (n_in + 1)
        m_a = (_product(m_w[:, :n_in], m) + m_w[:, n_in]) / (n_in + 1) ** 0.5
        v_a = own + _product(m_w[:, :n_in] ** 2 + v_w[:, :n_in], v) / (n_in + 1)
        above = _cdf(m_a / np.sqrt(v_a))
        kept.append((m_w[:, :n_in] / (n_in + 1) ** 0.5, own, above))
        m = m_a * above + np.sqrt(v_a) * _pdf(m_a / np.sqrt(v_a))
        v = (m_a**2 + v_a) * above + m_a * np.sqrt(v_a) * _pdf(m_a / np.sqrt(v_a)) - m**2
    if shape.mode == EXACT:
        return float(m_a[0]), float(v_a[0]) + v_linear + float(shape.shortcut) ** 2 * v_0.sum()
    slope, variance = np.ones(1), v_linear
    for layer in range(len(layers) - 1, -1, -1):
        weights, own, above = kept[layer]
        slope = slope if layer == len(layers) - 1 else slope * above
        variance += float(_product(slope**2, own))
        slope = _product(weights.T, slope)
    slope = float(shape.shortcut) + (slope if len(slope) else np.zeros(len(v_0)))
    return float(m_a[0]), variance + float(_product(slope**2, v_0))


def _product(matrix: NDArray, vector: NDArray) -> NDArray:
    """matrix @ vector, with the same bits on every machine: the library behind @ has an order of its own for each processor."""
    return (matrix * vector).sum(axis=-1)


def _variance_of_z_0(model: "DeepProbit") -> Floats:
    """v_z0 of a row of unseen features; by slopes, products of vectors of mean zero have none."""
    variances, dim = model.row_prior.variance.astype(np.float64), model.spec.dim
    if model.op == CONCAT:
        return variances.reshape(-1)
    total = variances[:, :dim].sum(axis=0)
    if model.op == SUM:
        return total
    return 0.5 * (total**2 - (variances[:, :dim] ** 2).sum(axis=0)) if model.shape.mode == EXACT else np.zeros(dim)
