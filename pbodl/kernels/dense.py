"""A dense layer of Gaussian weights, a = W z/√n (PBODL eq. 13).

Letters: n_in inputs with moments m_z, v_z, and the bias as one more input of mean 1 and variance 0, so that n = n_in + 1;
weights m_w, v_w of shape (n_out, n_in + 1) at least, bias in column n_in; r_z = v_z + m_z² the inputs' second moment.
    m_a = (Σ m_w m_z + m_b)/√n          v_a = (Σ [v_w r_z + m_w² v_z] + v_b)/n

erratum E1: the paper prints √(V_l + 1); the scale is the fan-in, √(V_{l-1} + 1), as in its own definition of a_l.
"""

import math

import numpy as np

from pbodl._jit import inlined, kernel
from pbodl.kernels.adf import adf_update
from pbodl.kernels.normal import ONE, TWO, ZERO

BLOCK = 32  # samples side by side in `dense_forward_block`


@kernel
def dense_forward(m_w, v_w, m_z, v_z, n_in, n_out, r_z, m_a, v_a):
    """Moments of one sample's activations. MODIFIES: m_a, v_a; and for backward: r_z."""
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    for i in range(n_in):
        r_z[i] = v_z[i] + m_z[i] * m_z[i]
    # Two outputs at a time: they share the inputs, and the loop becomes vector instructions for few inputs too.
    for o in range(0, n_out - 1, 2):
        m_0, v_0, m_1, v_1 = m_w[o], v_w[o], m_w[o + 1], v_w[o + 1]
        mean_0, variance_0, mean_1, variance_1 = m_0[n_in], v_0[n_in], m_1[n_in], v_1[n_in]
        for i in range(n_in):
            mean_0 += m_0[i] * m_z[i]
            mean_1 += m_1[i] * m_z[i]
            variance_0 += v_0[i] * r_z[i] + m_0[i] * m_0[i] * v_z[i]
            variance_1 += v_1[i] * r_z[i] + m_1[i] * m_1[i] * v_z[i]
        m_a[o], m_a[o + 1] = mean_0 * scale, mean_1 * scale
        v_a[o], v_a[o + 1] = variance_0 * scale * scale, variance_1 * scale * scale
    if n_out % 2 == 1:
        o = n_out - 1
        mean, variance = m_w[o, n_in], v_w[o, n_in]
        for i in range(n_in):
            mean += m_w[o, i] * m_z[i]
            variance += v_w[o, i] * r_z[i] + m_w[o, i] * m_w[o, i] * v_z[i]
        m_a[o] = mean * scale
        v_a[o] = variance * scale * scale


@kernel
def dense_backward(m_w, v_w, m_z, v_z, r_z, n_in, n_out, dm_a, dv_a, power, cap, dm_z, dv_z, bad):
    """Gradients by the inputs, and the ADF update of every weight; returns how many updates the guard rejected.

    ∂/∂m_w = gm m_z + 2 gv m_w v_z,  ∂/∂v_w = gv r_z  with gm = dm_a/√n, gv = dv_a/n;
    ∂/∂m_z = Σ gm m_w + 2 gv v_w m_z,  ∂/∂v_z = Σ gv (v_w + m_w²), with the weights as they were before the update.
    MODIFIES: m_w, v_w, dm_z, dv_z, and bad, which is scratch.
    """
    # The plain case apart: with the constants in sight the compiler leaves the power and the cap out of its loop.
    if power == ONE and cap == ZERO:
        return _backward(m_w, v_w, m_z, v_z, r_z, n_in, n_out, dm_a, dv_a, ONE, ZERO, dm_z, dv_z, bad)
    return _backward(m_w, v_w, m_z, v_z, r_z, n_in, n_out, dm_a, dv_a, power, cap, dm_z, dv_z, bad)


@inlined
def _backward(m_w, v_w, m_z, v_z, r_z, n_in, n_out, dm_a, dv_a, power, cap, dm_z, dv_z, bad):
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    for i in range(n_in):
        dm_z[i] = ZERO
        dv_z[i] = ZERO
        bad[i] = ZERO
    rejected = ZERO
    for o in range(n_out):
        gm = dm_a[o] * scale
        gv = dv_a[o] * scale * scale
        two_gv = TWO * gv
        m_o, v_o = m_w[o], v_w[o]
        for i in range(n_in):
            m, v = m_o[i], v_o[i]
            dm_z[i] += gm * m + two_gv * v * m_z[i]
            dv_z[i] += gv * (v + m * m)
            m_o[i], v_o[i], no = adf_update(m, v, gm * m_z[i] + two_gv * m * v_z[i], gv * r_z[i], power, cap)
            # Counted by input: one sum for all would have to be drawn together at the end of every row.
            bad[i] += no
    for o in range(n_out):
        gm, gv = dm_a[o] * scale, dv_a[o] * scale * scale
        m_w[o, n_in], v_w[o, n_in], no = adf_update(m_w[o, n_in], v_w[o, n_in], gm, gv, power, cap)
        rejected += no
    for i in range(n_in):
        rejected += bad[i]
    return int(rejected)


@kernel
def pack_dense(m_w, v_w, n_in, n_out, means, variances):
    """A layer's weights as `dense_forward_block` wants them, with the scale in them. MODIFIES: means (pairs, n_in + 1, 2), m_w of
    two outputs; variances (pairs, n_in + 1, 4), m_w² + v_w of two outputs and then their v_w; at n_in the biases' m and v."""
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
def dense_forward_block(means, variances, z, n_in, a):
    """`dense_forward` of BLOCK samples at once; z holds m_z, v_z, m_z² as (3, unit, sample), a holds m_a, v_a as (2, pair of
    outputs, 2 BLOCK samples).

    As v_w r_z + m_w² v_z = (m_w² + v_w) v_z + v_w m_z², the layer is three matrix products. A sample's sums are taken in the same
    order whatever its neighbours are, so a prediction does not depend on the batch it was made in. MODIFIES: a.
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

    BLOCK is a constant, so that the compiler unrolls the innermost loop and keeps the sums of a pair in registers over all inputs.
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
