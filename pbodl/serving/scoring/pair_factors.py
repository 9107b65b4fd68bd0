"""The draws of a `PairFM` as dot products: for every candidate, by how much each weight moves its z_L.

Draws are linearised (`pair_candidates`), so a candidate deviates from its mean by Σ (slope √v) ε over all weights, with ε the same
for all candidates that share the weight. A *factor* is one slope √v. Squared and summed, the factors of a
candidate are its variance.

    level     the deviation that moves all candidates alike: one number for the request
    vectors   of the shared fields' vectors that candidates meet, (candidates, columns)
    weights   of the weights of pairs
    features  of the candidate's own features, (candidates, slots, G K + 1): their vectors, and then the linear weight

Letters as in `pair_candidates`.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit, prefetch
from pbodl._registers import REGISTER, all_eight, eight, plus_product, product, put_eight, sum_of_eight
from pbodl.kernels.normal import ZERO
from pbodl.serving.scoring.candidate_kernels import padded, work_out_feature
from pbodl.serving.scoring.drawn_candidates import LINE, SOON
from pbodl.serving.scoring.pair_candidates import meet_shared

EIGHT, TWO = np.uint64(REGISTER), np.uint64(2)


class Factors(NamedTuple):
    """The factors of a request's candidates."""

    level: np.ndarray  # float32 (1,)
    vectors: np.ndarray  # float32 (candidates, columns)
    weights: np.ndarray  # float32 (candidates, columns)
    features: np.ndarray  # float32 (candidates, slots, G K + 1)
    keys: np.ndarray  # uint64 (candidates, slots): a feature's noise is that of its key
    fields: np.ndarray  # int32 (slots,)


@jit
def pair_factors(packed, shared, own, linear, operation, now, network, dense, own_fields, sums, places):
    """The factors of all candidates; `linear` as in `PairDraw`."""
    groups, dim, n, slots = operation.vectors, sums.total.shape[4], len(places), own.rows.shape[1]
    m_w, v_w = dense.mean[0, 0], dense.variance[0, 0]
    of_own, lanes, pairs, _, v_shared = meet_shared(packed, shared, operation, now, network, own_fields, dim, m_w, v_w, m_w)
    fields, own_count, lines = len(lanes.group_of_field), len(own_fields), len(lanes.group)
    together = padded(own_count * (own_count - 1) // 2)
    vectors = np.empty((n, fields * dim), np.float32)
    weights = np.zeros((n, lines * own_count * REGISTER + together), np.float32)
    features = np.empty((n, slots, groups * operation.dim + 1), np.float32)
    slope, row = np.empty(own_count * groups * dim, np.float32), np.empty((slots, packed.weights.shape[1]), np.float32)
    v_e, v_lanes, v_pairs = np.sqrt(lanes.v_e), np.sqrt(lanes.v_w), np.sqrt(pairs.v_w)
    x, size, plain = sums.total.reshape(-1), len(slope), len(linear) > 0
    for s in range(n):
        soon = np.uint32(places[min(s + SOON, n - 1)]) * np.uint32(2 * size)
        for line in range(0, 2 * size, LINE):
            prefetch(x, soon + np.uint32(line))
        at = np.uint64(places[s]) * np.uint64(2 * size)
        if dim == REGISTER:  # so that the compiler sees the constant
            factors_of(
                lanes, pairs, v_e, v_lanes, v_pairs, of_own, x, at, groups, np.int64(REGISTER), slope, vectors[s], weights[s]
            )
        else:
            factors_of(lanes, pairs, v_e, v_lanes, v_pairs, of_own, x, at, groups, dim, slope, vectors[s], weights[s])
        if plain:  # slot j is the one feature of own field j
            deviations = sums.total[places[s]]
            for j in range(slots):
                to = features[s, j]
                for g in range(groups):
                    for k in range(operation.dim):
                        to[g * operation.dim + k] = slope[(j * groups + g) * dim + k] * deviations[j, g, 1, k]
                to[groups * operation.dim] = linear[s, j]
        else:
            for j in range(slots):
                work_out_feature(packed, own, s, j, operation, now, network.prior, network.forgetting, row)
                value, field, depth, to = own.values[s, j], own.classes[j], groups * operation.dim, features[s, j]
                for g in range(groups):
                    for k in range(operation.dim):
                        deviation = np.sqrt(row[j, (2 * g + 1) * operation.dim + k])
                        to[g * operation.dim + k] = value * slope[(field * groups + g) * dim + k] * deviation
                to[depth] = value * np.sqrt(row[j, 2 * depth + 1]) if row.shape[1] > 2 * depth else ZERO
    level = np.full(1, np.sqrt(v_shared), np.float32)
    return Factors(level, vectors, weights, features, own.keys, own.fields)


@inlined
def factors_of(lanes, pairs, v_e, v_lanes, v_pairs, of_own, x, at, groups, dim, slope, vectors, weights):
    """As `pair_candidates.meet`, for one candidate: what it squares and sums. MODIFIES: slope (A G K,), vectors, weights."""
    nothing, n = all_eight(ZERO), np.uint64(pairs.m_w.shape[0])
    groups, dim, of_own = np.uint64(groups), np.uint64(dim), np.uint64(of_own)
    vector, feature, registers = TWO * dim, TWO * dim * groups, dim // EIGHT
    for f in range(np.uint64(len(lanes.group_of_field))):
        begin = at + np.uint64(lanes.group_of_field[f]) * vector
        for r in range(registers):
            k = r * EIGHT
            t = eight(lanes.slope, f * dim + k)
            for i in range(n):
                t = plus_product(t, all_eight(lanes.m_w[f * n + i]), eight(x, begin + i * feature + k))
            put_eight(vectors, f * dim + k, product(t, eight(v_e, f * dim + k)))
    column = np.uint64(0)
    for b in range(np.uint64(len(lanes.group))):
        begin = at + np.uint64(lanes.group[b]) * vector
        for i in range(n):
            d = nothing
            for j in range(dim):
                d = plus_product(d, all_eight(x[begin + i * feature + j]), eight(lanes.m_e, (b * dim + j) * EIGHT))
            put_eight(weights, column, product(d, eight(v_lanes, (b * n + i) * EIGHT)))
            column += EIGHT
    own = at + of_own * vector
    for i in range(n):
        for q in range(groups):
            to = (i * groups + q) * dim
            for r in range(registers):
                k = r * EIGHT
                t = eight(pairs.slope, to + k)
                if q == of_own:
                    for j in range(n):
                        t = plus_product(t, all_eight(pairs.m_w[i, j]), eight(x, own + j * feature + k))
                put_eight(slope, to + k, t)
        for j in range(i + np.uint64(1), n):
            d = nothing
            for r in range(registers):
                k = r * EIGHT
                d = plus_product(d, eight(x, own + i * feature + k), eight(x, own + j * feature + k))
            weights[column] = sum_of_eight(d) * v_pairs[i, j]
            column += np.uint64(1)
