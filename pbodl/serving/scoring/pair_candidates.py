"""Scoring the candidates of a request with a `PairFM`: what the pairs of shared fields come to is computed once per request.

Letters as in `kernels.layers.pairs`. The shared fields go through its forward pass alone, with the candidates' fields at zero. That
gives the part of z_L that all candidates have in common, and for every field the slope that the shared fields make. A candidate
then adds the pairs of its own fields with the shared ones, and with each other. Its own fields are all of one group, so of a shared
field's vectors it only meets the one for that group.

One draw of the weights (`kernels.draws`) is linearised, as in `sample_pairs`. With δ for deviations, x_i the vectors of own field
i, and for every request A_i[q] = Σ_{f in q} (w_if δe_f + δw_if e_f) over the shared fields f, a candidate deviates from its mean by
    C + Σ_i (⟨x_i, A_i⟩ + ⟨δx_i, s_i⟩) + Σ_{i<j} δw_ij ⟨x_i, x_j⟩ + its linear weights
where C is the deviation of what the shared fields make.

All is computed in registers of eight numbers: eight dimensions, for which vectors are padded with zeros, or eight shared fields of
one group. A candidate's cached sums are padded, too, and have standard deviations in the place of variances.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit, kernel, prefetch
from pbodl._registers import all_eight, eight, plus_product, product, put_eight, sum_of_eight
from pbodl.kernels.click_moments import click_moments
from pbodl.kernels.draws import draw_dense
from pbodl.kernels.layers.pairs import DOUBT, make_pair_scratch, pairs_forward
from pbodl.kernels.normal import ZERO
from pbodl.serving.scoring.candidate_kernels import AHEAD, REGISTER, Samples, Sums, padded, sum_features, work_out_feature
from pbodl.serving.scoring.drawn_candidates import DrawScratch, make_draw_scratch, noise_of_sample

TWO_U, EIGHT = np.uint64(2), np.uint64(REGISTER)


class Lanes(NamedTuple):
    """The shared fields as the candidates meet them, all arrays flat. S shared fields, in order of their group; B registers of
    eight shared fields, all of one group; A own fields."""

    group_of_field: np.ndarray  # int64 (S,)
    group: np.ndarray  # int64 (B,)
    slope: np.ndarray  # float32 (S, K): of the vector for the candidates' group, as the shared fields make it
    v_e: np.ndarray  # float32 (S, K)
    m_w: np.ndarray  # float32 (S, A): the weights of the pairs with each own field
    m_e: np.ndarray  # float32 (B, K, 8)
    v_w: np.ndarray  # float32 (B, A, 8)


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
    is_own, n, shared, lane = np.zeros(fields, np.bool_), len(own_fields), 0, 0
    is_own[own_fields] = True
    most = fields + groups * REGISTER  # lanes, with those that stay empty
    of_field, of_register = np.zeros(fields, np.int64), np.zeros(most // REGISTER + 1, np.int64)
    slopes, v_e = np.empty((fields, dim), np.float32), np.empty((fields, dim), np.float32)
    weights = np.empty((fields, n), np.float32)
    m_e, v_weights = np.zeros((len(of_register), dim, REGISTER), np.float32), np.zeros((len(of_register), n, REGISTER), np.float32)
    for q in range(groups):
        for f in range(fields):
            if group_of_field[f] == q and not is_own[f]:
                b, at = lane // REGISTER, lane % REGISTER
                of_field[shared], of_register[b] = q, q
                slopes[shared], v_e[shared], m_e[b, :, at] = slope[f, of_own], common[f, of_own, 1], common[f, of_own, 0]
                for i in range(n):
                    pair = indices[f, own_fields[i]]
                    weights[shared, i], v_weights[b, i, at] = m_w[pair], v_w[pair]
                shared, lane = shared + 1, lane + 1
        lane = (lane + REGISTER - 1) // REGISTER * REGISTER
    return Lanes(
        of_field[:shared], of_register[: lane // REGISTER], slopes.reshape(-1), v_e.reshape(-1), weights.reshape(-1),
        m_e.reshape(-1), v_weights.reshape(-1),
    )  # fmt: skip


class OwnPairs(NamedTuple):
    """The own fields as they meet each other."""

    m_w: np.ndarray  # float32 (A, A): the weights of their pairs, zero for a field with itself
    v_w: np.ndarray
    more_w: np.ndarray  # their deviations under a draw
    slope: np.ndarray  # float32 (A G K,): by the vectors of the own fields, as the shared fields make it


@jit
def make_own_pairs(own_fields, indices, m_w, v_w, more_w, slope):
    """The pairs of own fields, from the weights of all pairs and the slopes (F, G, K)."""
    n = len(own_fields)
    weights = np.zeros((3, n, n), np.float32)
    for i in range(n):
        for j in range(n):
            if i != j:
                pair = indices[own_fields[i], own_fields[j]]
                weights[0, i, j], weights[1, i, j], weights[2, i, j] = m_w[pair], v_w[pair], more_w[pair]
    return OwnPairs(weights[0], weights[1], weights[2], slope[own_fields].reshape(-1))


@kernel
def meet(lanes, pairs, of_own, x, at, groups, dim, slope):
    """Mean and variance that a candidate adds to what the shared fields make, and what the deviations of the weights of pairs of
    its own fields add under a draw.

    Its vectors (A, G, 2, K) begin at x[at], with standard deviations for variances. MODIFIES: slope (A G K,).
    """
    # A branch for the usual dimension, so that the compiler sees the constant.
    if dim == REGISTER:
        return _meet(lanes, pairs, of_own, x, at, groups, np.int64(REGISTER), slope)
    return _meet(lanes, pairs, of_own, x, at, groups, dim, slope)


@inlined
def _meet(lanes, pairs, of_own, x, at, groups, dim, slope):
    nothing, n = all_eight(ZERO), pairs.m_w.shape[0]
    means, variances, mean, variance, deviation = nothing, nothing, ZERO, ZERO, ZERO
    groups, dim, of_own, n = np.uint64(groups), np.uint64(dim), np.uint64(of_own), np.uint64(n)
    vector, feature, registers = TWO_U * dim, TWO_U * dim * groups, dim // EIGHT
    for f in range(np.uint64(len(lanes.group_of_field))):
        begin = at + np.uint64(lanes.group_of_field[f]) * vector
        for r in range(registers):
            k = r * EIGHT
            t = eight(lanes.slope, f * dim + k)
            for i in range(n):
                t = plus_product(t, all_eight(lanes.m_w[f * n + i]), eight(x, begin + i * feature + k))
            variances = plus_product(variances, product(t, t), eight(lanes.v_e, f * dim + k))
    for b in range(np.uint64(len(lanes.group))):
        begin = at + np.uint64(lanes.group[b]) * vector
        for i in range(n):
            d = nothing
            for j in range(dim):
                d = plus_product(d, all_eight(x[begin + i * feature + j]), eight(lanes.m_e, (b * dim + j) * EIGHT))
            variances = plus_product(variances, product(d, d), eight(lanes.v_w, (b * n + i) * EIGHT))
    own = at + of_own * vector
    for i in range(n):
        for q in range(groups):
            begin, to = at + i * feature + q * vector, (i * groups + q) * dim
            for r in range(registers):
                k = r * EIGHT
                t = eight(pairs.slope, to + k)
                means = plus_product(means, t, eight(x, begin + k))
                if q == of_own:
                    for j in range(n):
                        t = plus_product(t, all_eight(pairs.m_w[i, j]), eight(x, own + j * feature + k))
                put_eight(slope, to + k, t)
                spread = product(t, eight(x, begin + dim + k))
                variances = plus_product(variances, spread, spread)
        for j in range(i + np.uint64(1), n):
            d = nothing
            for r in range(registers):
                k = r * EIGHT
                d = plus_product(d, eight(x, own + i * feature + k), eight(x, own + j * feature + k))
            together = sum_of_eight(d)
            mean += pairs.m_w[i, j] * together
            variance += together * together * pairs.v_w[i, j]
            deviation += together * pairs.more_w[i, j]
    return mean + sum_of_eight(means), variance + sum_of_eight(variances), deviation


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
    along, more_w = np.zeros((len(own_fields), vectors, padded(dim)), np.float32), np.zeros(len(m_w), np.float32)
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


@kernel
def deviation_of(draw, s, along, noise, x, at, own_dim, slope):
    """What candidate s adds under a draw, without the pairs of its own fields; x, at and slope as in `meet`. Flat: along, noise.

    Slot j is the one feature of own field j, so that the field's variance is the feature's. own_dim: K before padding.
    """
    # A branch for the usual dimension, so that the compiler sees the constant.
    if draw.along.shape[2] == REGISTER:
        return _deviation_of(draw, s, along, noise, x, at, np.int64(REGISTER), own_dim, slope)
    return _deviation_of(draw, s, along, noise, x, at, draw.along.shape[2], own_dim, slope)


@inlined
def _deviation_of(draw, s, along, noise, x, at, dim, own_dim, slope):
    n, groups, dim, own_dim = np.uint64(draw.along.shape[0]), np.uint64(draw.along.shape[1]), np.uint64(dim), np.uint64(own_dim)
    width, registers, deviation, total = np.uint64(draw.scratch.noise.shape[1]), dim // EIGHT, ZERO, all_eight(ZERO)
    for i in range(n):
        for g in range(groups):
            place, more = (i * groups + g) * dim, i * width + g * own_dim
            begin = at + TWO_U * place
            for r in range(registers):
                k = r * EIGHT
                total = plus_product(total, eight(x, begin + k), eight(along, place + k))
                total = plus_product(total, product(eight(slope, place + k), eight(x, begin + dim + k)), eight(noise, more + k))
        deviation += draw.linear[s, i] * noise[i * width + groups * own_dim]
    return deviation + sum_of_eight(total)


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
def meet_shared(packed, shared, operation, now, network, own_fields, dim, m_w, v_w, more_w):
    """What the shared fields are to every candidate: the group of the own fields, lanes and own pairs, and mean and variance that
    all candidates have in common. dim: K after padding."""
    group_of_field, fields, groups = network.shape.group_of_field, operation.classes, operation.vectors
    totals = np.zeros((1, fields, groups, 2, dim), np.float32)
    linear, first = np.zeros((1, 2), np.float32), np.zeros(1, np.int32)
    nothing = np.zeros((1, fields, 0, dim), np.float32)
    sum_features(packed, shared, operation, now, network.prior, network.forgetting, first, Sums(totals, nothing, linear))
    w, common = make_pair_scratch(fields, groups, dim), totals[0]
    of_own = group_of_field[own_fields[0]] if len(own_fields) > 0 else 0
    w.m_e[:] = common[:, :, 0]
    w.v_e[:] = common[:, :, 1]
    w.v_e[:, of_own] = ZERO  # the candidates change these slopes: their variance is added for each candidate
    mean, variance = pairs_forward(m_w, v_w, group_of_field, w)
    indices = pair_indices(fields)
    lanes = make_lanes(common, w.slope, own_fields, of_own, group_of_field, indices, m_w, v_w)
    own_pairs = make_own_pairs(own_fields, indices, m_w, v_w, more_w, w.slope)
    return of_own, lanes, own_pairs, mean + linear[0, 0], variance + linear[0, 1]


@jit
def score_pair_candidates(packed, shared, operation, now, network, own, own_fields, places, m_w, v_w, scores, draw):
    """CTR, its standard deviation, mean and variance of z_L of every candidate, and z_L under a draw, if there is one.

    MODIFIES: scores (4, candidates), draw.
    """
    groups, dim = operation.vectors, own.total.shape[4]
    of_own, lanes, own_pairs, m_shared, v_shared = meet_shared(
        packed, shared, operation, now, network, own_fields, dim, m_w, v_w, draw.more_w
    )  # fmt: skip
    mean, variance = scores[2], scores[3]
    drawing, plain, size = len(draw.z) > 0, len(draw.linear) > 0, len(own_fields) * groups * dim
    x, slope = own.total.reshape(-1), np.empty(size, np.float32)
    ads, along, noise = own.total.reshape(len(own.total), -1), draw.along.reshape(-1), draw.scratch.noise.reshape(-1)
    for s in range(len(places)):
        p = np.uint32(places[s])
        prefetch(ads, np.uint32(places[min(s + AHEAD, len(places) - 1)]))
        if drawing:
            noise_of_sample(draw.own, s, draw.scratch)
        at = np.uint64(p) * np.uint64(2 * size)
        m, v, more = meet(lanes, own_pairs, of_own, x, at, groups, dim, slope)
        mean[s] = m_shared + m + own.linear[p, 0]
        variance[s] = DOUBT * (v_shared + v + own.linear[p, 1])
        if drawing:
            if plain:
                more += deviation_of(draw, s, along, noise, x, at, operation.dim, slope)
            else:
                slopes = slope.reshape(len(own_fields), groups, dim)
                more += any_deviation_of(packed, draw, s, operation, now, network.prior, network.forgetting, own.total[p], slopes)
            draw.z[s] += mean[s] + more
    click_moments(mean, variance, scores[0], scores[1])


@jit
def use_deviations(places, total):
    """Turn the variances of candidates into standard deviations. MODIFIES: total (candidates, A, G, 2, K), at these places."""
    for s in range(len(places)):
        ad = total[places[s]]
        for i in range(ad.shape[0]):
            for g in range(ad.shape[1]):
                for k in range(ad.shape[3]):
                    ad[i, g, 1, k] = np.sqrt(ad[i, g, 1, k])
