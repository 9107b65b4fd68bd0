"""A dense layer of Gaussian weights, a = W z/√n (PBODL eq. 13).

Letters: n_in inputs with moments m_z, v_z, and the bias as one more input of mean 1 and variance 0, so that n = n_in + 1;
weights m_w, v_w of shape (n_out, n_in + 1) at least, bias in column n_in; r_z = v_z + m_z² the inputs' second moment.
    m_a = (Σ m_w m_z + m_b)/√n          v_a = (Σ [v_w r_z + m_w² v_z] + v_b)/n

erratum E1: the paper prints √(V_l + 1); the scale is the fan-in, √(V_{l-1} + 1), as in its own definition of a_l.
"""

import math

import numpy as np

from pbodl._jit import jit
from pbodl.kernels.adf import adf_update
from pbodl.kernels.normal import ONE, TWO, ZERO

BLOCK = 32  # samples side by side in `dense_forward_block`


@jit
def dense_forward(m_w, v_w, m_z, v_z, n_in, n_out, m_a, v_a):
    """Moments of one sample's activations. MODIFIES: m_a, v_a."""
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    for o in range(n_out):
        mean, variance = m_w[o, n_in], v_w[o, n_in]
        for i in range(n_in):
            mean += m_w[o, i] * m_z[i]
            variance += v_w[o, i] * (v_z[i] + m_z[i] * m_z[i]) + m_w[o, i] * m_w[o, i] * v_z[i]
        m_a[o] = mean * scale
        v_a[o] = variance * scale * scale


@jit
def dense_backward(m_w, v_w, m_z, v_z, n_in, n_out, dm_a, dv_a, power, cap, dm_z, dv_z):
    """Gradients by the inputs, and the ADF update of every weight; returns how many updates the guard rejected.

    ∂/∂m_w = gm m_z + 2 gv m_w v_z,  ∂/∂v_w = gv r_z  with gm = dm_a/√n, gv = dv_a/n;
    ∂/∂m_z = Σ gm m_w + 2 gv v_w m_z,  ∂/∂v_z = Σ gv (v_w + m_w²), with the weights as they were before the update.
    MODIFIES: m_w, v_w, dm_z, dv_z.
    """
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    rejected = 0
    for i in range(n_in):
        dm_z[i] = ZERO
        dv_z[i] = ZERO
    for o in range(n_out):
        gm = dm_a[o] * scale
        gv = dv_a[o] * scale * scale
        two_gv = TWO * gv
        for i in range(n_in):
            dm_z[i] += gm * m_w[o, i] + two_gv * v_w[o, i] * m_z[i]
            dv_z[i] += gv * (v_w[o, i] + m_w[o, i] * m_w[o, i])
        bad = ZERO
        for i in range(n_in):
            dm = gm * m_z[i] + two_gv * m_w[o, i] * v_z[i]
            dv = gv * (v_z[i] + m_z[i] * m_z[i])
            m_w[o, i], v_w[o, i], no = adf_update(m_w[o, i], v_w[o, i], dm, dv, power, cap)
            bad += no
        m_w[o, n_in], v_w[o, n_in], no = adf_update(m_w[o, n_in], v_w[o, n_in], gm, gv, power, cap)
        rejected += int(bad + no)
    return rejected


@jit
def dense_forward_block(m_w, v_w, m_z, v_z, n_in, n_out, m_a, v_a):
    """`dense_forward` of BLOCK samples at once: arrays are (unit, sample). MODIFIES: m_a, v_a.

    A weight is loaded once for all samples of a block, and the inner loop runs over samples. Each sample's sums are taken in the
    same order whatever its neighbours are, so a prediction does not depend on the batch it was made in.
    """
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    mean = np.empty(BLOCK, np.float32)
    variance = np.empty(BLOCK, np.float32)
    for o in range(n_out):
        for s in range(BLOCK):
            mean[s] = m_w[o, n_in]
            variance[s] = v_w[o, n_in]
        for i in range(n_in):
            m, v = m_w[o, i], v_w[o, i]
            square = m * m + v
            for s in range(BLOCK):
                mean[s] += m * m_z[i, s]
                variance[s] += square * v_z[i, s] + v * (m_z[i, s] * m_z[i, s])
        for s in range(BLOCK):
            m_a[o, s] = mean[s] * scale
            v_a[o, s] = variance[s] * scale * scale
