"""Scoring the candidates of a request with a `PairFM`: what the pairs of shared fields come to is computed once per request.

Letters as in `kernels.layers.pairs`. The shared fields go through its forward pass alone, with the candidates' fields at zero. That
gives the part of z_L that all candidates have in common, and for every field the slope that the shared fields make. A candidate
then adds the pairs of its own fields with the shared ones, and with each other. Its own fields are all of one group, so of a shared
field's vectors it only meets the one for that group.

One draw of the weights (`kernels.draws`) is linearised, as in `sample_pairs`. With δ for deviations, x_i the vectors of own field
i, and for every request A_i[q] = Σ_{f in q} (w_if δe_f + δw_if e_f) over the shared fields f, a candidate deviates from its mean by
    C + Σ_i (⟨x_i, A_i⟩ + ⟨δx_i, s_i⟩) + Σ_{i<j} δw_ij ⟨x_i, x_j⟩ + its linear weights
where C is the deviation of what the shared fields make.

The shared fields stand in *lanes*, those of a group side by side and padded with zeros to whole registers: the loops go over
fields, and no sum has to be drawn together within a register.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit, kernel, prefetch
from pbodl.kernels.click_moments import click_moments
from pbodl.kernels.draws import draw_dense, fill_noise
from pbodl.kernels.layers.pairs import DOUBT, USUAL_OF_GROUPS, make_pair_scratch, pairs_forward
from pbodl.kernels.normal import ZERO
from pbodl.serving.scoring.candidate_kernels import AHEAD, Samples, Sums, sum_features, work_out_feature
from pbodl.serving.scoring.drawn_candidates import DrawScratch, make_draw_scratch

REGISTER = 8  # numbers of float32


class Lanes(NamedTuple):
    """The shared fields as the candidates meet them; L lanes, A own fields."""

    begin: np.ndarray  # int64 (G + 1,): the lanes of group q are begin[q] to begin[q + 1]
    m_e: np.ndarray  # float32 (K, L): the vector for the candidates' group
    v_e: np.ndarray
    slope: np.ndarray  # as the shared fields make it
    m_w: np.ndarray  # float32 (A, L): the weights of the pairs with each own field
    v_w: np.ndarray


@jit
def pair_indices(fields):
    """The index of every pair of fields among the weights, (F, F)."""
    indices, pair = np.zeros((fields, fields), np.int64), 0
    for f in range(fields):
        for g in range(f + 1, fields):
            indices[f, g] = indices[g, f] = pair
            pair += 1
    return indices


@jit
def make_lanes(common, slope, own_fields, of_own, group_of_field, indices, m_w, v_w):
    """Lanes from the sums of the shared fields, (F, G, 2, K), and their slopes, (F, G, K)."""
    fields, groups, _, dim = common.shape
    is_own, begin = np.zeros(fields, np.bool_), np.zeros(groups + 1, np.int64)
    is_own[own_fields] = True
    for q in range(groups):
        members = 0
        for f in range(fields):
            members += int(group_of_field[f] == q and not is_own[f])
        begin[q + 1] = begin[q] + (members + REGISTER - 1) // REGISTER * REGISTER
    n, own = begin[groups], len(own_fields)
    lanes = Lanes(
        begin, np.zeros((dim, n), np.float32), np.zeros((dim, n), np.float32), np.zeros((dim, n), np.float32),
        np.zeros((own, n), np.float32), np.zeros((own, n), np.float32),
    )  # fmt: skip
    free = begin.copy()
    for f in range(fields):
        if not is_own[f]:
            lane = free[group_of_field[f]]
            free[group_of_field[f]] += 1
            lanes.m_e[:, lane], lanes.v_e[:, lane] = common[f, of_own, 0], common[f, of_own, 1]
            lanes.slope[:, lane] = slope[f, of_own]
            for i in range(own):
                pair = indices[f, own_fields[i]]
                lanes.m_w[i, lane], lanes.v_w[i, lane] = m_w[pair], v_w[pair]
    return lanes


@kernel
def meet_shared(lanes, own, products, slope):
    """Mean and variance that pairs of own (A, G, 2, K) and shared fields add. MODIFIES: products (L,), slope (K, L): scratch."""
    dim, n = lanes.m_e.shape
    mean, variance = ZERO, ZERO
    for k in range(dim):
        for lane in range(n):
            slope[k, lane] = lanes.slope[k, lane]
    for i in range(np.uint64(own.shape[0])):
        for q in range(np.uint64(own.shape[1])):
            begin, end = np.uint64(lanes.begin[q]), np.uint64(lanes.begin[q + np.uint64(1)])
            for lane in range(begin, end):
                products[lane] = ZERO
            for k in range(np.uint64(dim)):
                x = own[i, q, 0, k]
                for lane in range(begin, end):
                    products[lane] += x * lanes.m_e[k, lane]
                    slope[k, lane] += x * lanes.m_w[i, lane]
            for lane in range(begin, end):
                mean += lanes.m_w[i, lane] * products[lane]
                variance += products[lane] * products[lane] * lanes.v_w[i, lane]
    for k in range(dim):
        for lane in range(n):
            variance += slope[k, lane] * slope[k, lane] * lanes.v_e[k, lane]
    return mean, variance


@kernel
def meet_own(own, of_own, slope_of_shared, own_fields, indices, m_w, v_w, more_w, slope):
    """Mean and variance that own fields add by their pairs with each other and by their vectors, and what the deviations of the
    pairs' weights add under a draw. MODIFIES: slope (A, G, K)."""
    n, groups, _, dim = own.shape
    mean, variance, deviation = ZERO, ZERO, ZERO
    for i in range(n):
        for q in range(groups):
            for k in range(dim):
                slope[i, q, k] = slope_of_shared[own_fields[i], q, k]
    for i in range(n):
        for j in range(i + 1, n):
            pair, product = indices[own_fields[i], own_fields[j]], ZERO
            weight, e_i, e_j, s_i, s_j = m_w[pair], own[i, of_own, 0], own[j, of_own, 0], slope[i, of_own], slope[j, of_own]
            for k in range(dim):
                product += e_i[k] * e_j[k]
                s_i[k] += weight * e_j[k]
                s_j[k] += weight * e_i[k]
            mean += weight * product
            variance += product * product * v_w[pair]
            deviation += product * more_w[pair]
    for i in range(n):
        for q in range(groups):
            for k in range(dim):
                variance += slope[i, q, k] * slope[i, q, k] * own[i, q, 1, k]
    return mean, variance, deviation


class PairDraw(NamedTuple):
    """A draw of the weights; for none, `z` is empty."""

    z: np.ndarray  # float64 (candidates,): the result
    own: Samples
    linear: np.ndarray  # float32 (candidates, slots): deviations of the linear weights, if every slot is one feature of one field
    along: np.ndarray  # float32 (A, G, K): A_i
    more_w: np.ndarray  # float32 (pairs + 1,): δw, and for the bias
    scratch: DrawScratch


@jit
def prepare_draw(packed, shared, own, linear, operation, now, network, dense, own_fields, seed, z):
    """What the candidates have in common under the draw with this seed. MODIFIES: z, to C."""
    vectors, dim, fields, group_of_field = operation.vectors, operation.dim, operation.classes, network.shape.group_of_field
    m_w = dense.mean[0, 0]
    scratch = make_draw_scratch(own.rows.shape[1], packed, operation, seed)
    along, more_w = np.zeros((len(own_fields), vectors, dim), np.float32), np.zeros(len(m_w), np.float32)
    if len(z) == 0:
        return PairDraw(z, own, linear, along, more_w, scratch)
    more_w[:] = draw_dense(dense, network.shape.sizes, seed).mean[0, 0] - m_w
    w, more_e = make_pair_scratch(fields, vectors, dim), np.zeros((fields, vectors, dim), np.float32)
    d = make_draw_scratch(shared.rows.shape[1], packed, operation, seed)
    w.m_e[:] = ZERO
    w.v_e[:] = ZERO
    common = more_w[network.shape.sizes[0]]
    for j in range(shared.rows.shape[1]):
        f, value = shared.fields[j], shared.values[0, j]
        work_out_feature(packed, shared, 0, j, operation, now, network.prior, network.forgetting, d.row)
        fill_noise(shared.keys[0, j], d.stirred, d.noise)
        for g in range(vectors):
            for k in range(dim):
                w.m_e[f, g, k] += value * d.row[j, 2 * g * dim + k]
                more_e[f, g, k] += value * np.sqrt(d.row[j, 2 * g * dim + dim + k]) * d.noise[g * dim + k]
        if d.row.shape[1] > 2 * vectors * dim:
            common += value * np.sqrt(d.row[j, 2 * vectors * dim + 1]) * d.noise[vectors * dim]
    pairs_forward(m_w, dense.variance[0, 0], group_of_field, w)
    for p in range(network.shape.sizes[0]):
        common += w.products[p] * more_w[p]
    z[:] = common + (w.slope * more_e).sum()
    indices, of_own = pair_indices(fields), group_of_field[own_fields[0]] if len(own_fields) > 0 else 0
    for i in range(len(own_fields)):
        for f in range(fields):
            if f != own_fields[i]:  # all own fields are zero here
                pair, q = indices[f, own_fields[i]], group_of_field[f]
                for k in range(dim):
                    along[i, q, k] += m_w[pair] * more_e[f, of_own, k] + more_w[pair] * w.m_e[f, of_own, k]
    return PairDraw(z, own, linear, along, more_w, scratch)


@inlined
def deviation_of(draw, s, dim, x, slope):
    """What candidate s with the vectors x (A, G, 2, K) and their slopes adds under a draw, without the pairs of its own fields.

    Slot j is the one feature of own field j, so that the field's variance is the feature's.
    """
    own, d, along, deviation = draw.own, draw.scratch, draw.along, ZERO
    for i in range(along.shape[0]):
        fill_noise(own.keys[s, i], d.stirred, d.noise)
        for g in range(along.shape[1]):
            for k in range(dim):
                deviation += x[i, g, 0, k] * along[i, g, k] + slope[i, g, k] * np.sqrt(x[i, g, 1, k]) * d.noise[g * dim + k]
        deviation += draw.linear[s, i] * d.noise[along.shape[1] * dim]
    return deviation


@kernel
def usual_deviation_of(draw, s, x, slope):
    """`deviation_of`, with a branch for the usual dimension, so that the compiler sees the constant. MODIFIES: draw.scratch."""
    if x.shape[3] == USUAL_OF_GROUPS:
        return deviation_of(draw, s, USUAL_OF_GROUPS, x, slope)
    return deviation_of(draw, s, x.shape[3], x, slope)


@kernel
def any_deviation_of(packed, draw, s, operation, now, prior, forgetting, x, slope):
    """`deviation_of`, whatever features the own fields have. MODIFIES: draw.scratch."""
    own, d, along, deviation, depth = draw.own, draw.scratch, draw.along, ZERO, operation.vectors * operation.dim
    for j in range(own.rows.shape[1]):
        work_out_feature(packed, own, s, j, operation, now, prior, forgetting, d.row)
        fill_noise(own.keys[s, j], d.stirred, d.noise)
        more = np.sqrt(d.row[j, 2 * depth + 1]) * d.noise[depth] if d.row.shape[1] > 2 * depth else ZERO
        for g in range(operation.vectors):
            for k in range(operation.dim):
                v = d.row[j, (2 * g + 1) * operation.dim + k]
                more += slope[own.classes[j], g, k] * np.sqrt(v) * d.noise[g * operation.dim + k]
        deviation += own.values[s, j] * more
    for i in range(along.shape[0]):
        for g in range(operation.vectors):
            for k in range(operation.dim):
                deviation += x[i, g, 0, k] * along[i, g, k]
    return deviation


@jit
def score_pair_candidates(packed, shared, operation, now, network, own, own_fields, places, m_w, v_w, scores, draw):
    """CTR, its standard deviation, mean and variance of z_L of every candidate, and z_L under a draw, if there is one.

    MODIFIES: scores (4, candidates), draw.
    """
    group_of_field, fields, dim = network.shape.group_of_field, operation.classes, operation.dim
    totals = np.zeros((1, fields, operation.vectors, 2, dim), np.float32)
    linear, first = np.zeros((1, 2), np.float32), np.zeros(1, np.int32)
    nothing = np.zeros((1, fields, 0, dim), np.float32)
    sum_features(packed, shared, operation, now, network.prior, network.forgetting, first, Sums(totals, nothing, linear))
    w, common = make_pair_scratch(fields, operation.vectors, dim), totals[0]
    of_own = group_of_field[own_fields[0]] if len(own_fields) > 0 else 0
    w.m_e[:] = common[:, :, 0]
    w.v_e[:] = common[:, :, 1]
    w.v_e[:, of_own] = ZERO  # the candidates change these slopes: their variance is added for each candidate
    m_shared, v_shared = pairs_forward(m_w, v_w, group_of_field, w)
    m_shared, v_shared = m_shared + linear[0, 0], v_shared + linear[0, 1]
    indices, mean, variance = pair_indices(fields), scores[2], scores[3]
    lanes = make_lanes(common, w.slope, own_fields, of_own, group_of_field, indices, m_w, v_w)
    products, slope = np.empty(lanes.begin[-1], np.float32), np.empty(lanes.slope.shape, np.float32)
    own_slope, flat = np.empty((len(own_fields), operation.vectors, dim), np.float32), own.total.reshape(len(own.total), -1)
    for s in range(len(places)):
        p = np.uint32(places[s])
        prefetch(flat, np.uint32(places[min(s + AHEAD, len(places) - 1)]))
        m, v = meet_shared(lanes, own.total[p], products, slope)
        m_own, v_own, more = meet_own(own.total[p], of_own, w.slope, own_fields, indices, m_w, v_w, draw.more_w, own_slope)
        mean[s] = m_shared + m + m_own + own.linear[p, 0]
        variance[s] = DOUBT * (v_shared + v + v_own + own.linear[p, 1])
        if len(draw.z) > 0:
            x, prior, forgetting = own.total[p], network.prior, network.forgetting
            if len(draw.linear) > 0:
                more += usual_deviation_of(draw, s, x, own_slope)
            else:
                more += any_deviation_of(packed, draw, s, operation, now, prior, forgetting, x, own_slope)
            draw.z[s] += mean[s] + more
    click_moments(mean, variance, scores[0], scores[1])
