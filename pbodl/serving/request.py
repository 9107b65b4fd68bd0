"""Scoring a request: what the candidates share (user, context) joins once, and each candidate goes on from there with its own.

Every operation of the network takes its features one after the other, and keeps little of those before: their sums by class, and
for FM what `interaction` says. So a candidate starts from a copy of the shared features' sums. A feature's *class* says where it
goes: the group for FFM and for FM between groups, the field for concat, 0 for the others.

Features stand in slots: a slot belongs to one field for all samples, and where a sample does not fill it, it is zero and adds
nothing.

Letters: K the dimension, G the vectors of a feature (1 but for FFM), C the classes. Rows are packed: the means and variances of
each vector side by side, then those of the linear weight, so that all of a feature is one visit to memory.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl.kernels.adf import decay
from pbodl.kernels.dense import BLOCK
from pbodl.kernels.embedding import kept_share, means_decay, standard_draw
from pbodl.kernels.interaction import CONCAT, EXACT, FFM, FM, GROUP_FM, SUM, USUAL, join_exact, join_printed
from pbodl.kernels.layers import add_outputs, make_block
from pbodl.kernels.normal import ONE, ZERO

UNSEEN, EMPTY = -1, -2


class Packed(NamedTuple):
    """The weights that features own, one row per feature."""

    weights: np.ndarray  # float32 (rows, 2 G K + 2): means and variances of each vector, then of the linear weight if there is one
    last_seen: np.ndarray  # float64 (rows,)


class Samples(NamedTuple):
    """The features of samples, in slots."""

    rows: np.ndarray  # int32 (samples, slots): place in the table, UNSEEN, or EMPTY
    keys: np.ndarray  # uint64 (samples, slots)
    values: np.ndarray  # float32 (samples, slots)
    fields: np.ndarray  # int32 (slots,)
    classes: np.ndarray  # int32 (slots,)


class Operation(NamedTuple):
    """The embedding operation."""

    op: np.int64
    mode: np.int64  # of the FM variance: EXACT or PAPER
    vectors: np.int64  # G
    dim: np.int64  # K


class Sums(NamedTuple):
    """What is kept of the features that joined."""

    total: np.ndarray  # float32 (C, G, 2, K): S and V
    inner: np.ndarray  # float32 (C, 3, K): of the FM inside each class m and v, and T (as printed: Q); zero for FM between groups
    linear: np.ndarray  # float32 (2,): mean and variance of the linear term


@inlined
def is_plain(samples, s, forgetting):
    """Whether a sample's features are as their rows say: all seen, none forgotten, none with a value other than 1."""
    rows, values = samples.rows, samples.values
    others = 0
    for j in range(rows.shape[1]):
        others += (rows[s, j] < 0) | (values[s, j] != ONE)
    return others == 0 and forgetting.half_life == 0.0


@inlined
def draw_row(key, field, operation, prior, x, j):
    """A feature that was never seen, as its prior has it. MODIFIES: x, in row j."""
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
def work_out(packed, samples, s, operation, now, prior, forgetting, x):
    """A sample's features as they are now: unseen ones at their prior, decayed, times their values. MODIFIES: x (slots, row)."""
    weights, half_life = packed.weights, forgetting.half_life
    for j in range(x.shape[0]):
        r, value, field = samples.rows[s, j], samples.values[s, j], samples.fields[j]
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
        if value != ONE:
            scale_row(value, operation, x, j)


@inlined
def join_class(x, at, classes, c, dim, mode, total, spread, third, m_z, v_z):
    """The features of class c join its FM. MODIFIES: total, spread, third, m_z, v_z."""
    begin = 2 * c * dim
    for j in range(len(classes)):
        if classes[j] == c:
            pair = x[at[j], begin : begin + 2 * dim]
            if mode == EXACT:
                join_exact(pair[:dim], pair[dim:], dim, total, spread, third, m_z, v_z)
            else:
                join_printed(pair[:dim], pair[dim:], dim, total, spread, third, m_z, v_z)


@kernel
def join_usual(x, at, n, total, spread, third, m_z, v_z):
    """All n features join the one exact FM of the usual dimension: its sums stay in registers. MODIFIES: as `join_class`."""
    for j in range(n):
        row = x[at[j]]
        join_exact(row[:USUAL], row[USUAL : 2 * USUAL], USUAL, total, spread, third, m_z, v_z)


@inlined
def join(x, at, classes, operation, sums):
    """The features x[at[j]] join. MODIFIES: sums."""
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
                if op != FFM or g != c:  # else it has joined above
                    for k in range(dim):
                        total[c, g, 0, k] += x[at[j], 2 * g * dim + k]
                        total[c, g, 1, k] += x[at[j], 2 * g * dim + dim + k]
    if x.shape[1] > width:
        for j in range(n):
            linear[0] += x[at[j], width]
            linear[1] += x[at[j], width + 1]


@inlined
def join_sample(packed, samples, s, operation, now, prior, forgetting, x, places, sums):
    """All features of a sample join. MODIFIES: sums; and x, which is scratch."""
    if is_plain(samples, s, forgetting):
        join(packed.weights, samples.rows[s], samples.classes, operation, sums)
    else:
        work_out(packed, samples, s, operation, now, prior, forgetting, x)
        join(x, places, samples.classes, operation, sums)


@inlined
def join_groups(operation, sums):
    """FM of the classes' sums, which are there by now; its m and v come where FM has those of class 0. MODIFIES: sums."""
    dim, total, of_all, so_far = operation.dim, sums.total, sums.inner[0], sums.inner[1]
    m_z, v_z, third, s, v = of_all[0], of_all[1], of_all[2], so_far[0], so_far[1]
    for c in range(total.shape[0]):
        if operation.mode == EXACT:
            join_exact(total[c, 0, 0], total[c, 0, 1], dim, s, v, third, m_z, v_z)
        else:
            join_printed(total[c, 0, 0], total[c, 0, 1], dim, s, v, third, m_z, v_z)


@inlined
def into_block(operation, sums, s, z):
    """z_0 at place s of a block. MODIFIES: z (3, unit, sample)."""
    op, dim, total, inner = operation.op, operation.dim, sums.total, sums.inner
    if op == GROUP_FM:
        join_groups(operation, sums)
    for c in range(1 if op == GROUP_FM else total.shape[0]):
        for k in range(dim):
            i = c * dim + k if op == CONCAT else k
            if op in (CONCAT, SUM):
                z[0, i, s], z[1, i, s] = total[c, 0, 0, k], total[c, 0, 1, k]
                continue
            m, v = (z[0, i, s], z[1, i, s]) if c > 0 else (ZERO, ZERO)
            m += inner[c, 0, k]
            v += inner[c, 1, k]
            for g in range(c + 1, total.shape[1]):  # across the groups of FFM: the product of their sums
                m_c, v_c, m_g, v_g = total[c, g, 0, k], total[c, g, 1, k], total[g, c, 0, k], total[g, c, 1, k]
                m += m_c * m_g
                v += m_c * m_c * v_g + v_c * (m_g * m_g + v_g)
            z[0, i, s], z[1, i, s] = m, v
    for i in range(total.shape[0] * dim if op == CONCAT else dim):
        z[2, i, s] = z[0, i, s] * z[0, i, s]


@inlined
def copy_sums(of, to):
    """MODIFIES: to."""
    classes, vectors, _, dim = of.total.shape
    for c in range(classes):
        for i in range(3):
            for k in range(dim):
                to.inner[c, i, k] = of.inner[c, i, k]
        for g in range(vectors):
            for k in range(dim):
                to.total[c, g, 0, k], to.total[c, g, 1, k] = of.total[c, g, 0, k], of.total[c, g, 1, k]
    to.linear[0], to.linear[1] = of.linear[0], of.linear[1]


@jit
def shared_sums(packed, shared, operation, classes, now, prior, forgetting):
    """The sums of the features that all candidates share: those of the one sample in `shared`."""
    f, slots = np.float32, shared.rows.shape[1]
    sums = Sums(
        np.zeros((classes, operation.vectors, 2, operation.dim), f), np.zeros((classes, 3, operation.dim), f), np.zeros(2, f)
    )  # fmt: skip
    x, places = np.empty((slots, packed.weights.shape[1]), f), np.arange(slots).astype(np.int32)
    join_sample(packed, shared, 0, operation, now, prior, forgetting, x, places, sums)
    return sums


@jit
def score_candidates(packed, shared, own, operation, layers, shape, now, prior, forgetting, mean, variance):
    """Moments of z_L of every candidate, from the shared features' sums and its own features. MODIFIES: mean, variance."""
    slots = own.rows.shape[1]
    x, places = np.empty((slots, packed.weights.shape[1]), np.float32), np.arange(slots).astype(np.int32)
    sums = Sums(shared.total.copy(), shared.inner.copy(), shared.linear.copy())
    block = make_block(shape.sizes, shape.width)
    for begin in range(0, len(mean), BLOCK):
        n = min(BLOCK, len(mean) - begin)
        for s in range(n):
            copy_sums(shared, sums)
            join_sample(packed, own, begin + s, operation, now, prior, forgetting, x, places, sums)
            into_block(operation, sums, s, block.z)
            mean[begin + s], variance[begin + s] = sums.linear[0], sums.linear[1]
        add_outputs(layers, shape, block, mean[begin : begin + n], variance[begin : begin + n])
