"""Learning a minibatch while other workers learn theirs: every row has its own power of the likelihood.

Other workers correct the same residual through the same frequent rows. A worker therefore learns such a row as if it had seen their
evidence too, with the likelihood to a power C ≥ 1, and then sends only its share of the result (`parallel.merge`). With all powers
at 1 this is `network.learn_batch`. The dense weights always learn as there.
"""

import numpy as np

from pbodl._jit import inlined, jit
from pbodl.kernels.adf import adf_update
from pbodl.kernels.arguments import counted, most_features
from pbodl.kernels.layers.embedding import embedding_forward, learned_from
from pbodl.kernels.layers.operations import (
    by_slopes,
    dense_backward_from_top,
    dense_forward_to_top,
    operation_backward,
    operation_forward,
    power_at_z,
)
from pbodl.kernels.layers.relu import NEGLIGIBLE
from pbodl.kernels.layers.stage import stage_backward
from pbodl.kernels.network import REJECTED_DENSE, flat, make_scratch
from pbodl.kernels.normal import ONE, ZERO


@inlined
def joint_scale(rows, row_powers, features, sample, dm_x, dm, v, noise):
    """(n + v)/(n + v + Σ (C-1) v_w g²), g = ∂m_z/∂m_w, v the predictive variance: the joint step of a Gaussian likelihood.

    n is the likelihood's noise: 1, or 1/w if its power w was taken at z.

    Without this factor, many rows with large powers would together overshoot the sample.
    """
    m_w, v_w, v_l = rows.mean, rows.variance, rows.linear_variance
    first, last = features.indptr[sample], features.indptr[sample + 1]
    extra, scale = ZERO, ZERO
    if abs(dm) > NEGLIGIBLE:
        scale = ONE / (dm * dm)
    for j in range(last - first):
        r, x = features.rows[first + j], features.values[first + j]
        spread = ZERO
        for d in range(m_w.shape[1]):
            spread += v_w[r, d] * dm_x[j, d] * dm_x[j, d]
        spread *= scale
        if len(v_l) > 0:
            spread += v_l[r, 0]
        extra += (row_powers[r] - ONE) * x * x * spread
    return (noise + v) / (noise + v + extra)


@inlined
def embedding_backward_to_powers(
    rows, row_powers, features, sample, dm_x, dv_x, dm_linear, dv_linear, power, cap, counts, rejected
):
    """Update the rows of a sample's features, each to its own power. MODIFIES: rows, rejected[0] and rejected[1]."""
    m_w, v_w, m_l, v_l = rows.mean, rows.variance, rows.linear_mean, rows.linear_variance
    first, last = features.indptr[sample], features.indptr[sample + 1]
    bad, bad_linear = ZERO, ZERO
    for j in range(last - first):
        r, x = features.rows[first + j], features.values[first + j]
        x2, own = x * x, power * row_powers[r]
        for d in range(m_w.shape[1]):
            m_w[r, d], v_w[r, d], no = adf_update(m_w[r, d], v_w[r, d], x * dm_x[j, d], x2 * dv_x[j, d], own, cap)
            bad += no
        if len(m_l) > 0:
            m_l[r, 0], v_l[r, 0], no = adf_update(m_l[r, 0], v_l[r, 0], x * dm_linear, x2 * dv_linear, own, cap)
            bad_linear += no
        rows.count[r] = learned_from(rows.count[r], counts)
    rejected[0] += int(bad)
    rejected[1] += int(bad_linear)


@jit
def learn_to_powers(row_powers, weights, network, samples, outputs):
    """`learn_batch` without decay, row r to the power row_powers[r]. MODIFIES: weights, outputs."""
    rows, dense = weights
    shape, cap = network.shape, network.cap
    features, clicks, powers, _, came_before, came_by = samples
    mean, variance, rejected = outputs
    w = make_scratch(shape, most_features(features.indptr), rows.mean.shape[1])
    m_x, v_x = flat(w.m_x), flat(w.v_x)
    dm_x, dv_x = flat(w.dm_x), flat(w.dv_x)
    for sample in range(len(clicks)):
        m_linear, v_linear = embedding_forward(rows, features, sample, m_x, v_x)
        operation_forward(shape, features, sample, w.m_x, w.v_x, w.members[0], w)
        counts = counted(samples, sample)
        m_top, v_top = dense_forward_to_top(shape, dense, w, counts)
        m, v = np.float64(m_top + m_linear), np.float64(v_top + v_linear)
        mean[sample], variance[sample] = m, v
        power = powers[sample]
        if power == ZERO:
            continue
        dm64, dv64 = stage_backward(m, v, clicks[sample] > ZERO, np.float64(came_before[sample]), np.float64(came_by[sample]))
        noise = ONE / max(power, ONE) if by_slopes(shape) else ONE
        dm64, dv64, power = power_at_z(shape, dense, m, v, v_linear, dm64, dv64, power, w, rejected)
        dm, dv = np.float32(dm64), np.float32(dv64)
        rejected[REJECTED_DENSE] += dense_backward_from_top(shape, dense, dm, dv, power, cap, w)
        operation_backward(shape, features, sample, w.m_x, w.v_x, w.members[0], w)
        power *= joint_scale(rows, row_powers, features, sample, dm_x, dm, np.float32(v), noise)
        embedding_backward_to_powers(rows, row_powers, features, sample, dm_x, dv_x, dm, dv, power, cap, counts, rejected)
