"""The layers above z_0 for all candidates of a request at once, and what becomes of z_L.

Arrays are (unit, candidate). The matrix products between the layers are NumPy's:
    m_a = M m_z + m_b        v_a = (M² + V) v_z + V m_z² + v_b
so that a layer hands on the means, and the variances with the squared means below them.

The CTR is Φ(z) of an uncertain z ~ N(m, v). Its mean is Φ(h) with h = m/√(1+v); its variance is the probability that two independent
noises both stay below z, less Φ(h)², an integral over their correlation, up to ρ = v/(1+v):
    ∫₀^ρ exp(-h²/(1+r))/(2π √(1-r²)) dr  =  1/π ∫ exp(-h²/(2-w²))/√(2-w²) dw,   w from 1/√(1+v) to 1
in which nothing is subtracted, and nothing is singular: a few points of Gauss and Legendre do.
"""

import math

import numpy as np

from pbodl._jit import jit
from pbodl.kernels.normal import FARTHEST, ONE, TWO, ZERO, cdf, density, excess
from pbodl.kernels.relu import SMALLEST_VARIANCE

POINTS, WEIGHTS = (array.astype(np.float32) for array in np.polynomial.legendre.leggauss(6))
SQRT_2 = np.float32(math.sqrt(2.0))
SQRT_2_OVER_PI = np.float32(math.sqrt(2.0 / math.pi))


@jit
def relu_unit(m_a, v_a, m_bias, v_bias, m_z, v_z, r_z, x, phi, g):
    """`relu_forward` of one unit for all candidates, in short loops, whose steps overlap better than those of a long one.

    MODIFIES: m_z, v_z, r_z = m_z²; x, phi, g, which are room to work in.
    """
    n = len(m_a)
    for s in range(n):
        x[s] = min(abs(m_a[s] + m_bias) / np.sqrt(max(v_a[s] + v_bias, SMALLEST_VARIANCE)), FARTHEST)
    for s in range(n):
        phi[s] = density(x[s])
    for s in range(n):
        g[s] = excess(x[s])
    for s in range(n):
        m, v = m_a[s] + m_bias, v_a[s] + v_bias
        phi_j = phi[s] * (ONE - x[s] * g[s]) / (ONE + x[s] * x[s])
        phi_g = phi[s] * g[s]
        positive = m >= ZERO
        mean = np.sqrt(v) * phi_j + (m if positive else ZERO)
        m_z[s] = mean
        r_z[s] = mean * mean
        shrink = ONE - (phi_g + TWO * x[s] * phi_j + phi_j * phi_j)
        v_z[s] = v * (shrink if positive else phi_g - phi_j * phi_j)


@jit
def relu_units(m_a, v_a, bias, m_z, vr_z):
    """Every unit of a layer; bias (2, units). MODIFIES: m_z (units, candidates), vr_z (2, units, candidates)."""
    n = m_a.shape[1]
    x, phi, g = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    for u in range(len(m_a)):
        relu_unit(m_a[u], v_a[u], bias[0, u], bias[1, u], m_z[u], vr_z[0, u], vr_z[1, u], x, phi, g)


@jit
def top(m_a, v_a, bias, linear, shortcut, m_z, vr_z, mean, variance):
    """Moments of z_L: the last layer, the linear term, and the shortcut from z_0. MODIFIES: mean, variance."""
    for s in range(len(mean)):
        mean[s] = m_a[s] + bias[0, 0] + linear[s, 0]
        variance[s] = v_a[s] + bias[1, 0] + linear[s, 1]
    if shortcut > ZERO:
        for s in range(len(mean)):
            m_sum, v_sum = ZERO, ZERO
            for i in range(m_z.shape[1]):
                m_sum += m_z[s, i]
                v_sum += vr_z[s, 0, i]
            mean[s] += shortcut * m_sum
            variance[s] += shortcut * shortcut * v_sum


@jit
def click_moments(mean, variance, ctr, deviation):
    """Mean and standard deviation of Φ(z). MODIFIES: ctr, deviation."""
    n = len(mean)
    h, length, total = np.empty(n, np.float32), np.empty(n, np.float32), np.zeros(n, np.float32)
    for s in range(n):
        root = math.sqrt(1.0 + variance[s])
        ctr[s] = cdf(mean[s] / root)
        h[s] = abs(mean[s] / root)
        length[s] = variance[s] / (root * (1.0 + root))  # 1 - 1/root, without subtracting
    for i in range(len(POINTS)):
        place, weight = (ONE + POINTS[i]) / TWO, WEIGHTS[i] / TWO
        for s in range(n):
            w = ONE - place * length[s]
            inverse = ONE / np.sqrt(TWO - w * w)
            total[s] += weight * inverse * density(SQRT_2 * h[s] * inverse)
    for s in range(n):
        deviation[s] = math.sqrt(SQRT_2_OVER_PI * length[s] * total[s])
