"""From a sample's features to z_L and back, for every operation: what `network` does between the table and the probit.

A model of pairs (`PairShape`) and a network with layers (`Shape`) take other ways here. The way is chosen when a kernel is
compiled, so that each model waits only for the compilation of its own (`_jit.by_type`).
"""

import numpy as np

from pbodl._jit import by_type, inlined
from pbodl.kernels.adf import count_power, damped, no_further, powered
from pbodl.kernels.arguments import PairShape
from pbodl.kernels.layers.dense import dense_backward, dense_forward
from pbodl.kernels.layers.ffm import ffm_backward, ffm_forward
from pbodl.kernels.layers.group_fm import group_fm_backward, group_fm_forward
from pbodl.kernels.layers.interaction import (
    CONCAT,
    FM,
    GROUP_FM,
    PAIRS,
    SLOPES,
    SUM,
    concat_backward,
    concat_forward,
    fm_backward,
    fm_forward,
    sum_backward,
    sum_forward,
)
from pbodl.kernels.layers.pairs import field_sums, learn_pairs, pairs_backward, pairs_forward
from pbodl.kernels.layers.relu import relu_backward, relu_forward
from pbodl.kernels.layers.slopes import slopes_to_bottom
from pbodl.kernels.normal import ONE, ZERO


@inlined
def field_sums_forward(shape, features, sample, m_x, v_x, at, w):
    """The fields' sums, for pairs. MODIFIES: w."""
    first = features.indptr[sample]
    field_sums(m_x, v_x, at, features.indptr[sample + 1] - first, features.fields, first, w.pairs)


@inlined
def z_0_forward(shape, features, sample, m_x, v_x, at, w):
    """z_0 of a network. MODIFIES: w."""
    first = features.indptr[sample]
    n = features.indptr[sample + 1] - first
    m_z, v_z = w.m_z[0], w.v_z[0]
    if shape.op in (CONCAT, SUM):
        for i in range(shape.width):
            m_z[i] = ZERO
            v_z[i] = ZERO
    if shape.op == CONCAT:
        concat_forward(m_x, v_x, n, features.fields, first, m_z, v_z)
    elif shape.op == SUM:
        sum_forward(m_x, v_x, n, m_z, v_z)
    elif shape.op == FM:
        fm_forward(m_x, v_x, at, n, 0, shape.mode, False, w.sums[0], m_z, v_z)
    else:
        for j in range(n):
            w.groups[j] = shape.group_of_field[features.fields[first + j]]
        if shape.op == GROUP_FM:
            group_fm_forward(m_x, v_x, at, n, w.groups, shape.mode, w.members[0], w.m_p, w.v_p, w.sums[0], m_z, v_z)
        else:
            ffm_forward(m_x, v_x, n, w.groups, shape.mode, w.members, w.counts, w.m_p, w.v_p, w.sums, m_z, v_z)


# z_0 from the features: feature j is m_x[at[j]], in the table for IN_PLACE, else gathered. MODIFIES: w.
operation_forward = by_type(PairShape, field_sums_forward, z_0_forward)


@inlined
def field_sums_backward(shape, features, sample, m_x, v_x, at, w):
    """Gradients by the features from those by z_L, for pairs. MODIFIES: w."""
    first = features.indptr[sample]
    n = features.indptr[sample + 1] - first
    pairs_backward(n, features.fields, first, w.dm[0, 0], w.dv[0, 0], w.pairs, w.dm_x, w.dv_x)


@inlined
def z_0_backward(shape, features, sample, m_x, v_x, at, w):
    """Gradients by the features from those by z_0 of a network. MODIFIES: w."""
    first = features.indptr[sample]
    n = features.indptr[sample + 1] - first
    dm_z, dv_z = w.dm[0], w.dv[0]
    if shape.op == CONCAT:
        concat_backward(n, features.fields, first, dm_z, dv_z, w.dm_x, w.dv_x)
    elif shape.op == SUM:
        sum_backward(n, dm_z, dv_z, w.dm_x, w.dv_x)
    elif shape.op == FM:
        fm_backward(m_x, v_x, at, w.members[0], n, 0, shape.mode, w.sums[0], dm_z, dv_z, w.dm_x, w.dv_x)
    elif shape.op == GROUP_FM:
        group_fm_backward(
            n, w.groups, shape.mode, w.members[0], w.m_p, w.v_p, w.sums[0], dm_z, dv_z, w.dm_p, w.dv_p, w.dm_x, w.dv_x
        )
    else:
        ffm_backward(w.m_x, w.v_x, n, w.groups, shape.mode, w.members, w.counts, w.m_p, w.v_p, w.sums, dm_z, dv_z, w.dm_x, w.dv_x)


# Gradients by the features, feature j being m_x[at[j]]. MODIFIES: w.
operation_backward = by_type(PairShape, field_sums_backward, z_0_backward)


@inlined
def centred(m_z, n, centre, total, counts):
    """Subtract the centre from n hidden units, and add them to the totals if the sample counts. MODIFIES: m_z, total."""
    share = np.float64(counts)
    for i in range(n):
        total[i] += share * m_z[i]
        m_z[i] -= centre[i]
    total[n] += share


@inlined
def weighted_pairs_forward(shape, dense, w, counts):
    """z_L of one sample, without the linear term, from the fields' sums. MODIFIES: w."""
    return pairs_forward(dense.mean[0, 0], dense.variance[0, 0], shape.group_of_field, w.pairs)


@inlined
def layers_forward(shape, dense, w, counts):
    """z_L of one sample, without the linear term, from z_0; `counts` is 1, or 0 to leave the totals. MODIFIES: w, dense.total."""
    top = len(shape.sizes) - 2
    for l in range(top + 1):  # noqa: E741
        n_in, n_out = shape.sizes[l], shape.sizes[l + 1]
        dense_forward(dense.mean[l], dense.variance[l], w.m_z[l], w.v_z[l], n_in, n_out, w.r_z[l], w.m_a[l], w.v_a[l])
        if l < top:
            relu_forward(w.m_a[l], w.v_a[l], n_out, w.m_z[l + 1], w.v_z[l + 1], w.above[l], w.below[l], w.ratio[l])
            centred(w.m_z[l + 1], n_out, dense.centre[l + 1], dense.total[l + 1], counts)
    mean, variance = w.m_a[top, 0], w.v_a[top, 0]
    for i in range(shape.width):
        mean += shape.shortcut * w.m_z[0, i]
    if shape.mode == SLOPES:
        return mean, slopes_to_bottom(shape, dense, w)
    for i in range(shape.width):
        variance += shape.shortcut * shape.shortcut * w.v_z[0, i]
    return mean, variance


dense_forward_to_top = by_type(PairShape, weighted_pairs_forward, layers_forward)


@inlined
def by_slopes(shape):
    """Whether h of every weight is that of z times the square of its slope: no hidden layers, and no moments of products."""
    return shape.op == PAIRS or (shape.sizes[0] == 0 and (shape.mode == SLOPES or shape.op == SUM or shape.op == CONCAT))


@inlined
def power_by_slopes(shape, dense, m, v, v_linear, dm, dv, power, w, counts):
    """As `power_at_z`, for pairs."""
    dm, dv = no_further(m, dm, dv)
    if power > ONE:
        count_power(v, dm, dv, power, counts)
    return powered(v, dm, dv, power)


@inlined
def power_of_layers(shape, dense, m, v, v_linear, dm, dv, power, w, counts):
    """As `power_at_z`, for networks. MODIFIES: w, counts."""
    if shape.sizes[0] > 0 or (shape.op != SUM and shape.op != CONCAT):  # sums alone have no products
        dm, dv = no_further(m, dm, dv)
    if power <= ONE:
        return dm, dv, power
    if by_slopes(shape):
        count_power(v, dm, dv, power, counts)
        return powered(v, dm, dv, power)
    reach = np.float64(slopes_to_bottom(shape, dense, w) + v_linear)
    count_power(reach, dm, dv, power, counts)
    return dm, dv, damped(reach, dm, dv, power)


# ∂log Z by the mean m and variance v of z, within bounds, and the power left to the weights, after one above 1 was taken there.
power_at_z = by_type(PairShape, power_by_slopes, power_of_layers)


@inlined
def weighted_pairs_backward(shape, dense, dm_top, dv_top, power, cap, w):
    """Update the weights of the pairs; returns the rejected updates. MODIFIES: dense, w."""
    w.dm[0, 0], w.dv[0, 0] = dm_top, dv_top
    return learn_pairs(dense.mean[0, 0], dense.variance[0, 0], dm_top, dv_top, power, cap, w.pairs)


@inlined
def layers_backward(shape, dense, dm_top, dv_top, power, cap, w):
    """Update the dense weights and carry the gradients down to z_0; returns the rejected updates. MODIFIES: dense, w."""
    top = len(shape.sizes) - 2
    rejected = 0
    w.dm[top + 1, 0], w.dv[top + 1, 0] = dm_top, dv_top
    for l in range(top, -1, -1):  # noqa: E741
        n_in, n_out = shape.sizes[l], shape.sizes[l + 1]
        if l < top:
            relu_backward(w.m_z[l + 1], dense.centre[l + 1], w.above[l], w.below[l], w.ratio[l], n_out, w.dm[l + 1], w.dv[l + 1])
        rejected += dense_backward(
            dense.mean[l], dense.variance[l], w.m_z[l], w.v_z[l], w.r_z[l], n_in, n_out,
            w.dm[l + 1], w.dv[l + 1], power, cap, w.dm[l], w.dv[l], w.dense,
        )  # fmt: skip
    below_hidden = shape.sizes[0] > 0
    for i in range(shape.width):
        w.dm[0, i] = shape.shortcut * dm_top + (w.dm[0, i] if below_hidden else ZERO)
        w.dv[0, i] = shape.shortcut * shape.shortcut * dv_top + (w.dv[0, i] if below_hidden else ZERO)
    if shape.mode == SLOPES:
        slope = w.slope[top + 1]
        for i in range(shape.width):
            w.dv[0, i] = slope[i] * slope[i] * dv_top
    return rejected


dense_backward_from_top = by_type(PairShape, weighted_pairs_backward, layers_backward)
