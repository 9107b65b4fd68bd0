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
from pbodl.kernels.draws import draw_dense
from pbodl.kernels.layers.pairs import DOUBT, USUAL_OF_GROUPS, make_pair_scratch, pairs_forward
from pbodl.kernels.normal import ZERO
from pbodl.serving.scoring.candidate_kernels import AHEAD, Samples, Sums, sum_features, work_out_feature
from pbodl.serving.scoring.drawn_candidates import DrawScratch, make_draw_scratch, noise_of_sample

REGISTER = 8  # numbers of float32


class Lanes(NamedTuple):
    """The shared fields as the candidates meet them: B registers of REGISTER lanes; A own fields."""

    group: np.ndarray  # int64 (B,): all lanes of a register are fields of one group
    m_e: np.ndarray  # float32 (B, K, REGISTER): the vector for the candidates' group
    v_e: np.ndarray
    slope: np.ndarray  # as the shared fields make it
    m_w: np.ndarray  # float32 (B, A, REGISTER): the weights of the pairs with each own field
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
    is_own, lane_of, filled = np.zeros(fields, np.bool_), np.zeros(fields, np.int64), 0
    is_own[own_fields] = True
    for q in range(groups):
        for f in range(fields):
            if group_of_field[f] == q and not is_own[f]:
                lane_of[f] = filled
                filled += 1
        filled = (filled + REGISTER - 1) // REGISTER * REGISTER
    vectors, weights = (filled // REGISTER, dim, REGISTER), (filled // REGISTER, len(own_fields), REGISTER)
    lanes = Lanes(
        np.zeros(filled // REGISTER, np.int64), np.zeros(vectors, np.float32), np.zeros(vectors, np.float32),
        np.zeros(vectors, np.float32), np.zeros(weights, np.float32), np.zeros(weights, np.float32),
    )  # fmt: skip
    for f in range(fields):
        if not is_own[f]:
            b, lane = lane_of[f] // REGISTER, lane_of[f] % REGISTER
            lanes.group[b] = group_of_field[f]
            for k in range(dim):
                lanes.m_e[b, k, lane], lanes.v_e[b, k, lane] = common[f, of_own, 0, k], common[f, of_own, 1, k]
                lanes.slope[b, k, lane] = slope[f, of_own, k]
            for i in range(len(own_fields)):
                pair = indices[f, own_fields[i]]
                lanes.m_w[b, i, lane], lanes.v_w[b, i, lane] = m_w[pair], v_w[pair]
    return lanes


@kernel
def meet_shared(lanes, own, products, sums):
    """Mean and variance that pairs of own (A, G, 2, K) and shared fields add. MODIFIES: products (A, REGISTER) and sums
    (3, REGISTER), which are scratch."""
    # Every innermost loop is over the lanes of one register.
    slope, mean, variance = sums[0], sums[1], sums[2]
    n, dim = np.uint64(own.shape[0]), np.uint64(own.shape[3])
    for lane in range(REGISTER):
        mean[lane] = ZERO
        variance[lane] = ZERO
    for b in range(np.uint64(lanes.m_e.shape[0])):
        q = np.uint64(lanes.group[b])
        for i in range(n):
            for lane in range(REGISTER):
                products[i, lane] = ZERO
        for k in range(dim):
            for lane in range(REGISTER):
                slope[lane] = lanes.slope[b, k, lane]
            for i in range(n):
                x = own[i, q, 0, k]
                for lane in range(REGISTER):
                    products[i, lane] += x * lanes.m_e[b, k, lane]
                    slope[lane] += x * lanes.m_w[b, i, lane]
            for lane in range(REGISTER):
                variance[lane] += slope[lane] * slope[lane] * lanes.v_e[b, k, lane]
        for i in range(n):
            for lane in range(REGISTER):
                mean[lane] += lanes.m_w[b, i, lane] * products[i, lane]
                variance[lane] += products[i, lane] * products[i, lane] * lanes.v_w[b, i, lane]
    m, v = ZERO, ZERO
    for lane in range(REGISTER):
        m += mean[lane]
        v += variance[lane]
    return m, v


class OwnPairs(NamedTuple):
    """The own fields as they meet each other."""

    group: np.int64  # of all of them
    m_w: np.ndarray  # float32 (A (A - 1)/2,): the weights of their pairs, in order
    v_w: np.ndarray
    more_w: np.ndarray  # their deviations under a draw
    slope: np.ndarray  # float32 (A, G, K): by the vectors of the own fields, as the shared fields make it


@jit
def make_own_pairs(own_fields, group, indices, m_w, v_w, more_w, slope):
    """The pairs of own fields, from the weights of all pairs and the slopes (F, G, K)."""
    n, at = len(own_fields), 0
    weights = np.empty((3, n * (n - 1) // 2), np.float32)
    for i in range(n):
        for j in range(i + 1, n):
            pair = indices[own_fields[i], own_fields[j]]
            weights[0, at], weights[1, at], weights[2, at] = m_w[pair], v_w[pair], more_w[pair]
            at += 1
    return OwnPairs(group, weights[0], weights[1], weights[2], slope[own_fields])


@inlined
def _meet_own(pairs, own, dim, slope):
    n, groups, of_own, pair = np.uint64(own.shape[0]), np.uint64(own.shape[1]), np.uint64(pairs.group), np.uint64(0)
    mean, variance, deviation = ZERO, ZERO, ZERO
    for i in range(n):
        for q in range(groups):
            for k in range(dim):
                slope[i, q, k] = pairs.slope[i, q, k]
    for i in range(n):
        for j in range(i + np.uint64(1), n):
            weight, product = pairs.m_w[pair], ZERO
            e_i, e_j, s_i, s_j = own[i, of_own, 0], own[j, of_own, 0], slope[i, of_own], slope[j, of_own]
            for k in range(dim):
                product += e_i[k] * e_j[k]
                s_i[k] += weight * e_j[k]
                s_j[k] += weight * e_i[k]
            mean += weight * product
            variance += product * product * pairs.v_w[pair]
            deviation += product * pairs.more_w[pair]
            pair += np.uint64(1)
    for i in range(n):
        for q in range(groups):
            for k in range(dim):
                variance += slope[i, q, k] * slope[i, q, k] * own[i, q, 1, k]
    return mean, variance, deviation


@kernel
def meet_own(pairs, own, slope):
    """Mean and variance that own fields add by their pairs with each other and by their vectors, and what the deviations of the
    pairs' weights add under a draw. MODIFIES: slope (A, G, K)."""
    # A branch for the usual dimension, so that the compiler sees the constant.
    if own.shape[3] == USUAL_OF_GROUPS:
        return _meet_own(pairs, own, np.int64(USUAL_OF_GROUPS), slope)
    return _meet_own(pairs, own, own.shape[3], slope)


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
    noise_of_sample(shared, 0, d)
    for j in range(shared.rows.shape[1]):
        f, value = shared.fields[j], shared.values[0, j]
        work_out_feature(packed, shared, 0, j, operation, now, network.prior, network.forgetting, d.row)
        for g in range(vectors):
            for k in range(dim):
                w.m_e[f, g, k] += value * d.row[j, 2 * g * dim + k]
                more_e[f, g, k] += value * np.sqrt(d.row[j, 2 * g * dim + dim + k]) * d.noise[j, g * dim + k]
        if d.row.shape[1] > 2 * vectors * dim:
            common += value * np.sqrt(d.row[j, 2 * vectors * dim + 1]) * d.noise[j, vectors * dim]
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
def _deviation_of(draw, s, dim, x, slope):
    along, noise, deviation = draw.along, draw.scratch.noise, ZERO
    n, groups = np.uint64(along.shape[0]), np.uint64(along.shape[1])
    for i in range(n):
        for g in range(groups):
            e, toward, t, more = x[i, g], along[i, g], slope[i, g], noise[i, g * np.uint64(dim) :]
            for k in range(dim):
                deviation += e[0, k] * toward[k] + t[k] * np.sqrt(e[1, k]) * more[k]
        deviation += draw.linear[s, i] * noise[i, groups * np.uint64(dim)]
    return deviation


@kernel
def deviation_of(draw, s, x, slope):
    """What candidate s with the vectors x (A, G, 2, K) and their slopes adds under a draw, without the pairs of its own fields.

    Slot j is the one feature of own field j, so that the field's variance is the feature's.
    """
    # A branch for the usual dimension, so that the compiler sees the constant.
    if x.shape[3] == USUAL_OF_GROUPS:
        return _deviation_of(draw, s, np.int64(USUAL_OF_GROUPS), x, slope)
    return _deviation_of(draw, s, x.shape[3], x, slope)


@kernel
def any_deviation_of(packed, draw, s, operation, now, prior, forgetting, x, slope):
    """`deviation_of`, whatever features the own fields have. MODIFIES: draw.scratch."""
    own, d, along, deviation, depth = draw.own, draw.scratch, draw.along, ZERO, operation.vectors * operation.dim
    for j in range(own.rows.shape[1]):
        work_out_feature(packed, own, s, j, operation, now, prior, forgetting, d.row)
        more = np.sqrt(d.row[j, 2 * depth + 1]) * d.noise[j, depth] if d.row.shape[1] > 2 * depth else ZERO
        for g in range(operation.vectors):
            for k in range(operation.dim):
                v = d.row[j, (2 * g + 1) * operation.dim + k]
                more += slope[own.classes[j], g, k] * np.sqrt(v) * d.noise[j, g * operation.dim + k]
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
    own_pairs = make_own_pairs(own_fields, of_own, indices, m_w, v_w, draw.more_w, w.slope)
    products, sums = np.empty((len(own_fields), REGISTER), np.float32), np.empty((3, REGISTER), np.float32)
    own_slope, flat = np.empty((len(own_fields), operation.vectors, dim), np.float32), own.total.reshape(len(own.total), -1)
    drawing, plain, scratch = len(draw.z) > 0, len(draw.linear) > 0, draw.scratch
    for s in range(len(places)):
        p = np.uint32(places[s])
        prefetch(flat, np.uint32(places[min(s + AHEAD, len(places) - 1)]))
        if drawing:
            noise_of_sample(draw.own, s, scratch)
        x = own.total[p]
        m, v = meet_shared(lanes, x, products, sums)
        m_own, v_own, more = meet_own(own_pairs, x, own_slope)
        mean[s] = m_shared + m + m_own + own.linear[p, 0]
        variance[s] = DOUBT * (v_shared + v + v_own + own.linear[p, 1])
        if drawing:
            if plain:
                more += deviation_of(draw, s, x, own_slope)
            else:
                more += any_deviation_of(packed, draw, s, operation, now, network.prior, network.forgetting, x, own_slope)
            draw.z[s] += mean[s] + more
    click_moments(mean, variance, scores[0], scores[1])
