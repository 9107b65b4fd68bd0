"""The CTR and its standard deviation, from the moments of z_L.

The CTR is Φ(z) of an uncertain z ~ N(m, v). Its mean is Φ(h) with h = m/√(1+v); its variance is the probability that two
independent noises both stay below z, less Φ(h)², an integral over their correlation, up to ρ = v/(1+v):
    ∫₀^ρ exp(-h²/(1+r))/(2π √(1-r²)) dr  =  1/π ∫ exp(-h²/(2-w²))/√(2-w²) dw,   w from 1/√(1+v) to 1
which subtracts nothing and has no singularity: Gauss-Legendre quadrature needs only a few points.
"""

import math

import numpy as np

from pbodl._jit import jit
from pbodl.kernels.normal import ONE, TWO, cdf, density

POINTS, WEIGHTS = (array.astype(np.float32) for array in np.polynomial.legendre.leggauss(6))
SQRT_2 = np.float32(math.sqrt(2.0))
SQRT_2_OVER_PI = np.float32(math.sqrt(2.0 / math.pi))


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
        point, weight = (ONE + POINTS[i]) / TWO, WEIGHTS[i] / TWO
        for s in range(n):
            w = ONE - point * length[s]
            inverse = ONE / np.sqrt(TWO - w * w)
            total[s] += weight * inverse * density(SQRT_2 * h[s] * inverse)
    for s in range(n):
        deviation[s] = math.sqrt(SQRT_2_OVER_PI * length[s] * total[s])


@jit
def widen(doubt, mean, variance):
    """Multiply the variances by `doubt`, and the means so that every CTR stays. MODIFIES: mean, variance."""
    if doubt != 1.0:
        for s in range(len(mean)):
            wide = doubt * variance[s]
            mean[s] *= math.sqrt((1.0 + wide) / (1.0 + variance[s]))
            variance[s] = wide
