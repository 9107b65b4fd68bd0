"""Scores a request: sums the features that the candidates share (user, context) once, each candidate's own once, and combines them.

Every operation of the network adds its features one by one, and keeps only their sums by class, and for FM what `interaction`
defines. A feature's *class* says which sums it adds to: its group for FFM and for FM between groups, its field for concat, 0 for
the others. Two sets of features with sums S, V, T (as printed: Q) combine in one step. To the FM of each, this adds
    to m: S S'      to v: 2 (S' T + S T') + S'² V + S² V' + V V'      (as printed, to v: Q V' + V Q' + V V')
and by slopes, where V V' is left out, the same without it.

Features stand in slots. A slot belongs to one field in all samples; a slot that a sample does not fill adds nothing.

Letters: K the dimension, G the vectors of a feature (1 but for FFM), C the classes. Rows are packed: the means and variances of
each vector side by side, then those of the linear weight, so that a feature is read from memory at once.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit, kernel, prefetch
from pbodl._registers import REGISTER
from pbodl.data.table.memory import aligned
from pbodl.kernels.adf import decay
from pbodl.kernels.arguments import USUAL
from pbodl.kernels.click_moments import click_moments, widen
from pbodl.kernels.layers.dense import BLOCK
from pbodl.kernels.layers.embedding import kept_share, means_decay, standard_draw
from pbodl.kernels.layers.interaction import (
    CONCAT,
    EXACT,
    FFM,
    FM,
    GROUP_FM,
    PAIRS,
    PAPER,
    SLOPES,
    SUM,
    join_exact,
    join_linear,
    join_printed,
)
from pbodl.kernels.normal import ONE, TWO, ZERO
from pbodl.kernels.sample_blocks import add_outputs, make_block

# The operations that `join`, `combine` and `into_block` know; pairs meet in `pair_candidates`.
SERVED = {CONCAT: "concat", SUM: "sum", FM: "FM", FFM: "FFM", GROUP_FM: "FM between groups", PAIRS: "pairs"}
UNSEEN, EMPTY = -1, -2
AHEAD = 6  # candidates to prefetch


class Packed(NamedTuple):
    """The weights of the features, one row each."""

    weights: np.ndarray  # float32 (rows, 2 G K + 2): means and variances of each vector, then of the linear weight if there is one
    last_seen: np.ndarray  # float64 (rows,)


class Samples(NamedTuple):
    """The features of samples, in slots."""

    rows: np.ndarray  # int32 (samples, slots): row in the table, UNSEEN, or EMPTY
    keys: np.ndarray  # uint64 (samples, slots)
    values: np.ndarray  # float32 (samples, slots)
    fields: np.ndarray  # int32 (slots,)
    classes: np.ndarray  # int32 (slots,)


class Operation(NamedTuple):
    """The embedding operation on a set of features."""

    op: np.int64
    mode: np.int64  # of the variance: EXACT, PAPER or SLOPES
    vectors: np.int64  # G
    dim: np.int64  # K
    classes: np.int64  # C


class Sums(NamedTuple):
    """The sums of the features so far; for many samples, with one more dimension in front."""

    total: np.ndarray  # float32 (C, G, 2, K): S and V
    inner: np.ndarray  # float32 (C, 3, K): m, v and T (as printed: Q) of the FM inside each class; (C, 0, K) without FM
    linear: np.ndarray  # float32 (2,): mean and variance of the linear term


@jit
def padded(dim):
    """A dimension, filled up to whole registers."""
    return (dim + REGISTER - 1) // REGISTER * REGISTER


def room_for(n: int, operation: Operation) -> Sums:
    """Memory for the sums of n samples; for pairs, vectors are padded with zeros."""
    classes, vectors, dim = int(operation.classes), int(operation.vectors), int(operation.dim)
    kept = 3 if operation.op in (FM, FFM) else 0
    if operation.op == PAIRS:
        dim = padded(dim)
    # The system allots memory only when it is written.
    shapes = (n, classes, vectors, 2, dim), (n, classes, kept, dim), (n, 2)
    return Sums(*(aligned(shape, np.float32) for shape in shapes))


@inlined
def is_plain(samples, s, forgetting):
    """Whether a sample's features can be read straight from their rows: all seen, none forgotten, all values 1."""
    rows, values = samples.rows, samples.values
    others = 0
    for j in range(rows.shape[1]):
        others += (rows[s, j] < 0) | (values[s, j] != ONE)
    return others == 0 and forgetting.half_life == 0.0


@inlined
def draw_row(key, field, operation, prior, x, j):
    """The weights of an unseen feature, from its prior. MODIFIES: x, in row j."""
    dim = operation.dim
    for g in range(operation.vectors):
        for k in range(dim):
            x[j, 2 * g * dim + k] = prior.initial_scale * standard_draw(prior.seed, key, np.uint64(g * dim + k))
            x[j, 2 * g * dim + dim + k] = prior.variance[field, g * dim + k]
    width = 2 * operation.vectors * dim
    if x.shape[1] > width:
        x[j, width], x[j, width + 1] = ZERO, prior.linear_variance[field]


@inlined
def decay_row(kept, field, operation, prior, forgetting, x, j):
    """MODIFIES: x, in row j."""
    dim, also_mean = operation.dim, means_decay(prior, forgetting)
    for g in range(operation.vectors):
        for k in range(dim):
            m, v = 2 * g * dim + k, 2 * g * dim + dim + k
            x[j, m], x[j, v] = decay(x[j, m], x[j, v], prior.variance[field, g * dim + k], kept, also_mean)
    m = 2 * operation.vectors * dim
    if x.shape[1] > m:
        x[j, m], x[j, m + 1] = decay(x[j, m], x[j, m + 1], prior.linear_variance[field], kept, forgetting.also_mean)


@inlined
def scale_row(value, operation, x, j):
    """MODIFIES: x, in row j."""
    dim = operation.dim
    for g in range(operation.vectors):
        for k in range(dim):
            x[j, 2 * g * dim + k] *= value
            x[j, 2 * g * dim + dim + k] *= value * value
    width = 2 * operation.vectors * dim
    if x.shape[1] > width:
        x[j, width] *= value
        x[j, width + 1] *= value * value


@inlined
def work_out_feature(packed, samples, s, j, operation, now, prior, forgetting, x):
    """A feature as it is now: from its row, decayed, or from its prior; not yet times its value. MODIFIES: x, in row j."""
    weights, half_life = packed.weights, forgetting.half_life
    r, field = samples.rows[s, j], samples.fields[j]
    if r >= 0:
        for d in range(x.shape[1]):
            x[j, d] = weights[r, d]
        kept = kept_share(now - packed.last_seen[r], half_life) if half_life > 0.0 else ONE
        if kept < ONE:
            decay_row(kept, field, operation, prior, forgetting, x, j)
    elif r == UNSEEN:
        draw_row(samples.keys[s, j], field, operation, prior, x, j)
    else:
        for d in range(x.shape[1]):
            x[j, d] = ZERO


@inlined
def work_out(packed, samples, s, operation, now, prior, forgetting, x):
    """A sample's features now: unseen ones from their prior, decayed, times their values. MODIFIES: x (slots, row)."""
    for j in range(x.shape[0]):
        work_out_feature(packed, samples, s, j, operation, now, prior, forgetting, x)
        if samples.values[s, j] != ONE:
            scale_row(samples.values[s, j], operation, x, j)


@inlined
def join_class(x, at, classes, c, dim, mode, total, spread, third, m_z, v_z):
    """Add the features of class c to its FM. MODIFIES: total, spread, third, m_z, v_z."""
    begin = 2 * c * dim
    for j in range(len(classes)):
        if classes[j] == c:
            pair = x[at[j], begin : begin + 2 * dim]
            if mode == EXACT:
                join_exact(pair[:dim], pair[dim:], dim, total, spread, third, m_z, v_z)
            elif mode == SLOPES:
                join_linear(pair[:dim], pair[dim:], dim, total, spread, third, m_z, v_z)
            else:
                join_printed(pair[:dim], pair[dim:], dim, total, spread, third, m_z, v_z)


@kernel
def join_usual(x, at, n, total, spread, third, m_z, v_z):
    """Add n features to the one exact FM of the usual dimension: its sums stay in registers. MODIFIES: as `join_class`."""
    for j in range(n):
        row = x[at[j]]
        join_exact(row[:USUAL], row[USUAL : 2 * USUAL], USUAL, total, spread, third, m_z, v_z)


@inlined
def join(x, at, classes, operation, sums):
    """Add the features x[at[j]]. MODIFIES: sums."""
    op, dim, total, inner, linear = operation.op, operation.dim, sums.total, sums.inner, sums.linear
    n, width = len(classes), 2 * operation.vectors * operation.dim
    if op == FM and operation.mode == EXACT and dim == USUAL:
        join_usual(x, at, n, total[0, 0, 0], total[0, 0, 1], inner[0, 2], inner[0, 0], inner[0, 1])
    elif op in (FM, FFM):
        for c in range(total.shape[0]):
            s, v = total[c, c, 0], total[c, c, 1]
            join_class(x, at, classes, c, dim, operation.mode, s, v, inner[c, 2], inner[c, 0], inner[c, 1])
    if op != FM:
        for j in range(n):
            c = classes[j]
            for g in range(operation.vectors):
                if op != FFM or g != c:  # otherwise `join_class` added it
                    for k in range(dim):
                        total[c, g, 0, k] += x[at[j], 2 * g * dim + k]
                        total[c, g, 1, k] += x[at[j], 2 * g * dim + dim + k]
    if x.shape[1] > width:
        for j in range(n):
            linear[0] += x[at[j], width]
            linear[1] += x[at[j], width + 1]


@inlined
def join_sample(packed, samples, s, operation, now, prior, forgetting, x, places, sums):
    """Add all features of a sample. MODIFIES: sums; and x, which is scratch."""
    if is_plain(samples, s, forgetting):
        join(packed.weights, samples.rows[s], samples.classes, operation, sums)
    else:
        work_out(packed, samples, s, operation, now, prior, forgetting, x)
        join(x, places, samples.classes, operation, sums)


@inlined
def join_groups(operation, total, of_all):
    """FM of the classes' sums. MODIFIES: of_all (5, K): m, v, T, S and V of all of them (as printed: Q for T)."""
    dim = operation.dim
    for i in range(5):
        for k in range(dim):
            of_all[i, k] = ZERO
    for c in range(total.shape[0]):
        if operation.mode == EXACT:
            join_exact(total[c, 0, 0], total[c, 0, 1], dim, of_all[3], of_all[4], of_all[2], of_all[0], of_all[1])
        elif operation.mode == SLOPES:
            join_linear(total[c, 0, 0], total[c, 0, 1], dim, of_all[3], of_all[4], of_all[2], of_all[0], of_all[1])
        else:
            join_printed(total[c, 0, 0], total[c, 0, 1], dim, of_all[3], of_all[4], of_all[2], of_all[0], of_all[1])


@inlined
def into_block(operation, sums, of_all, s, z):
    """z_0 of sample s of a block. MODIFIES: z[:2] (unit, sample); and of_all, which is scratch."""
    op, dim, total, inner = operation.op, operation.dim, sums.total, sums.inner
    second = ZERO if operation.mode == SLOPES else ONE
    if op == GROUP_FM:
        join_groups(operation, total, of_all)
    for c in range(1 if op == GROUP_FM else total.shape[0]):
        for k in range(dim):
            i = c * dim + k if op == CONCAT else k
            if op in (CONCAT, SUM):
                z[0, i, s], z[1, i, s] = total[c, 0, 0, k], total[c, 0, 1, k]
                continue
            if op == GROUP_FM:
                z[0, i, s], z[1, i, s] = of_all[0, k], of_all[1, k]
                continue
            m, v = (z[0, i, s], z[1, i, s]) if c > 0 else (ZERO, ZERO)
            m += inner[c, 0, k]
            v += inner[c, 1, k]
            for g in range(c + 1, total.shape[1]):  # across the groups of FFM: the product of their sums
                m_c, v_c, m_g, v_g = total[c, g, 0, k], total[c, g, 1, k], total[g, c, 0, k], total[g, c, 1, k]
                m += m_c * m_g
                v += m_c * m_c * v_g + v_c * (m_g * m_g + second * v_g)
            z[0, i, s], z[1, i, s] = m, v


@inlined
def combine(a, b, operation, to):
    """The sums of the features in a and in b together, as far as `into_block` needs them. MODIFIES: to."""
    op, dim, printed, second = operation.op, operation.dim, operation.mode == PAPER, ZERO if operation.mode == SLOPES else ONE
    for c in range(a.total.shape[0]):
        for g in range(a.total.shape[1]):
            for k in range(dim):
                to.total[c, g, 0, k] = a.total[c, g, 0, k] + b.total[c, g, 0, k]
                to.total[c, g, 1, k] = a.total[c, g, 1, k] + b.total[c, g, 1, k]
        if op in (FM, FFM):
            x, y, m_x, m_y, m_z = a.total[c, c], b.total[c, c], a.inner[c], b.inner[c], to.inner[c]
            for k in range(dim):
                s_x, v_x, t_x, s_y, v_y, t_y = x[0, k], x[1, k], m_x[2, k], y[0, k], y[1, k], m_y[2, k]
                across = t_x * v_y + v_x * t_y if printed else TWO * (s_y * t_x + s_x * t_y) + s_y * s_y * v_x + s_x * s_x * v_y
                m_z[0, k] = m_x[0, k] + m_y[0, k] + s_x * s_y
                m_z[1, k] = m_x[1, k] + m_y[1, k] + across + second * v_x * v_y


@kernel
def meet_fields(x, total, inner, places, n, second, z):
    """`combine` and `into_block` for n candidates, where the operation is FM of the usual dimension. `second` is 0 by slopes.

    x is m, v, T, S and V of the shared features; total and inner are the candidates'. MODIFIES: z.
    """
    s_v, m_v_t = total.reshape(-1, USUAL), inner.reshape(-1, USUAL)  # one cache line each
    for s in range(n):
        soon, p = np.uint32(places[min(s + AHEAD, len(places) - 1)]), np.uint32(places[s])
        for i in range(2):
            prefetch(s_v, np.uint32(2) * soon + np.uint32(i))
        for i in range(3):
            prefetch(m_v_t, np.uint32(3) * soon + np.uint32(i))
        for k in range(USUAL):
            s_x, v_x, s_y, v_y, t_y = x[3, k], x[4, k], total[p, 0, 0, 0, k], total[p, 0, 0, 1, k], inner[p, 0, 2, k]
            across = TWO * (s_y * x[2, k] + s_x * t_y) + s_y * s_y * v_x + s_x * s_x * v_y + second * v_x * v_y
            z[0, k, s] = x[0, k] + inner[p, 0, 0, k] + s_x * s_y
            z[1, k, s] = x[1, k] + inner[p, 0, 1, k] + across


@kernel
def meet_groups(x, total, places, n, second, z):
    """As `meet_fields`, where the candidates' features are one group of their own: adds their sum to those of the other groups.
    MODIFIES: z."""
    s_v = total.reshape(-1, USUAL)
    for s in range(n):
        soon, p = np.uint32(places[min(s + AHEAD, len(places) - 1)]), np.uint32(places[s])
        for i in range(2):
            prefetch(s_v, np.uint32(2) * soon + np.uint32(i))
        for k in range(USUAL):
            s_x, v_x, s_y, v_y = x[3, k], x[4, k], total[p, 0, 0, 0, k], total[p, 0, 0, 1, k]
            across = s_y * (TWO * x[2, k] + s_y * v_x) + v_y * (s_x * s_x + second * v_x)
            z[0, k, s], z[1, k, s] = x[0, k] + s_x * s_y, x[1, k] + across


@inlined
def clear(sums):
    """Reset to no features. MODIFIES: sums."""
    sums.total[:] = ZERO
    sums.inner[:] = ZERO
    sums.linear[:] = ZERO


@inlined
def prefetch_rows(weights, rows, s):
    """Prefetch the rows of a sample."""
    for j in range(rows.shape[1]):
        prefetch(weights, np.uint32(max(rows[s, j], 0)))


@jit
def sum_features(packed, samples, operation, now, prior, forgetting, places, sums):
    """The sums of every sample's features, at its index in `places`. MODIFIES: sums, at these indices."""
    slots = samples.rows.shape[1]
    x, at = np.empty((slots, packed.weights.shape[1]), np.float32), np.arange(slots).astype(np.int32)
    for s in range(len(places)):
        p = places[s]
        prefetch_rows(packed.weights, samples.rows, min(s + 1, len(places) - 1))
        own = Sums(sums.total[p], sums.inner[p], sums.linear[p])
        clear(own)
        join_sample(packed, samples, s, operation, now, prior, forgetting, x, at, own)


@jit
def score_candidates(packed, shared, operation, own_operation, now, prior, forgetting, own, places, layers, shape, scores):
    """CTR, its standard deviation, mean and variance of z_L of every candidate, from the features that all share (one sample)
    and from the sums of its own features.

    MODIFIES: scores (4, candidates).
    """
    dim, kept = operation.dim, 3 if operation.op in (FM, FFM) else 0
    totals = np.zeros((2, operation.classes, operation.vectors, 2, dim), np.float32)
    inners = np.zeros((2, operation.classes, kept, dim), np.float32)
    linears, first = np.zeros((2, 2), np.float32), np.zeros(1, np.int32)
    sum_features(packed, shared, operation, now, prior, forgetting, first, Sums(totals, inners, linears))
    common, both, linear = Sums(totals[0], inners[0], linears[0]), Sums(totals[1], inners[1], linears[1]), linears[0]

    of_all = np.zeros((5, dim), np.float32)
    second = ZERO if operation.mode == SLOPES else ONE
    usual = operation.mode != PAPER and dim == USUAL and own_operation.classes == 1
    fields, groups = usual and operation.op == FM, usual and operation.op == GROUP_FM and own_operation.op == SUM
    if fields:
        for k in range(dim):
            of_all[0, k], of_all[1, k], of_all[2, k] = common.inner[0, 0, k], common.inner[0, 1, k], common.inner[0, 2, k]
            of_all[3, k], of_all[4, k] = common.total[0, 0, 0, k], common.total[0, 0, 1, k]
    elif groups:
        join_groups(operation, common.total, of_all)
    block, mean, variance = make_block(shape.sizes, shape.width), scores[2], scores[3]
    for begin in range(0, len(places), BLOCK):
        n, at_block = min(BLOCK, len(places) - begin), places[begin:]
        if fields:
            meet_fields(of_all, own.total, own.inner, at_block, n, second, block.z)
        elif groups:
            meet_groups(of_all, own.total, at_block, n, second, block.z)
        for s in range(n):
            p = np.uint32(at_block[s])
            if not fields and not groups:
                combine(common, Sums(own.total[p], own.inner[p], own.linear[p]), operation, both)
                into_block(operation, both, of_all, s, block.z)
            mean[begin + s], variance[begin + s] = linear[0] + own.linear[p, 0], linear[1] + own.linear[p, 1]
        add_outputs(layers, shape, block, mean[begin : begin + n], variance[begin : begin + n])
    widen(shape.doubt, mean, variance)
    click_moments(mean, variance, scores[0], scores[1])
