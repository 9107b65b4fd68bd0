"""The field-aware embedding operation of FFM-MLP (PBODL eq. 22-25).

Letters: a feature i of group f has one vector z_{i,g} for every group g. Per group, P_{f,g} = Σ_{i in f} z_{i,g}.
    z_0k = Σ_f FM of {z_{i,f} : i in f}  +  Σ_{f<g} P_{f,g,k} P_{g,f,k}           (PBODL eq. 22, eq. 23, eq. 24, eq. 25)
    B = P Q:   m = m_P m_Q      v = m_P² v_Q + m_Q² v_P + v_P v_Q        (by slopes, without v_P v_Q: `layers.slopes`)
The parts use different components of the vectors, so their variances add up exactly.

erratum E4: the printed sums run over all features with one index; they must run per group, with crossed indices as above. Inside a
group it is FM, with its own erratum (E3).
"""

from pbodl._jit import inlined
from pbodl.kernels.layers.interaction import SLOPES, fm_backward, fm_forward
from pbodl.kernels.normal import ONE, TWO, ZERO


@inlined
def ffm_forward(m_x, v_x, n, groups, mode, members, counts, m_p, v_p, sums, m_z, v_z):
    """Moments of z_0; groups[j] is the group of feature j. MODIFIES: m_z, v_z; for backward: members
    (G, n), counts (G,), m_p and v_p (G, G, K), sums (G, 3, K)."""
    n_groups, dim = m_x.shape[1], m_x.shape[2]
    second = ZERO if mode == SLOPES else ONE
    for f in range(n_groups):
        counts[f] = 0
        for g in range(n_groups):
            for k in range(dim):
                m_p[f, g, k] = ZERO
                v_p[f, g, k] = ZERO
    for j in range(n):
        f = groups[j]
        members[f, counts[f]] = j
        counts[f] += 1
        for g in range(n_groups):
            for k in range(dim):
                m_p[f, g, k] += m_x[j, g, k]
                v_p[f, g, k] += v_x[j, g, k]
    for f in range(n_groups):
        fm_forward(m_x, v_x, members[f], counts[f], f, mode, f > 0, sums[f], m_z, v_z)
        for g in range(f + 1, n_groups):
            for k in range(dim):
                m, v = m_p[f, g, k], v_p[f, g, k]
                m_other, v_other = m_p[g, f, k], v_p[g, f, k]
                m_z[k] += m * m_other
                v_z[k] += m * m * v_other + v * (m_other * m_other + second * v_other)


@inlined
def ffm_backward(m_x, v_x, n, groups, mode, members, counts, m_p, v_p, sums, dm_z, dv_z, dm_x, dv_x):
    """Gradients by the features. MODIFIES: dm_x, dv_x."""
    n_groups, dim = m_x.shape[1], m_x.shape[2]
    second = ZERO if mode == SLOPES else ONE
    for f in range(n_groups):
        fm_backward(m_x, v_x, members[f], members[f], counts[f], f, mode, sums[f], dm_z, dv_z, dm_x, dv_x)
    for j in range(n):
        f = groups[j]
        for g in range(n_groups):
            if g == f:
                continue
            for k in range(dim):
                m_other, v_other = m_p[g, f, k], v_p[g, f, k]
                dm_x[j, g, k] = dm_z[k] * m_other + dv_z[k] * TWO * m_p[f, g, k] * v_other
                dv_x[j, g, k] = dv_z[k] * (m_other * m_other + second * v_other)
