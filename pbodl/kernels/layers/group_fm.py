"""FM between groups (beyond the paper): the features of a group are summed first, and only the groups' sums meet.

Letters: S_f = Σ_{i in f} z_i, the sum of group f's vectors.
    z_0k = Σ_{f<g} S_fk S_gk
That is FM (`interaction`) of one vector per group: the sums are independent, as their features are, so its moments are exact, and
all features of a group have its gradient. Pairs of features within a group are left out: on click logs they are mostly noise.
With one feature per group it is FM itself.
"""

import numpy as np

from pbodl._jit import inlined, kernel
from pbodl.kernels.arguments import USUAL
from pbodl.kernels.layers.interaction import fm_backward, fm_forward
from pbodl.kernels.normal import ZERO


@inlined
def group_fm_forward(m_x, v_x, at, n, groups, mode, members, m_p, v_p, sums, m_z, v_z):
    """Moments of z_0; feature j is m_x[at[j]], of group groups[j]; members counts 0, 1, 2, ...

    MODIFIES: m_z, v_z; for backward: m_p and v_p (G, 1, K), sums (3, K).
    """
    n_groups, dim = m_p.shape[0], m_x.shape[2]
    for g in range(n_groups):
        for k in range(dim):
            m_p[g, 0, k] = ZERO
            v_p[g, 0, k] = ZERO
    begin = 0
    for j in range(1, n + 1):
        if j == n or groups[j] != groups[begin]:
            g = groups[begin]
            add_features(m_x, v_x, at, begin, j, m_p[g, 0], v_p[g, 0])
            begin = j
    fm_forward(m_p, v_p, members, n_groups, 0, mode, False, sums, m_z, v_z)


@kernel
def add_features(m_x, v_x, at, begin, end, total, spread):
    """Add features `begin` to `end` to the sums of their group. MODIFIES: total, spread."""
    fours = end - (end - begin) % 4
    # A branch for the usual dimension: with a constant, the compiler keeps the sums in registers.
    if m_x.shape[2] == USUAL:
        add_fours(m_x, v_x, at, begin, fours, USUAL, total, spread)
    else:
        add_fours(m_x, v_x, at, begin, fours, m_x.shape[2], total, spread)
    for j in range(fours, end):
        i = np.uint32(at[j])  # unsigned: never negative
        for k in range(m_x.shape[2]):
            total[k] += m_x[i, 0, k]
            spread[k] += v_x[i, 0, k]


@inlined
def add_fours(m_x, v_x, at, begin, end, dim, total, spread):
    """Add four features at a time: each sum waits for the one before. MODIFIES: total, spread."""
    for j in range(begin, end, 4):
        a, b, c, d = np.uint32(at[j]), np.uint32(at[j + 1]), np.uint32(at[j + 2]), np.uint32(at[j + 3])
        for k in range(dim):
            total[k] += (m_x[a, 0, k] + m_x[b, 0, k]) + (m_x[c, 0, k] + m_x[d, 0, k])
            spread[k] += (v_x[a, 0, k] + v_x[b, 0, k]) + (v_x[c, 0, k] + v_x[d, 0, k])


@inlined
def group_fm_backward(n, groups, mode, members, m_p, v_p, sums, dm_z, dv_z, dm_p, dv_p, dm_x, dv_x):
    """Gradients by the features. MODIFIES: dm_x, dv_x; and dm_p and dv_p (G, 1, K), which are scratch."""
    fm_backward(m_p, v_p, members, members, m_p.shape[0], 0, mode, sums, dm_z, dv_z, dm_p, dv_p)
    for j in range(n):
        dm_g, dv_g = dm_p[groups[j], 0], dv_p[groups[j], 0]
        for k in range(dm_x.shape[2]):
            dm_x[j, 0, k] = dm_g[k]
            dv_x[j, 0, k] = dv_g[k]
