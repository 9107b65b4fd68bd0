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
from pbodl._registers import REGISTER, all_eight, eight, plus_product, product, put_eight, sum_of_eight
from pbodl.kernels.adf import adf_update
from pbodl.kernels.arguments import floats, vectors_of
from pbodl.kernels.normal import ONE, ZERO

DOUBT = np.float32(1.3)
EIGHT = np.uint64(REGISTER)
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
    width = np.uint64(m_x.shape[1] * m_x.shape[2])
    for j in range(n):
        i, f = np.uint64(np.uint32(at[j])), np.uint64(np.uint32(fields[first + j]))
        if width % EIGHT == np.uint64(0):
            for r in range(width // EIGHT):
                to, here = f * width + r * EIGHT, i * width + r * EIGHT
                put_eight(m_e, to, plus_product(eight(m_e, to), all_eight(ONE), eight(m_x, here)))
                put_eight(v_e, to, plus_product(eight(v_e, to), all_eight(ONE), eight(v_x, here)))
        else:
            for g in range(m_x.shape[1]):
                for k in range(m_x.shape[2]):
                    m_e[f, g, k] += m_x[i, g, k]
                    v_e[f, g, k] += v_x[i, g, k]


@kernel
def pairs_forward(m_w, v_w, group_of_field, w):
    """Mean and variance of z_L from the fields' sums; weights by pair, the bias last. MODIFIES: w.slope, w.products."""
    # The usual dimensions apart: with the constant in sight the compiler leaves no loop over the dimensions. They are given as
    # ordinary integers: for Numba each literal is a type of its own, and it would translate the loops once for each.
    dim = w.m_e.shape[2]
    w.slope[:] = ZERO
    if dim == USUAL_OF_GROUPS:
        variance = meet_in_registers(m_w, group_of_field, w, np.uint64(USUAL_OF_GROUPS))
    elif dim % REGISTER == 0:
        variance = meet_in_registers(m_w, group_of_field, w, np.uint64(dim))
    else:
        variance = meet(m_w, group_of_field, w, dim)
    products, n = w.products, np.uint64(len(w.products))
    mean, variance = m_w[n], variance + v_w[n]
    for p in range(n):
        d = products[p]
        mean += m_w[p] * d
        variance += d * d * v_w[p]
    return mean, variance


@inlined
def meet_in_registers(m_w, group_of_field, w, dim):
    """The products of all pairs, the slopes, and Σ s² v_e, for vectors of whole registers. MODIFIES: w.products, w.slope."""
    m_e, v_e, slope, products = w.m_e, w.v_e, w.slope, w.products
    fields, width, pair = np.uint64(m_e.shape[0]), np.uint64(m_e.shape[1]) * dim, np.uint64(0)
    for f in range(fields):
        to_f = np.uint64(group_of_field[f]) * dim
        for g in range(f + np.uint64(1), fields):
            at_f, at_g = f * width + np.uint64(group_of_field[g]) * dim, g * width + to_f
            weight, product_of_pair = all_eight(m_w[pair]), all_eight(ZERO)
            for r in range(dim // EIGHT):
                here, there = at_f + r * EIGHT, at_g + r * EIGHT
                e_f, e_g = eight(m_e, here), eight(m_e, there)
                product_of_pair = plus_product(product_of_pair, e_f, e_g)
                put_eight(slope, here, plus_product(eight(slope, here), weight, e_g))
                put_eight(slope, there, plus_product(eight(slope, there), weight, e_f))
            products[pair] = sum_of_eight(product_of_pair)
            pair += np.uint64(1)
    variance = all_eight(ZERO)
    for r in range(fields * width // EIGHT):
        s = eight(slope, r * EIGHT)
        variance = plus_product(variance, product(s, s), eight(v_e, r * EIGHT))
    return sum_of_eight(variance)


@inlined
def meet(m_w, group_of_field, w, dim):
    """As `meet_in_registers`, for vectors of any dimension. MODIFIES: w.products, w.slope."""
    m_e, v_e, slope, products = w.m_e, w.v_e, w.slope, w.products
    fields, pair, variance = np.uint64(m_e.shape[0]), np.uint64(0), ZERO
    for f in range(fields):
        of_f = np.uint64(group_of_field[f])
        for g in range(f + np.uint64(1), fields):
            of_g, weight, total = np.uint64(group_of_field[g]), m_w[pair], ZERO
            e_f, e_g, s_f, s_g = m_e[f, of_g], m_e[g, of_f], slope[f, of_g], slope[g, of_f]
            for k in range(dim):
                total += e_f[k] * e_g[k]
                s_f[k] += weight * e_g[k]
                s_g[k] += weight * e_f[k]
            products[pair] = total
            pair += np.uint64(1)
    for f in range(fields):
        for g in range(m_e.shape[1]):
            for k in range(dim):
                variance += slope[f, g, k] * slope[f, g, k] * v_e[f, g, k]
    return variance


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
    slope, width = w.slope, np.uint64(w.slope.shape[1] * w.slope.shape[2])
    for j in range(np.uint64(n)):
        f = np.uint64(np.uint32(fields[first + j]))
        if width % EIGHT == np.uint64(0):
            for r in range(width // EIGHT):
                to, s = j * width + r * EIGHT, eight(slope, f * width + r * EIGHT)
                put_eight(dm_x, to, product(all_eight(dm), s))
                put_eight(dv_x, to, product(all_eight(dv), product(s, s)))
        else:
            for g in range(dm_x.shape[1]):
                for k in range(dm_x.shape[2]):
                    dm_x[j, g, k] = slope[f, g, k] * dm
                    dv_x[j, g, k] = slope[f, g, k] * slope[f, g, k] * dv
