"""A dense layer of Gaussian weights, a = W z/√n (PBODL eq. 13).

Letters: n_in inputs with moments m_z, v_z, and the bias as one more input of mean 1 and variance 0, so that n = n_in + 1;
weights m_w, v_w of shape (n_out, n_in + 1) at least, bias in column n_in; r_z = v_z + m_z² the inputs' second moment.
    m_a = (Σ m_w m_z + m_b)/√n          v_a = (Σ [v_w r_z + m_w² v_z] + v_b)/n

erratum E1: the paper prints √(V_l + 1); the scale is the fan-in, √(V_{l-1} + 1), as in its own definition of a_l.
"""

import math
from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl.kernels.adf import adf_step
from pbodl.kernels.arguments import USUAL
from pbodl.kernels.guards import only_if
from pbodl.kernels.normal import HALF, ONE, TWO, ZERO

BLOCK = 40  # samples side by side in `dense_forward_block`: their sums for two outputs fill ten registers; 1000 are 25 blocks
LANES = np.uint64(8)  # inputs side by side in `dense_backward`: a register of float32
FIRST = np.uint64(0)


class DenseScratch(NamedTuple):
    """Room for `dense_backward`."""

    gm: np.ndarray  # float32, by output
    two_gv: np.ndarray
    spread: np.ndarray  # float32, by input: Σ 2 gv v_w
    accepted: np.ndarray  # int32, by input: updates that the guard let pass


@jit
def make_dense_scratch(widest):
    """Room for layers of up to `widest` inputs and outputs."""
    f = np.float32
    return DenseScratch(np.empty(widest, f), np.empty(widest, f), np.empty(widest, f), np.empty(widest, np.int32))


@kernel
def dense_forward(m_w, v_w, m_z, v_z, n_in, n_out, r_z, m_a, v_a):
    """Moments of one sample's activations. MODIFIES: m_a, v_a; and for backward: r_z."""
    # A branch for the usual width: with a constant, the compiler unrolls the loop over the inputs.
    if n_in == USUAL:
        _forward(m_w, v_w, m_z, v_z, USUAL, n_out, r_z, m_a, v_a)
    else:
        _forward(m_w, v_w, m_z, v_z, n_in, n_out, r_z, m_a, v_a)


@inlined
def _forward(m_w, v_w, m_z, v_z, n_in, n_out, r_z, m_a, v_a):
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    for i in range(n_in):
        r_z[i] = v_z[i] + m_z[i] * m_z[i]
    # Four outputs at a time share the inputs, and their sums do not wait for each other.
    fours = n_out - n_out % 4
    for o in range(0, fours, 4):
        m_0, m_1, m_2, m_3 = m_w[o], m_w[o + 1], m_w[o + 2], m_w[o + 3]
        v_0, v_1, v_2, v_3 = v_w[o], v_w[o + 1], v_w[o + 2], v_w[o + 3]
        mean_0, mean_1, mean_2, mean_3 = m_0[n_in], m_1[n_in], m_2[n_in], m_3[n_in]
        variance_0, variance_1, variance_2, variance_3 = v_0[n_in], v_1[n_in], v_2[n_in], v_3[n_in]
        for i in range(n_in):
            mean_0 += m_0[i] * m_z[i]
            mean_1 += m_1[i] * m_z[i]
            mean_2 += m_2[i] * m_z[i]
            mean_3 += m_3[i] * m_z[i]
            variance_0 += v_0[i] * r_z[i] + m_0[i] * m_0[i] * v_z[i]
            variance_1 += v_1[i] * r_z[i] + m_1[i] * m_1[i] * v_z[i]
            variance_2 += v_2[i] * r_z[i] + m_2[i] * m_2[i] * v_z[i]
            variance_3 += v_3[i] * r_z[i] + m_3[i] * m_3[i] * v_z[i]
        m_a[o], m_a[o + 1], m_a[o + 2], m_a[o + 3] = mean_0, mean_1, mean_2, mean_3
        v_a[o], v_a[o + 1], v_a[o + 2], v_a[o + 3] = variance_0, variance_1, variance_2, variance_3
    for o in range(fours, n_out):
        mean, variance = m_w[o, n_in], v_w[o, n_in]
        for i in range(n_in):
            mean += m_w[o, i] * m_z[i]
            variance += v_w[o, i] * r_z[i] + m_w[o, i] * m_w[o, i] * v_z[i]
        m_a[o], v_a[o] = mean, variance
    for o in range(n_out):
        m_a[o] *= scale
        v_a[o] *= scale * scale


@kernel
def dense_backward(m_w, v_w, m_z, v_z, r_z, n_in, n_out, dm_a, dv_a, power, cap, dm_z, dv_z, w):
    """Gradients by the inputs, and the ADF update of every weight; returns how many updates the guard rejected.

    ∂/∂m_w = gm m_z + 2 gv m_w v_z,  ∂/∂v_w = gv r_z  with gm = dm_a/√n, gv = dv_a/n;
    ∂/∂m_z = Σ gm m_w + 2 gv v_w m_z,  ∂/∂v_z = Σ gv (v_w + m_w²), with the weights as they were before the update.
    MODIFIES: m_w, v_w, dm_z, dv_z, and w, which is scratch.
    """
    # A branch for the plain case: with constants, the compiler drops the power and the cap from its loop.
    if power == ONE and cap == ZERO:
        return _backward(m_w, v_w, m_z, v_z, r_z, n_in, n_out, dm_a, dv_a, ONE, ZERO, dm_z, dv_z, w)
    return _backward(m_w, v_w, m_z, v_z, r_z, n_in, n_out, dm_a, dv_a, power, cap, dm_z, dv_z, w)


@inlined
def _backward(m_w, v_w, m_z, v_z, r_z, n_in, n_out, dm_a, dv_a, power, cap, dm_z, dv_z, w):
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    accepted = 0
    for o in range(n_out):
        gm, gv = dm_a[o] * scale, dv_a[o] * scale * scale
        w.gm[o], w.two_gv[o] = gm, TWO * gv
        m_w[o, n_in], v_w[o, n_in], good = _updated(m_w[o, n_in], v_w[o, n_in], gm, gv, power, cap)
        accepted += good
    for i in range(n_in):
        dm_z[i] = ZERO
        dv_z[i] = ZERO
        w.spread[i] = ZERO
        w.accepted[i] = np.int32(0)
    if n_out == 1:
        _learn_inputs(m_w, v_w, m_z, v_z, r_z, FIRST, FIRST, np.uint64(n_in), power, cap, dm_z, dv_z, w)
    else:
        # LANES inputs at a time, all outputs for each: the inputs' numbers stay in registers.
        whole, rest = np.uint64(n_in // LANES), np.uint64(n_in % LANES)
        for b in range(whole):
            for o in range(np.uint64(n_out)):
                _learn_inputs(m_w, v_w, m_z, v_z, r_z, o, b * LANES, LANES, power, cap, dm_z, dv_z, w)
        if rest > 0:
            for o in range(np.uint64(n_out)):
                _learn_inputs(m_w, v_w, m_z, v_z, r_z, o, whole * LANES, rest, power, cap, dm_z, dv_z, w)
    for i in range(n_in):
        dm_z[i] += m_z[i] * w.spread[i]
        dv_z[i] = HALF * (dv_z[i] + w.spread[i])
        accepted += w.accepted[i]
    return (n_in + 1) * n_out - accepted


@inlined
def _learn_inputs(m_w, v_w, m_z, v_z, r_z, o, first, n, power, cap, sums, squares, w):
    """Learn n weights of output o from input `first` on, and add the gradients that they pass down (twice, for those by gv).

    Indices are unsigned: the compiler need not check for negative ones. MODIFIES: m_w, v_w, sums, squares, w.
    """
    gm, two_gv = w.gm[o], w.two_gv[o]
    for k in range(n):
        i = first + k
        m, v = m_w[o, i], v_w[o, i]
        scaled = two_gv * m
        sums[i] += gm * m
        squares[i] += scaled * m
        w.spread[i] += two_gv * v
        m_w[o, i], v_w[o, i], good = _updated(m, v, gm * m_z[i] + scaled * v_z[i], HALF * (two_gv * r_z[i]), power, cap)
        w.accepted[i] += good


@inlined
def _updated(m, v, dm, dv, power, cap):
    """One weight's new mean and variance, and 1 if the guard accepted them; else the old ones and 0."""
    step, loss, good = adf_step(m, v, dm, dv, power, cap)
    return m + only_if(good, step), v - only_if(good, loss), np.int32(good)


@kernel
def pack_dense(m_w, v_w, n_in, n_out, means, variances):
    """Pack a layer's weights for `dense_forward_block`, scaled. MODIFIES: means (pairs, n_in + 1, 2), m_w of two outputs;
    variances (pairs, n_in + 1, 4), m_w² + v_w of two outputs and then their v_w; index n_in holds the biases' m and v."""
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    for p in range(len(means)):
        for i in range(n_in + 1):
            for j in range(2):
                o = 2 * p + j
                m = m_w[o, i] * scale if o < n_out else ZERO
                v = v_w[o, i] * scale * scale if o < n_out else ZERO
                means[p, i, j] = m
                variances[p, i, j] = m * m + v if i < n_in else v
                variances[p, i, 2 + j] = v


@kernel
def pack_transposed(m_w, n_in, n_out, means):
    """Pack a layer's means for slopes that go down, scaled. MODIFIES: means (pairs of inputs, n_out, 2)."""
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    for p in range(len(means)):
        for o in range(n_out):
            for j in range(2):
                means[p, o, j] = m_w[o, 2 * p + j] * scale if 2 * p + j < n_in else ZERO


@kernel
def dense_forward_block(means, variances, z, n_in, a):
    """`dense_forward` of BLOCK samples at once; z holds m_z, v_z, m_z² as (3, unit, sample), a holds m_a, v_a as (2, pair of
    outputs, 2 BLOCK samples).

    As v_w r_z + m_w² v_z = (m_w² + v_w) v_z + v_w m_z², the layer is three matrix products. A sample's sums are taken in the same
    order whatever its neighbours are, so a prediction does not depend on the rest of its batch. MODIFIES: a.
    """
    for p in range(len(means)):
        for s in range(BLOCK):
            a[0, p, s], a[0, p, BLOCK + s] = means[p, n_in, 0], means[p, n_in, 1]
            a[1, p, s], a[1, p, BLOCK + s] = variances[p, n_in, 0], variances[p, n_in, 1]
    add_product(means, z[0], n_in, a[0])
    add_products(variances, z[1], z[2], n_in, a[1])


@kernel
def add_product(w, z, n_in, a):
    """a += W z, with z as (input, sample) and a as (pair of outputs, 2 BLOCK samples). MODIFIES: a.

    BLOCK is a constant, so the compiler unrolls the innermost loop and keeps the sums of a pair in registers over all inputs.
    """
    for p in range(len(w)):
        weights, sums = w[p], a[p]
        for i in range(n_in):
            w_0, w_1, inputs = weights[i, 0], weights[i, 1], z[i]
            for s in range(BLOCK):
                sums[s] += w_0 * inputs[s]
                sums[BLOCK + s] += w_1 * inputs[s]


@kernel
def add_products(w, y, z, n_in, a):
    """As `add_product`, a += U y + W z. MODIFIES: a."""
    for p in range(len(w)):
        weights, sums = w[p], a[p]
        for i in range(n_in):
            u_0, u_1, w_0, w_1 = weights[i, 0], weights[i, 1], weights[i, 2], weights[i, 3]
            others, inputs = y[i], z[i]
            for s in range(BLOCK):
                sums[s] += u_0 * others[s] + w_0 * inputs[s]
                sums[BLOCK + s] += u_1 * others[s] + w_1 * inputs[s]


@kernel
def moments_apart(means, variances, z, n_in, a, own):
    """`dense_forward_block`, which also keeps Σ v_w m_z² + v_b, the variance by the layer's own weights. MODIFIES: a, own."""
    for p in range(len(means)):
        sums, spread, parts, weights = a[0, p], a[1, p], means[p], variances[p]
        for s in range(BLOCK):
            sums[s], sums[BLOCK + s] = parts[n_in, 0], parts[n_in, 1]
            spread[s], spread[BLOCK + s] = weights[n_in, 0], weights[n_in, 1]
        for i in range(n_in):
            w_0, w_1, squares = weights[i, 2], weights[i, 3], z[2, i]
            for s in range(BLOCK):
                spread[s] += w_0 * squares[s]
                spread[BLOCK + s] += w_1 * squares[s]
        for s in range(2 * BLOCK):
            own[2 * p * BLOCK + s] = spread[s]
        for i in range(n_in):
            w_0, w_1, inputs = weights[i, 0], weights[i, 1], z[1, i]
            for s in range(BLOCK):
                spread[s] += w_0 * inputs[s]
                spread[BLOCK + s] += w_1 * inputs[s]
    add_product(means, z[0], n_in, a[0])
