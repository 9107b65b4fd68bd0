"""Moments of z = max(0, a) for a ~ N(m_a, v_a) (PBODL eq. 14, eq. 15).

With s = √v_a and α = m_a/s:
    m_z = m_a Φ(α) + s φ(α)                    v_z = (m_a² + v_a) Φ(α) + m_a s φ(α) - m_z²
    ∂m_z/∂m_a = Φ        ∂m_z/∂v_a = φ/(2s)    ∂v_z/∂m_a = 2 m_z (1-Φ)    ∂v_z/∂v_a = Φ - m_z φ/s

erratum E2: the printed variance has v^z on both sides; on the right it must be v^a.

Written like this the formulas lose every digit for α ≪ 0, and v_z can turn negative. With x = |α| and the excess moments
J and G of `normal`, the same quantities are, without cancellation:
    α < 0:  m_z = s φ J          v_z = s² φ (G - φ J²)
    α ≥ 0:  m_z = m_a + s φ J    v_z = s² [1 - φ (G + 2 x J + φ J²)]
"""

import numpy as np

from pbodl._jit import inlined, kernel
from pbodl.kernels.normal import FARTHEST, HALF, ONE, TWO, ZERO, density, excess

SMALLEST_VARIANCE = np.float32(1e-30)
# A gradient this small moves no float32 weight, but its square would be denormal, and denormal arithmetic is many times slower.
NEGLIGIBLE = np.float32(1e-15)


@inlined
def shape_in_short_loops(m_a, v_a, n, inverse, x, phi, g):
    """1/s, x = |α|, φ and G of n Gaussians; the steps of short loops overlap in the processor better than those of a long one.

    MODIFIES: inverse, x, phi, g.
    """
    for i in range(n):
        inverse[i] = ONE / np.sqrt(max(v_a[i], SMALLEST_VARIANCE))
        x[i] = min(abs(m_a[i]) * inverse[i], FARTHEST)
    for i in range(n):
        phi[i] = density(x[i])
    for i in range(n):
        g[i] = excess(x[i])


@kernel
def relu_forward(m_a, v_a, n, m_z, v_z, above, below, ratio):
    """Moments of n rectified Gaussians. MODIFIES: m_z, v_z; and for backward: above = Φ, below = 1-Φ, ratio = φ/s.

    On the way `above` holds x, `below` φ, `ratio` G, and `v_z` 1/s.
    """
    shape_in_short_loops(m_a, v_a, n, v_z, above, below, ratio)
    for i in range(n):
        x, phi, g, v, inverse = above[i], below[i], ratio[i], max(v_a[i], SMALLEST_VARIANCE), v_z[i]
        scale = ONE / (ONE + x * x)
        tail = phi * (x + g) * scale
        phi_j = phi * (ONE - x * g) * scale
        positive = m_a[i] >= ZERO
        m_z[i] = v * inverse * phi_j + (m_a[i] if positive else ZERO)
        shrink = ONE - (phi * g + TWO * x * phi_j + phi_j * phi_j)
        v_z[i] = v * (shrink if positive else phi * g - phi_j * phi_j)
        above[i] = ONE - tail if positive else tail
        below[i] = tail if positive else ONE - tail
        ratio[i] = phi * inverse


@kernel
def relu_moments(m_a, v_a, centre, n, m_z, v_z, r_z, x, phi, g):
    """`relu_forward` where no backward follows, the means counted from `centre`. MODIFIES: m_z, v_z, r_z = m_z²; and x, phi and g,
    which are scratch.

    On the way `v_z` holds 1/s.
    """
    shape_in_short_loops(m_a, v_a, n, v_z, x, phi, g)
    for i in range(n):
        v = max(v_a[i], SMALLEST_VARIANCE)
        phi_j = phi[i] * (ONE - x[i] * g[i]) / (ONE + x[i] * x[i])
        phi_g = phi[i] * g[i]
        positive = m_a[i] >= ZERO
        mean = v * v_z[i] * phi_j + (m_a[i] if positive else ZERO)
        shrink = ONE - (phi_g + TWO * x[i] * phi_j + phi_j * phi_j)
        from_centre = mean - centre[i]
        m_z[i] = from_centre
        v_z[i] = v * (shrink if positive else phi_g - phi_j * phi_j)
        r_z[i] = from_centre * from_centre


@kernel
def relu_moments_and_gate(m_a, v_a, centre, n, m_z, v_z, r_z, gate, x, phi, g):
    """`relu_moments`, which also keeps Φ. MODIFIES: m_z, v_z, r_z, gate; and x, phi and g, which are scratch."""
    shape_in_short_loops(m_a, v_a, n, v_z, x, phi, g)
    for i in range(n):
        v = max(v_a[i], SMALLEST_VARIANCE)
        scale = ONE / (ONE + x[i] * x[i])
        phi_j, tail = phi[i] * (ONE - x[i] * g[i]) * scale, phi[i] * (x[i] + g[i]) * scale
        phi_g = phi[i] * g[i]
        positive = m_a[i] >= ZERO
        mean = v * v_z[i] * phi_j + (m_a[i] if positive else ZERO)
        shrink = ONE - (phi_g + TWO * x[i] * phi_j + phi_j * phi_j)
        from_centre = mean - centre[i]
        m_z[i] = from_centre
        v_z[i] = v * (shrink if positive else phi_g - phi_j * phi_j)
        r_z[i] = from_centre * from_centre
        gate[i] = ONE - tail if positive else tail


@kernel
def relu_backward(m_z, centre, above, below, ratio, n, dm, dv):
    """Turn gradients by (m_z, v_z), the mean counted from `centre`, into gradients by (m_a, v_a). MODIFIES: dm, dv, in place."""
    for i in range(n):
        by_mean, by_variance, mean = dm[i], dv[i], m_z[i] + centre[i]
        dm_a = by_mean * above[i] + by_variance * TWO * mean * below[i]
        dv_a = by_mean * HALF * ratio[i] + by_variance * (above[i] - mean * ratio[i])
        # In this order NaN stays NaN, and the guards below reject and count it.
        dm[i] = ZERO if abs(dm_a) <= NEGLIGIBLE else dm_a
        dv[i] = ZERO if abs(dv_a) <= NEGLIGIBLE else dv_a
