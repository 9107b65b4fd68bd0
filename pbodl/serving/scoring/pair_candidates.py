"""Scoring the candidates of a request with a `PairFM`: what the pairs of shared fields come to is computed once per request.

Letters as in `kernels.layers.pairs`. The shared fields go through its forward pass alone, with the candidates' fields at zero. That
gives the part of z_L that all candidates have in common, and for every field the slope that the shared fields make. A candidate
then adds the pairs of its own fields with the shared ones, and with each other.
"""

import numpy as np

from pbodl._jit import inlined, jit, kernel, prefetch
from pbodl.kernels.arguments import USUAL
from pbodl.kernels.layers.pairs import USUAL_OF_GROUPS, make_pair_scratch, pairs_forward
from pbodl.kernels.normal import ZERO
from pbodl.serving.scoring.candidate_kernels import AHEAD, Sums, sum_features
from pbodl.serving.scoring.click_moments import click_moments


@jit
def pair_indices(fields):
    """The index of every pair of fields among the weights, (F, F)."""
    indices, pair = np.zeros((fields, fields), np.int64), 0
    for f in range(fields):
        for g in range(f + 1, fields):
            indices[f, g] = indices[g, f] = pair
            pair += 1
    return indices


@inlined
def add_pair(e_f, e_g, s_f, s_g, weight, spread, dim):
    """What one pair adds to mean and variance. MODIFIES: s_f, s_g."""
    product = ZERO
    for k in range(dim):
        product += e_f[k] * e_g[k]
        s_f[k] += weight * e_g[k]
        s_g[k] += weight * e_f[k]
    return weight * product, product * product * spread


@inlined
def _meet(common, slope, slope_of_shared, own, own_fields, is_own, group_of_field, indices, m_w, v_w, dim):
    """Mean and variance that a candidate adds: own (own fields, G, 2, K). MODIFIES: slope, which is scratch."""
    fields, groups, n = common.shape[0], common.shape[1], len(own_fields)
    mean, variance = ZERO, ZERO
    for f in range(fields):
        for q in range(groups):
            for k in range(dim):
                slope[f, q, k] = slope_of_shared[f, q, k]
    for i in range(n):
        a = np.uint32(own_fields[i])
        of_a = np.uint32(group_of_field[a])
        for f in range(np.uint32(fields)):
            if is_own[f] == 0:
                pair, e_f, s_f = indices[a, f], common[f, of_a, 0], slope[f, of_a]
                product, weight, e_a = ZERO, m_w[pair], own[i, np.uint32(group_of_field[f]), 0]
                for k in range(dim):
                    product += e_a[k] * e_f[k]
                    s_f[k] += weight * e_a[k]
                mean += weight * product
                variance += product * product * v_w[pair]
        for j in range(i + 1, n):
            b = np.uint32(own_fields[j])
            of_b, pair = np.uint32(group_of_field[b]), indices[a, b]
            m, v = add_pair(own[i, of_b, 0], own[j, of_a, 0], slope[a, of_b], slope[b, of_a], m_w[pair], v_w[pair], dim)
            mean += m
            variance += v
    for f in range(fields):
        for q in range(groups):
            spread, s = common[f, q, 1], slope[f, q]
            for k in range(dim):
                variance += s[k] * s[k] * spread[k]
    for i in range(n):
        for q in range(groups):
            spread, s = own[i, q, 1], slope[np.uint32(own_fields[i]), q]
            for k in range(dim):
                variance += s[k] * s[k] * spread[k]
    return mean, variance


@kernel
def meet_shared(common, slope, slope_of_shared, own, own_fields, is_own, group_of_field, indices, m_w, v_w):
    """`_meet`, the usual dimensions apart. MODIFIES: slope."""
    dim = common.shape[3]
    if dim == USUAL_OF_GROUPS:
        return _meet(common, slope, slope_of_shared, own, own_fields, is_own, group_of_field, indices, m_w, v_w, USUAL_OF_GROUPS)
    if dim == USUAL:
        return _meet(common, slope, slope_of_shared, own, own_fields, is_own, group_of_field, indices, m_w, v_w, USUAL)
    return _meet(common, slope, slope_of_shared, own, own_fields, is_own, group_of_field, indices, m_w, v_w, dim)


@jit
def score_pair_candidates(packed, shared, operation, now, network, own, own_fields, places, m_w, v_w, scores):
    """CTR, its standard deviation, mean and variance of z_L of every candidate. MODIFIES: scores (4, candidates)."""
    group_of_field, fields, dim = network.shape.group_of_field, operation.classes, operation.dim
    totals = np.zeros((1, fields, operation.vectors, 2, dim), np.float32)
    linear, first = np.zeros((1, 2), np.float32), np.zeros(1, np.int32)
    nothing = np.zeros((1, fields, 0, dim), np.float32)
    sum_features(packed, shared, operation, now, network.prior, network.forgetting, first, Sums(totals, nothing, linear))
    w, common = make_pair_scratch(fields, operation.vectors, dim), totals[0]
    w.m_e[:] = common[:, :, 0]
    w.v_e[:] = ZERO  # the candidates change the slopes of the shared fields: their variance is added for each
    m_shared, v_shared = pairs_forward(m_w, v_w, group_of_field, w)
    is_own = np.zeros(fields, np.int64)
    for field in own_fields:
        is_own[field] = 1
    slope, indices, mean, variance = np.empty(w.slope.shape, np.float32), pair_indices(fields), scores[2], scores[3]
    flat = own.total.reshape(len(own.total), -1)
    for s in range(len(places)):
        p = np.uint32(places[s])
        prefetch(flat, np.uint32(places[min(s + AHEAD, len(places) - 1)]))
        m, v = meet_shared(common, slope, w.slope, own.total[p], own_fields, is_own, group_of_field, indices, m_w, v_w)
        mean[s] = m_shared + m + linear[0, 0] + own.linear[p, 0]
        variance[s] = v_shared + v + linear[0, 1] + own.linear[p, 1]
    click_moments(mean, variance, scores[0], scores[1])
