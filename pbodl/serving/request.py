"""Scoring a request: what the candidates share (user, context) is worked out once, and of each candidate its own features alone.

Every operation of the network splits into a part of the shared features A, a part of the candidate's own features B, and what the
two have in common. With S = Σ m, V = Σ v, T = Σ v (S - m), Q = Σ m² of either set:
    sum      m = S_A + S_B                        v = V_A + V_B
    FM       m = m_A + m_B + S_A S_B
             v = v_A + v_B + 2 (S_B T_A + S_A T_B) + S_B² V_A + S_A² V_B + V_A V_B        (exact)
             v = v_A + v_B + Q_B V_A + Q_A V_B + V_A V_B                                  (as printed)
    FFM      inside a group as FM; across groups the product of the sums, of which each is S_A + S_B
    concat   the fields of A and those of B have their own places in z_0

Features stand in slots: a slot belongs to one field for all samples, and where a sample does not fill it, it is zero and adds nothing
anywhere. A slot's *class* says where it goes: the group for FFM, the field's place for concat, 0 for the others.

Letters: K the dimension, G the vectors of a feature (1 but for FFM), C the classes. Rows are packed: the means and variances of each
vector side by side, then those of the linear weight, so that all of a feature is one visit to memory.

The loops are shaped for LLVM, which makes vector instructions of the innermost one where it can tell its arrays apart: arrays have
their full shape, and the innermost index stands alone. The layers above z_0 are in `request_layers`.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import jit
from pbodl.kernels.adf import decay
from pbodl.kernels.embedding import kept_share, means_decay, standard_draw
from pbodl.kernels.interaction import CONCAT, EXACT, FFM, SUM
from pbodl.kernels.normal import HALF, ONE, TWO, ZERO

BLOCK = 16  # samples worked on at a time, so that their features stay in the nearest cache
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
    """What merging needs to know of sets of features, one row for each set."""

    total: np.ndarray  # float32 (sets, C, G, 2, K): S and V
    inner: np.ndarray  # float32 (sets, C, 3, K): of the FM inside each class m and v, and T (as printed: Q)
    linear: np.ndarray  # float32 (sets, 2): mean and variance of the linear term


@jit
def copy_rows(packed, samples, begin, n, x):
    """MODIFIES: x, here (slots, BLOCK, 2 G K)."""
    weights, rows = packed.weights, samples.rows
    for s in range(n):
        for j in range(rows.shape[1]):
            r = rows[begin + s, j]
            if r >= 0:
                for d in range(x.shape[2]):
                    x[j, s, d] = weights[r, d]
            else:
                for d in range(x.shape[2]):
                    x[j, s, d] = ZERO


@jit
def adjust(packed, samples, begin, n, now, prior, forgetting, x):
    """Features that were never seen start at their prior; others have forgotten since; values multiply. MODIFIES: x."""
    rows, keys, values, fields = samples.rows, samples.keys, samples.values, samples.fields
    n_vectors, dim = x.shape[2], x.shape[4]
    also_mean = means_decay(prior, forgetting)
    for s in range(n):
        for j in range(rows.shape[1]):
            r, value, v_prior = rows[begin + s, j], values[begin + s, j], prior.variance[fields[j]]
            if r == UNSEEN:
                for g in range(n_vectors):
                    for k in range(dim):
                        draw = standard_draw(prior.seed, keys[begin + s, j], np.uint64(g * dim + k))
                        x[j, s, g, 0, k] = prior.initial_scale * draw
                        x[j, s, g, 1, k] = v_prior
            elif r >= 0 and forgetting.half_life > 0.0:
                kept = kept_share(now - packed.last_seen[r], forgetting.half_life)
                if kept < ONE:
                    for g in range(n_vectors):
                        for k in range(dim):
                            m, v = decay(x[j, s, g, 0, k], x[j, s, g, 1, k], v_prior, kept, also_mean)
                            x[j, s, g, 0, k], x[j, s, g, 1, k] = m, v
            if r != EMPTY and value != ONE:
                for g in range(n_vectors):
                    for k in range(dim):
                        x[j, s, g, 0, k] *= value
                        x[j, s, g, 1, k] *= value * value


@jit
def needs_adjusting(samples, forgetting):
    """Whether a feature is unseen, or has forgotten, or has a value other than 1."""
    rows, values = samples.rows, samples.values
    if forgetting.half_life > 0.0:
        return True
    for s in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            if rows[s, j] == UNSEEN or (rows[s, j] >= 0 and values[s, j] != ONE):
                return True
    return False


@jit
def linear_term(packed, samples, begin, n, at, now, prior, forgetting, linear):
    """MODIFIES: linear."""
    weights, rows, values, fields = packed.weights, samples.rows, samples.values, samples.fields
    last = weights.shape[1] - 1
    for s in range(begin, begin + n):
        m_sum, v_sum = ZERO, ZERO
        for j in range(rows.shape[1]):
            r, value = rows[s, j], values[s, j]
            if r == EMPTY:
                continue
            m, v = ZERO, prior.linear_variance[fields[j]]
            if r >= 0:
                m, v = weights[r, last - 1], weights[r, last]
                if forgetting.half_life > 0.0:
                    kept = kept_share(now - packed.last_seen[r], forgetting.half_life)
                    if kept < ONE:
                        m, v = decay(m, v, prior.linear_variance[fields[j]], kept, forgetting.also_mean)
            m_sum += value * m
            v_sum += value * value * v
        linear[at[s], 0], linear[at[s], 1] = m_sum, v_sum


@jit
def add_up(x, classes, begin, n, at, total):
    """S and V of each class. MODIFIES: total, here (sets, C, 2 G K)."""
    for s in range(n):
        a = at[begin + s]
        for c in range(total.shape[1]):
            for d in range(total.shape[2]):
                total[a, c, d] = ZERO
        for j in range(len(classes)):
            c = classes[j]
            for d in range(total.shape[2]):
                total[a, c, d] += x[j, s, d]


@jit
def fm_exact(x, classes, begin, n, at, dim, total, inner):
    """The FM of each class by itself. MODIFIES: inner."""
    for s in range(n):
        a = at[begin + s]
        for c in range(inner.shape[1]):
            for i in range(3):
                for k in range(dim):
                    inner[a, c, i, k] = ZERO
            for j in range(len(classes)):
                if classes[j] == c:
                    for k in range(dim):
                        m, v = x[j, s, c, 0, k], x[j, s, c, 1, k]
                        rest = total[a, c, c, 0, k] - m
                        inner[a, c, 0, k] += HALF * m * rest
                        inner[a, c, 1, k] += v * (rest * rest + HALF * (total[a, c, c, 1, k] - v))
                        inner[a, c, 2, k] += v * rest


@jit
def fm_printed(x, classes, begin, n, at, dim, total, inner):
    """As `fm_exact`, with the variance as printed. MODIFIES: inner."""
    for s in range(n):
        a = at[begin + s]
        for c in range(inner.shape[1]):
            for i in range(3):
                for k in range(dim):
                    inner[a, c, i, k] = ZERO
            for j in range(len(classes)):
                if classes[j] == c:
                    for k in range(dim):
                        inner[a, c, 2, k] += x[j, s, c, 0, k] * x[j, s, c, 0, k]
            for j in range(len(classes)):
                if classes[j] == c:
                    for k in range(dim):
                        m, v = x[j, s, c, 0, k], x[j, s, c, 1, k]
                        rest = max(inner[a, c, 2, k] - m * m, ZERO)
                        inner[a, c, 0, k] += HALF * m * (total[a, c, c, 0, k] - m)
                        inner[a, c, 1, k] += v * (rest + HALF * (total[a, c, c, 1, k] - v))


@jit
def sum_features(packed, samples, at, operation, now, prior, forgetting, sums):
    """The sums of every sample's features, into the rows `at`. MODIFIES: sums."""
    n, slots = samples.rows.shape
    vectors, dim = operation.vectors, operation.dim
    width = 2 * vectors * dim
    x = np.empty((slots, BLOCK, vectors, 2, dim), np.float32)
    flat, total = x.reshape(slots, BLOCK, width), sums.total.reshape(len(sums.total), sums.total.shape[1], width)
    adjusted = needs_adjusting(samples, forgetting)
    for begin in range(0, n, BLOCK):
        size = min(BLOCK, n - begin)
        copy_rows(packed, samples, begin, size, flat)
        if adjusted:
            adjust(packed, samples, begin, size, now, prior, forgetting, x)
        if packed.weights.shape[1] > width:
            linear_term(packed, samples, begin, size, at, now, prior, forgetting, sums.linear)
        else:
            for s in range(begin, begin + size):
                sums.linear[at[s], 0], sums.linear[at[s], 1] = ZERO, ZERO
        add_up(flat, samples.classes, begin, size, at, total)
        if operation.op != SUM and operation.op != CONCAT:
            if operation.mode == EXACT:
                fm_exact(x, samples.classes, begin, size, at, dim, sums.total, sums.inner)
            else:
                fm_printed(x, samples.classes, begin, size, at, dim, sums.total, sums.inner)


@jit
def merge_fm(a, b, mode, m_z, vr_z):
    """z_0 from inside the classes. MODIFIES: m_z, vr_z."""
    for s in range(len(m_z)):
        for k in range(m_z.shape[1]):
            m_z[s, k] = ZERO
            vr_z[s, 0, k] = ZERO
        for c in range(b.inner.shape[1]):
            for k in range(m_z.shape[1]):
                m_z[s, k] += a.inner[0, c, 0, k] + b.inner[s, c, 0, k] + a.total[0, c, c, 0, k] * b.total[s, c, c, 0, k]
            for k in range(m_z.shape[1]):
                s_a, s_b = a.total[0, c, c, 0, k], b.total[s, c, c, 0, k]
                v_a, v_b = a.total[0, c, c, 1, k], b.total[s, c, c, 1, k]
                x_a, x_b = a.inner[0, c, 2, k], b.inner[s, c, 2, k]
                if mode == EXACT:
                    both = TWO * (s_b * x_a + s_a * x_b) + s_b * s_b * v_a + (s_a * s_a + v_a) * v_b
                else:
                    both = x_b * v_a + (x_a + v_a) * v_b
                vr_z[s, 0, k] += a.inner[0, c, 1, k] + b.inner[s, c, 1, k] + both


@jit
def merge_across(a, b, m_z, vr_z):
    """Add to z_0 what lies across the groups of FFM. MODIFIES: m_z, vr_z."""
    for s in range(len(m_z)):
        for f in range(b.total.shape[1]):
            for g in range(f + 1, b.total.shape[1]):
                for k in range(m_z.shape[1]):
                    m = a.total[0, f, g, 0, k] + b.total[s, f, g, 0, k]
                    v = a.total[0, f, g, 1, k] + b.total[s, f, g, 1, k]
                    m_other = a.total[0, g, f, 0, k] + b.total[s, g, f, 0, k]
                    v_other = a.total[0, g, f, 1, k] + b.total[s, g, f, 1, k]
                    m_z[s, k] += m * m_other
                    vr_z[s, 0, k] += m * m * v_other + v * (m_other * m_other + v_other)


@jit
def merge_sum(a, b, m_z, vr_z):
    """MODIFIES: m_z, vr_z."""
    for s in range(len(m_z)):
        for k in range(m_z.shape[1]):
            m_z[s, k] = a.total[0, 0, 0, 0, k] + b.total[s, 0, 0, 0, k]
            vr_z[s, 0, k] = a.total[0, 0, 0, 1, k] + b.total[s, 0, 0, 1, k]


@jit
def put_side_by_side(b, m_z, vr_z):
    """z_0 of concat: the classes one after the other. MODIFIES: m_z, vr_z."""
    dim = b.total.shape[4]
    for s in range(len(m_z)):
        for c in range(b.total.shape[1]):
            for k in range(dim):
                m_z[s, c * dim + k] = b.total[s, c, 0, 0, k]
                vr_z[s, 0, c * dim + k] = b.total[s, c, 0, 1, k]


@jit
def merge(a, b, operation, m_z, vr_z, linear):
    """z_0 and the linear term of candidates, from the sums of their own features, b, and of the shared ones, a (one row).

    For concat z_0 is that of the own fields alone. MODIFIES: m_z (candidates, W), the means; vr_z (candidates, 2, W), the variances
    and the squared means; linear (candidates, 2).
    """
    op = operation.op
    if op == CONCAT:
        put_side_by_side(b, m_z, vr_z)
    elif op == SUM:
        merge_sum(a, b, m_z, vr_z)
    else:
        merge_fm(a, b, operation.mode, m_z, vr_z)
        if op == FFM:
            merge_across(a, b, m_z, vr_z)
    for s in range(len(m_z)):
        for i in range(m_z.shape[1]):
            vr_z[s, 1, i] = m_z[s, i] * m_z[s, i]
    for s in range(len(m_z)):
        linear[s, 0] = a.linear[0, 0] + b.linear[s, 0]
        linear[s, 1] = a.linear[0, 1] + b.linear[s, 1]
