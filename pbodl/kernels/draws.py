"""Draws of all weights at once: the noise of a weight is a pure function of (seed, draw, feature key, dimension).

A drawn weight is m + √v ε. Its ε is hashed, not stored: it costs no memory, it is the same in every process and in any
order of rows, and a feature that was never seen has its own, with the mean and the variance of its prior. Whatever shares a feature
shares its noise: that makes draws of several rows *joint* ones.

Sixteen bits of a hash pick one of 4096 quantiles of the normal distribution, which are scaled to variance 1: four draws for one
hash. No draw is beyond ±3.7. Dimensions of a feature: those of its vectors, and then its linear weight. Dense weights stand in for
features: a layer has a key, and its weights are numbered row by row.
"""

import math
from statistics import NormalDist

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl._registers import one_by_one
from pbodl.kernels.adf import decay
from pbodl.kernels.arguments import Dense, largest, most_features
from pbodl.kernels.layers.dense import BLOCK
from pbodl.kernels.layers.embedding import embedding_preview, kept_share, stirred_dimensions
from pbodl.kernels.layers.interaction import PAIRS
from pbodl.kernels.layers.pairs import field_sums, make_pair_scratch, pairs_forward
from pbodl.kernels.layers.points import (
    add_layers,
    add_point,
    class_of_fields,
    make_point_block,
    make_point_sums,
    points_forward,
)
from pbodl.kernels.normal import ONE, ZERO
from pbodl.kernels.sample_blocks import centre_at, layer_at, pack_centre, size_of_layers
from pbodl.mixing import GOLDEN, mix


def _quantiles(n):
    """The middle quantiles of n equal parts of the normal distribution, scaled to variance 1."""
    upper = np.array([NormalDist().inv_cdf(0.5 + (i + 0.5) / n) for i in range(n // 2)])
    upper /= np.sqrt(np.mean(upper**2))
    return np.concatenate([-upper[::-1], upper]).astype(np.float32)


NORMAL = _quantiles(4096)
LOW_12 = np.uint64(0xFFF)
S4, S20, S36, S52 = (np.uint64(n) for n in (4, 20, 36, 52))
PER_HASH = np.uint64(4)
S2, S16 = np.uint64(2), np.uint64(16)
BIAS_KEY = np.uint64(0x9FB21C651E98DF25)  # of the bias of a model without layers
LAYER = np.uint64(0xD6E8FEB86659FD93)  # times the number of a layer: its key


@jit
def draw_seed(seed, draw):
    """The seed of one draw: that of all draws, and the draw's number, stirred."""
    return mix(mix(seed + GOLDEN) + (draw + np.uint64(1)) * GOLDEN)


@inlined
def noise_at(seed, key, d):
    """The noise of dimension d of a feature, under the draw with this seed."""
    h = mix(key ^ mix(seed + ((d >> S2) + np.uint64(1)) * GOLDEN))
    return NORMAL[(h >> (S16 * (d & np.uint64(3)) + S4)) & LOW_12]


@inlined
def fill_noise(key, stirred, noise):
    """`noise_at` of all dimensions, four for every stirred number (`stir`). MODIFIES: noise."""
    for j in range(np.uint64(len(stirred))):
        one_by_one()
        h = mix(key ^ stirred[j])
        d = j << S2
        noise[d] = NORMAL[(h >> S4) & LOW_12]
        noise[d + np.uint64(1)] = NORMAL[(h >> S20) & LOW_12]
        noise[d + np.uint64(2)] = NORMAL[(h >> S36) & LOW_12]
        noise[d + np.uint64(3)] = NORMAL[h >> S52]


@jit
def stir(seed, dimensions):
    """What `fill_noise` needs for so many dimensions, and room for their noise."""
    hashes = (dimensions + 3) // 4
    return stirred_dimensions(seed, hashes), np.empty(4 * hashes, np.float32)


@jit
def draw_dense(dense, sizes, seed):
    """The dense layers with means that are the weights under a draw."""
    drawn = dense.mean.copy()
    for l in range(len(sizes) - 1):  # noqa: E741
        n_in, n_out = sizes[l], sizes[l + 1]
        stirred, noise = stir(seed, (n_in + 1) * n_out)
        fill_noise(LAYER * np.uint64(l + 1), stirred, noise)
        for o in range(n_out):
            for i in range(n_in + 1):
                drawn[l, o, i] += np.sqrt(dense.variance[l, o, i]) * noise[o * (n_in + 1) + i]
    return Dense(drawn, dense.variance, dense.last_seen, dense.prior_variance, dense.centre, dense.total, dense.start)


@jit
def pack_drawn(dense, sizes, seed):
    """The means of `draw_dense`, packed as `pack_layers` does it; the rest of what it packs is left open."""
    packed = np.empty(size_of_layers(sizes), np.float32)
    for l in range(len(sizes) - 1):  # noqa: E741
        n_in, n_out = sizes[l], sizes[l + 1]
        means, _ = layer_at(packed, sizes, l)
        stirred, noise = stir(seed, (n_in + 1) * n_out)
        fill_noise(LAYER * np.uint64(l + 1), stirred, noise)
        draw_means(dense.mean[l], dense.variance[l], n_in, n_out, noise, means)
        if l > 0:
            pack_centre(dense.centre[l], centre_at(packed, sizes, l).reshape(n_in, BLOCK))
    return packed


@kernel
def draw_means(m_w, v_w, n_in, n_out, noise, means):
    """The scaled weights of a layer under a draw, as `pack_dense` packs its means. MODIFIES: means (pairs, n_in + 1, 2)."""
    scale, n = ONE / np.float32(math.sqrt(n_in + 1.0)), n_in + 1
    for p in range(len(means)):
        # Of a last half pair, the other half repeats it, and is multiplied by zero: both are then written side by side.
        o, other = 2 * p, min(2 * p + 1, n_out - 1)
        other_scale = scale if other > o else ZERO
        for i in range(n):
            means[p, i, 0] = (m_w[o, i] + np.sqrt(v_w[o, i]) * noise[o * n + i]) * scale
            means[p, i, 1] = (m_w[other, i] + np.sqrt(v_w[other, i]) * noise[other * n + i]) * other_scale


@inlined
def linear_preview(rows, features, entry, now, prior, forgetting):
    """Mean and variance of the linear weight of one entry, as they are now."""
    r, field = features.rows[entry], features.fields[entry]
    m, v = ZERO, prior.linear_variance[field]
    if r >= 0:
        kept = kept_share(now - rows.last_seen[r], forgetting.half_life)
        m, v = rows.linear_mean[r, 0], rows.linear_variance[r, 0]
        if kept < ONE:
            m, v = decay(m, v, prior.linear_variance[field], kept, forgetting.also_mean)
    return m, v


@inlined
def linear_deviation(rows, features, entry, now, prior, forgetting, noise):
    """What the linear weight of one entry adds to z_L beyond its mean, and its mean; noise is that of its dimension."""
    m, v = linear_preview(rows, features, entry, now, prior, forgetting)
    return features.values[entry] * m, features.values[entry] * np.sqrt(v) * noise


@jit
def sample_points(weights, network, features, now, seeds, z):
    """z_L of every sample under every draw, one seed for each: the network at the drawn weights. MODIFIES: z (draws, samples)."""
    rows, dense = weights
    shape, prior, forgetting, _ = network
    depth, most = rows.mean.shape[1], most_features(features.indptr)
    m_x, v_x = np.empty((most, depth), np.float32), np.empty((most, depth), np.float32)
    classes, (total, squares) = class_of_fields(shape.op, shape.group_of_field), make_point_sums(shape, depth)
    (z_0, a), point = make_point_block(shape), np.empty(depth, np.float32)
    for draw in range(len(seeds)):
        packed = pack_drawn(dense, shape.sizes, seeds[draw])
        stirred, noise = stir(seeds[draw], depth + 1)
        for begin in range(0, z.shape[1], BLOCK):
            n = min(BLOCK, z.shape[1] - begin)
            for s in range(n):
                sample = begin + s
                first, z_s = features.indptr[sample], ZERO
                embedding_preview(rows, features, sample, now, prior, forgetting, m_x, v_x)
                total[:] = ZERO
                squares[:] = ZERO
                for j in range(features.indptr[sample + 1] - first):
                    fill_noise(features.keys[first + j], stirred, noise)
                    sign = ONE if features.values[first + j] > ZERO else -ONE
                    for d in range(depth):
                        point[d] = m_x[j, d] + sign * np.sqrt(v_x[j, d]) * noise[d]
                    add_point(shape.op, classes[features.fields[first + j]], point, total, squares)
                    if len(rows.linear_mean) > 0:
                        m, more = linear_deviation(rows, features, first + j, now, prior, forgetting, noise[depth])
                        z_s += m + more
                z[draw, sample] = z_s
                points_forward(shape.op, total, squares, s, z_0)
            add_layers(packed, shape, z_0, a, z[draw, begin : begin + n])


@jit
def sample_pairs(weights, network, features, now, seeds, z):
    """z_L of every sample under every draw, where the operation is pairs.

    Its variance is linearised, and so are its draws: a weight's deviation counts by its slope at the means. The network at the
    drawn weights would have products of two deviations as well, which neither the variance nor learning knows: for new features
    they are larger than all the rest. MODIFIES: z (draws, samples).
    """
    rows, dense = weights
    shape, prior, forgetting, _ = network
    depth, most, n_pairs = rows.mean.shape[1], most_features(features.indptr), shape.sizes[0]
    groups = largest(shape.group_of_field) + 1
    m_x, v_x = np.empty((most, depth), np.float32), np.empty((most, depth), np.float32)
    w, every = make_pair_scratch(len(shape.group_of_field), groups, depth // groups), np.arange(most)
    of_feature = (most, groups, depth // groups)
    slope, m_w = w.slope.reshape(len(shape.group_of_field), depth), dense.mean[0, 0]
    for draw in range(len(seeds)):
        stirred, noise = stir(seeds[draw], depth + 1)
        more_w = draw_dense(dense, shape.sizes, seeds[draw]).mean[0, 0] - m_w
        for sample in range(z.shape[1]):
            first, last = features.indptr[sample], features.indptr[sample + 1]
            embedding_preview(rows, features, sample, now, prior, forgetting, m_x, v_x)
            m_e, v_e = m_x.reshape(of_feature), v_x.reshape(of_feature)
            field_sums(m_e, v_e, every, last - first, features.fields, first, w)
            z_s, _ = pairs_forward(m_w, dense.variance[0, 0], shape.group_of_field, w)
            z_s += more_w[n_pairs]
            for p in range(n_pairs):
                z_s += w.products[p] * more_w[p]
            for j in range(last - first):
                fill_noise(features.keys[first + j], stirred, noise)
                f, sign = features.fields[first + j], ONE if features.values[first + j] > ZERO else -ONE
                for d in range(depth):
                    z_s += sign * slope[f, d] * np.sqrt(v_x[j, d]) * noise[d]
                if len(rows.linear_mean) > 0:
                    m, more = linear_deviation(rows, features, first + j, now, prior, forgetting, noise[depth])
                    z_s += m + more
            z[draw, sample] = z_s


def sample_batch(weights, network, features, now, seeds, z):
    """z_L of every sample under every draw, one seed for each. MODIFIES: z (draws, samples).

    Not compiled itself: a model waits only for the compilation of its own way.
    """
    sample = sample_pairs if network.shape.op == PAIRS else sample_points
    sample(weights, network, features, now, seeds, z)
