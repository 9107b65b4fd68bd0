"""The variance of z_L by slopes (beyond the paper): every weight counts by its own slope.

Moments taken layer by layer (`dense`, `relu`) add up inputs as if they were independent. But all units of a layer come from the
same z_0, and so does the shortcut: what reaches z_L in several ways must count with its covariance. The slopes do that. Letters: t
the slope of z_L by the activations a of a layer, Φ that of a rectified unit (`relu`), c the shortcut, u the slope by z_0:
    t = 1 at the top      t below = Φ ⊙ (Wᵀ t)/√n      u = c + (Wᵀ t)/√n at the bottom
    v = Σ over layers Σ_o t_o² (Σ_i v_w m_z² + v_b)/n  +  Σ_k u_k² v_z0k
The numbers of z_0 are independent, as each has its own dimension of the embeddings; v_z0 counts slopes, too (`interaction`). Means,
and the units' own variances that shape Φ, stay those of the moments.

On the way back, log Z depends on the variances of the embeddings through u alone: ∂/∂v_z0k = u_k² dv. All other gradients are
those of the moments, whose means they share.
"""

import math

import numpy as np

from pbodl._jit import inlined, kernel
from pbodl.kernels.normal import ONE, ZERO


@kernel
def layer_slopes(m_w, v_w, m_z, slope, n_in, n_out, below, spread):
    """The variance that one layer's weights add, from the slopes by its activations. MODIFIES: below, the slopes by its inputs;
    and spread, which is scratch."""
    scale = ONE / np.float32(math.sqrt(n_in + 1.0))
    variance = ZERO
    for i in range(n_in):
        below[i] = ZERO
        spread[i] = ZERO
    for o in range(n_out):
        t = slope[o] * scale
        square = t * t
        variance += square * v_w[o, n_in]
        for i in range(n_in):
            below[i] += t * m_w[o, i]
            spread[i] += square * v_w[o, i]
    for i in range(n_in):
        variance += spread[i] * (m_z[i] * m_z[i])
    return variance


@inlined
def slopes_to_bottom(shape, dense, w):
    """The variance of z_L, without the linear term, after the moments went forward. MODIFIES: w.slope; its last row is by z_0."""
    top = len(shape.sizes) - 2
    variance, slope = ZERO, w.slope
    slope[top, 0] = ONE
    for l in range(top, -1, -1):  # noqa: E741
        n_in, n_out = shape.sizes[l], shape.sizes[l + 1]
        if l < top:
            for o in range(n_out):
                slope[l, o] *= w.above[l, o]
        below = slope[l - 1] if l > 0 else slope[top + 1]
        variance += layer_slopes(dense.mean[l], dense.variance[l], w.m_z[l], slope[l], n_in, n_out, below, w.dense.spread)
    of_layers, t_0 = shape.sizes[0] > 0, slope[top + 1]
    for i in range(shape.width):
        t_0[i] = shape.shortcut + (t_0[i] if of_layers else ZERO)
        variance += t_0[i] * t_0[i] * w.v_z[0, i]
    return variance
