"""Embedding operations that work dimension by dimension: concat, sum and FM (PBODL eq. 12, 17-21).

Letters: n features of a sample with moments m_x, v_x of shape (n, G, K); `g` picks the vectors that take part (0 but for FFM).
    concat  z_0 = the fields' vectors side by side; features of the same field are summed first (PBODL eq. 12)
    sum     z_0k = Σ_i z_ik                                                                    (PBODL eq. 17, eq. 18)
    FM      z_0k = Σ_{i<j} z_ik z_jk                                                           (PBODL eq. 19, eq. 20, eq. 21)

erratum E3: the printed FM variance adds the variances of the pairs as if they were independent, but pairs share features. Exact,
and as cheap, with S = Σ m, V = Σ v, T = Σ_j v_j (S - m_j):
    m = ½ [S² - Σ m²]                             v = Σ_i v_i (S - m_i)² + ½ [V² - Σ v²]
    ∂m/∂m_i = S - m_i      ∂v/∂v_i = (S - m_i)² + V - v_i      ∂v/∂m_i = 2 (T - v_i (S - m_i))
As printed, with q = m² + v:  v = ½ [(Σq)² - Σq²] - ½ [(Σm²)² - Σm⁴]. Multiplied out, this is, with Q = Σ m²,
    v = Σ_i v_i (Q - m_i²) + ½ [V² - Σ v²]        ∂v/∂v_i = Q - m_i² + V - v_i       ∂v/∂m_i = 2 m_i (V - v_i)
which does not subtract large numbers; the printed form loses every digit, and its sign, where v ≪ m².
By slopes (`layers.slopes`), only what is linear in the deviations counts, and the products of two variances are left out:
    v = Σ_i v_i (S - m_i)²                        ∂v/∂v_i = (S - m_i)²               ∂v/∂m_i as for the exact one
One pass computes everything: a feature (m, v) that joins those before it, with sums S, V, T (or Q), adds
    to m: m S      to v: m (2 T + m V) + v (S² + V)      to T: m V + v S           (as printed, to v: m² V + v (Q + V);
                                                                                    by slopes: m (2 T + m V) + v S²)
"""

import numpy as np

from pbodl._jit import inlined, kernel
from pbodl.kernels.arguments import USUAL
from pbodl.kernels.normal import TWO, ZERO

CONCAT, SUM, FM, FFM, GROUP_FM, PAIRS = 0, 1, 2, 3, 4, 5
BY_GROUP = (FFM, PAIRS)  # operations for which a feature has one vector per group
EXACT, PAPER, SLOPES = 0, 1, 2


@inlined
def concat_forward(m_x, v_x, n, fields, first, m_z, v_z):
    """Moments of z_0 for concat. MODIFIES: m_z, v_z (zeroed by the caller)."""
    dim = m_x.shape[2]
    for j in range(n):
        begin = fields[first + j] * dim
        m, v = m_z[begin : begin + dim], v_z[begin : begin + dim]
        for k in range(dim):
            m[k] += m_x[j, 0, k]
            v[k] += v_x[j, 0, k]


@inlined
def concat_backward(n, fields, first, dm_z, dv_z, dm_x, dv_x):
    """Gradients by the features. MODIFIES: dm_x, dv_x."""
    dim = dm_x.shape[2]
    for j in range(n):
        begin = fields[first + j] * dim
        dm, dv = dm_z[begin : begin + dim], dv_z[begin : begin + dim]
        for k in range(dim):
            dm_x[j, 0, k] = dm[k]
            dv_x[j, 0, k] = dv[k]


@inlined
def sum_forward(m_x, v_x, n, m_z, v_z):
    """Moments of z_0 for sum. MODIFIES: m_z, v_z (zeroed by the caller)."""
    for j in range(n):
        for k in range(m_x.shape[2]):
            m_z[k] += m_x[j, 0, k]
            v_z[k] += v_x[j, 0, k]


@inlined
def sum_backward(n, dm_z, dv_z, dm_x, dv_x):
    """Gradients by the features. MODIFIES: dm_x, dv_x."""
    for j in range(n):
        for k in range(dm_x.shape[2]):
            dm_x[j, 0, k] = dm_z[k]
            dv_x[j, 0, k] = dv_z[k]


@inlined
def fm_forward(m_x, v_x, members, n, g, mode, more, sums, m_z, v_z):
    """z_0 of the FM of n member features, added to what is there if `more`. MODIFIES: m_z, v_z; and for backward: sums (3, K),
    with S, V, T (as printed: Q)."""
    if m_x.shape[2] == USUAL:
        usual_forward(m_x, v_x, members, n, g, mode, more, sums[0], sums[1], sums[2], m_z, v_z)
    else:
        any_forward(m_x, v_x, members, n, g, m_x.shape[2], mode, more, sums[0], sums[1], sums[2], m_z, v_z)


@kernel
def usual_forward(m_x, v_x, members, n, g, mode, more, total, spread, third, m_z, v_z):
    """The usual dimension: with a constant, the compiler keeps the sums in registers. MODIFIES: as `fm_forward`."""
    any_forward(m_x, v_x, members, n, g, USUAL, mode, more, total, spread, third, m_z, v_z)


@inlined
def clear(sums, dim):
    """Clear one array; the compiler would clear several number by number, although they are read as vectors. MODIFIES: sums."""
    for k in range(dim):
        sums[k] = ZERO


@inlined
def any_forward(m_x, v_x, members, n, g, dim, mode, more, total, spread, third, m_z, v_z):
    """As `fm_forward`, with the three rows of sums as arguments. Features join one by one: each meets those before it."""
    clear(total, dim)
    clear(spread, dim)
    clear(third, dim)
    if not more:
        clear(m_z, dim)
        clear(v_z, dim)
    if mode == EXACT:
        for j in range(n):
            i = np.uint32(members[j])  # unsigned: never negative
            join_exact(m_x[i, g], v_x[i, g], dim, total, spread, third, m_z, v_z)
    elif mode == SLOPES:
        for j in range(n):
            i = np.uint32(members[j])
            join_linear(m_x[i, g], v_x[i, g], dim, total, spread, third, m_z, v_z)
    else:
        for j in range(n):
            i = np.uint32(members[j])
            join_printed(m_x[i, g], v_x[i, g], dim, total, spread, third, m_z, v_z)


@inlined
def join_exact(m_j, v_j, dim, total, spread, third, m_z, v_z):
    """A feature joins those whose S, V and T are given. MODIFIES: total, spread, third, m_z, v_z."""
    for k in range(dim):
        m, v, s, spread_k, t = m_j[k], v_j[k], total[k], spread[k], third[k]
        half = t + m * spread_k
        m_z[k] += m * s
        v_z[k] += m * (t + half) + v * (s * s + spread_k)
        third[k] = half + v * s
        total[k] = s + m
        spread[k] = spread_k + v


@inlined
def join_linear(m_j, v_j, dim, total, spread, third, m_z, v_z):
    """As `join_exact`, by slopes. MODIFIES: total, spread, third, m_z, v_z."""
    for k in range(dim):
        m, v, s, spread_k, t = m_j[k], v_j[k], total[k], spread[k], third[k]
        half = t + m * spread_k
        m_z[k] += m * s
        v_z[k] += m * (t + half) + v * (s * s)
        third[k] = half + v * s
        total[k] = s + m
        spread[k] = spread_k + v


@inlined
def join_printed(m_j, v_j, dim, total, spread, third, m_z, v_z):
    """As `join_exact`, for the printed variance: with Q for T. MODIFIES: total, spread, third, m_z, v_z."""
    for k in range(dim):
        m, v, s, spread_k, q = m_j[k], v_j[k], total[k], spread[k], third[k]
        m_z[k] += m * s
        v_z[k] += m * m * spread_k + v * (q + spread_k)
        third[k] = q + m * m
        total[k] = s + m
        spread[k] = spread_k + v


@kernel
def fm_backward(m_x, v_x, at, members, n, g, mode, sums, dm_z, dv_z, dm_x, dv_x):
    """Gradients by feature j, which is m_x[at[j]]; they go to dm_x[members[j]]. MODIFIES: dm_x, dv_x."""
    dim = m_x.shape[2]
    for j in range(n):
        i, to = np.uint32(at[j]), np.uint32(members[j])
        if mode == EXACT:
            for k in range(dim):
                m, v = m_x[i, g, k], v_x[i, g, k]
                rest = sums[0, k] - m
                dm_x[to, g, k] = dm_z[k] * rest + dv_z[k] * TWO * (sums[2, k] - v * rest)
                dv_x[to, g, k] = dv_z[k] * (rest * rest + sums[1, k] - v)
        elif mode == SLOPES:
            for k in range(dim):
                m, v = m_x[i, g, k], v_x[i, g, k]
                rest = sums[0, k] - m
                dm_x[to, g, k] = dm_z[k] * rest + dv_z[k] * TWO * (sums[2, k] - v * rest)
                dv_x[to, g, k] = dv_z[k] * (rest * rest)
        else:
            for k in range(dim):
                m, v_rest = m_x[i, g, k], sums[1, k] - v_x[i, g, k]
                dm_x[to, g, k] = dm_z[k] * (sums[0, k] - m) + dv_z[k] * TWO * m * v_rest
                dv_x[to, g, k] = dv_z[k] * (max(sums[2, k] - m * m, ZERO) + v_rest)


def width(op: int, dim: int, n_fields: int) -> int:
    """How many numbers z_0 has."""
    if op == PAIRS:
        return n_fields * (n_fields - 1) // 2
    return dim * n_fields if op == CONCAT else dim
