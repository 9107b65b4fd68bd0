"""Products of pairs of fields, each with a learned weight (beyond the paper): the operation of `PairFM`, and all that is above it.

Letters: F fields, each with the sum of its features' vectors, one vector e_f[q] for every group q of fields; a weight w for every
pair of fields, and the bias b.
    d_fg = ⟨e_f[group of g], e_g[group of f]⟩           z_L = b + Σ_{f<g} w_fg d_fg

The variance is linearised: every weight counts by its own slope, so that what reaches z_L in several ways counts with its
covariance. Moments layer by layer would add these ways as if they were independent.
    s_f[q] = ∂z_L/∂e_f[q] = Σ_{g in q} w_fg e_g[group of f]         ∂z_L/∂w_fg = d_fg
    m = z_L at the means                v = v_b + Σ d² v_w + Σ s² v_e
    ∂/∂m_e = s dm      ∂/∂v_e = s² dv   ∂/∂m_w = d dm      ∂/∂v_w = d² dv
With these derivatives the ordinary ADF step (`adf`) is the update of an extended Kalman filter with a diagonal covariance.

A diagonal covariance does not know that weights were learned from the same rows, and this form of model cannot express all that
moves clicks. Both make v smaller than the squared error of m: by a factor of 1.2 to 1.5 over worlds of two makes, at 60,000 to
1,000,000 rows, and for new ads as for old ones. What the model reports is therefore DOUBT v; learning goes on with v.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl.kernels.adf import adf_update
from pbodl.kernels.arguments import USUAL, floats, vectors_of
from pbodl.kernels.normal import ZERO

DOUBT = np.float32(1.3)
USUAL_OF_GROUPS = 8  # the default dimension where a schema has several groups


class PairScratch(NamedTuple):
    """Room for one sample's fields and pairs."""

    m_e: np.ndarray  # float32 (F, G, K)
    v_e: np.ndarray
    slope: np.ndarray  # s
    products: np.ndarray  # float32 (pairs,): d


@jit
def make_pair_scratch(fields, groups, dim):
    """Room for so many fields; for none where another operation is at work."""
    m_e, v_e, slope = vectors_of(fields, groups, dim), vectors_of(fields, groups, dim), vectors_of(fields, groups, dim)
    return PairScratch(m_e, v_e, slope, floats(fields * (fields - 1) // 2))


@inlined
def field_sums(m_x, v_x, at, n, fields, first, w):
    """Add up the features of each field; feature j is m_x[at[j]], of field fields[first + j]. MODIFIES: w.m_e, w.v_e."""
    m_e, v_e = w.m_e, w.v_e
    m_e[:] = ZERO
    v_e[:] = ZERO
    for j in range(n):
        i, f = np.uint32(at[j]), np.uint32(fields[first + j])
        for g in range(m_x.shape[1]):
            for k in range(m_x.shape[2]):
                m_e[f, g, k] += m_x[i, g, k]
                v_e[f, g, k] += v_x[i, g, k]


@kernel
def pairs_forward(m_w, v_w, group_of_field, w):
    """Mean and variance of z_L from the fields' sums; weights by pair, the bias last. MODIFIES: w.slope, w.products."""
    # The usual dimensions apart: with the constant in sight the compiler leaves no loop over the dimensions. They are given as
    # ordinary integers: for Numba each literal is a type of its own, and it would translate `_forward` once for each.
    dim = w.m_e.shape[2]
    if dim == USUAL_OF_GROUPS:
        return _forward(m_w, v_w, group_of_field, w, np.int64(USUAL_OF_GROUPS))
    if dim == USUAL:
        return _forward(m_w, v_w, group_of_field, w, np.int64(USUAL))
    return _forward(m_w, v_w, group_of_field, w, dim)


@inlined
def _forward(m_w, v_w, group_of_field, w, dim):
    m_e, v_e, slope, products = w.m_e, w.v_e, w.slope, w.products
    fields, pair = np.uint64(m_e.shape[0]), np.uint64(0)
    mean, variance = m_w[len(products)], v_w[len(products)]
    slope[:] = ZERO
    for f in range(fields):
        of_f = np.uint64(group_of_field[f])
        for g in range(f + np.uint64(1), fields):
            of_g, weight, product = np.uint64(group_of_field[g]), m_w[pair], ZERO
            e_f, e_g, s_f, s_g = m_e[f, of_g], m_e[g, of_f], slope[f, of_g], slope[g, of_f]
            for k in range(dim):
                product += e_f[k] * e_g[k]
                s_f[k] += weight * e_g[k]
                s_g[k] += weight * e_f[k]
            products[pair] = product
            mean += weight * product
            variance += product * product * v_w[pair]
            pair += np.uint64(1)
    for f in range(fields):
        for g in range(m_e.shape[1]):
            for k in range(dim):
                variance += slope[f, g, k] * slope[f, g, k] * v_e[f, g, k]
    return mean, variance


@kernel
def learn_pairs(m_w, v_w, dm, dv, power, cap, w):
    """Update the weights of the pairs and the bias; returns how many updates the guard rejected. MODIFIES: m_w, v_w."""
    products, rejected = w.products, ZERO
    n = len(products)
    for p in range(n):
        d = products[p]
        m_w[p], v_w[p], no = adf_update(m_w[p], v_w[p], d * dm, d * d * dv, power, cap)
        rejected += no
    m_w[n], v_w[n], no = adf_update(m_w[n], v_w[n], dm, dv, power, cap)
    return int(rejected + no)


@inlined
def pairs_backward(n, fields, first, dm, dv, w, dm_x, dv_x):
    """Gradients by the features. MODIFIES: dm_x, dv_x."""
    slope = w.slope
    for j in range(n):
        f = np.uint32(fields[first + j])
        for g in range(dm_x.shape[1]):
            for k in range(dm_x.shape[2]):
                s = slope[f, g, k]
                dm_x[j, g, k] = s * dm
                dv_x[j, g, k] = s * s * dv
