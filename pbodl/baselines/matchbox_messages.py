"""MatchBox's messages, sample by sample. The docstring of `matchbox` explains the factor graph and the letters.

Letters: (m, v) a Gaussian's mean and variance; s and t are rows USER and AD of arrays (2, K); Σ² the variance of r with its noise.
"""

import math
from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit
from pbodl.kernels.arguments import counted
from pbodl.kernels.draws import BIAS_KEY, noise_at
from pbodl.kernels.guards import SMALLEST, guarded, in_bounds
from pbodl.kernels.layers.embedding import learned_from, standard_draw
from pbodl.kernels.layers.stage import stage_corrections
from pbodl.kernels.normal import ONE, ZERO, cdf

USER, AD = 0, 1
MEAN, VARIANCE, LAST_SEEN = 0, 1, 2  # numbers of the bias
ROUNDS, REJECTED = 0, 1  # counters
SETTLED = np.float32(0.01)  # the loop ends when no mean of a trait moves by more of its standard deviation


class Traits(NamedTuple):
    """The Gaussians of all features."""

    mean: np.ndarray  # float32 (rows, K)
    variance: np.ndarray
    bias_mean: np.ndarray  # float32 (rows, 1)
    bias_variance: np.ndarray
    last_seen: np.ndarray  # float64 (rows,)
    seen: np.ndarray  # uint32 (rows,): how many samples had the feature


class MatchBoxSettings(NamedTuple):
    """The model's parameters, as the kernels take them."""

    side_of_field: np.ndarray  # int32 (fields,): USER or AD
    variance: np.float32  # prior of a trait
    bias_variance: np.float32  # prior of a bias
    initial_scale: np.float32
    seed: np.uint64
    noise: np.float64  # β²
    drift: np.float64  # of a variance per unit of the clock
    rounds: np.int64  # the largest number per sample


class MatchBoxScratch(NamedTuple):
    """One sample's messages from the sums, and the marginals of s and t."""

    m_prior: np.ndarray
    v_prior: np.ndarray
    m: np.ndarray
    v: np.ndarray


@jit
def make_scratch(dim):
    """MatchBoxScratch for K = dim traits."""
    shape, f = (2, dim), np.float32
    return MatchBoxScratch(np.empty(shape, f), np.empty(shape, f), np.empty(shape, f), np.empty(shape, f))


@jit
def initialise_traits(traits, keys, start, settings):
    """Set rows [start, start + len(keys)) to their state before any data. MODIFIES: traits."""
    for n in range(len(keys)):
        r = start + n
        for k in range(traits.mean.shape[1]):
            traits.mean[r, k] = settings.initial_scale * standard_draw(settings.seed, keys[n], np.uint64(k))
            traits.variance[r, k] = settings.variance
        traits.bias_mean[r, 0] = ZERO
        traits.bias_variance[r, 0] = settings.bias_variance


@inlined
def grown(traits, r, now, drift):
    """What a row's variances have grown by since it was last seen; a row that was never learned from is new, and does not grow."""
    return drift * max(now - traits.last_seen[r], 0.0) if traits.seen[r] > 0 else 0.0


@jit
def drift_rows(traits, features, sample, now, drift):
    """Grow the variances of a sample's rows by the time since they were last seen. MODIFIES: traits."""
    for j in range(features.indptr[sample], features.indptr[sample + 1]):
        r = features.rows[j]
        growth = np.float32(grown(traits, r, now, drift))
        if growth == ZERO:
            continue
        for k in range(traits.mean.shape[1]):
            traits.variance[r, k] += growth
        traits.bias_variance[r, 0] += growth
        traits.last_seen[r] = now


@inlined
def clear(m, v):
    """Set both to zero. MODIFIES: m, v. (A loop: assignments to whole arrays take the compiler three times as long.)"""
    for side in range(2):
        for k in range(m.shape[1]):
            m[side, k], v[side, k] = ZERO, ZERO


@inlined
def sums_forward(traits, features, sample, settings, w):
    """Messages of the sums to s and t, their first marginals; returns mean and variance of b without the bias. MODIFIES: w."""
    m_w, v_w, m_b, v_b = traits.mean, traits.variance, traits.bias_mean, traits.bias_variance
    rows, values, fields, side_of_field = features.rows, features.values, features.fields, settings.side_of_field
    clear(w.m_prior, w.v_prior)
    mean, variance = ZERO, ZERO
    for j in range(features.indptr[sample], features.indptr[sample + 1]):
        r, x, side = rows[j], values[j], side_of_field[fields[j]]
        x2 = x * x
        m_side, v_side = w.m_prior[side], w.v_prior[side]
        for k in range(m_w.shape[1]):
            m_side[k] += x * m_w[r, k]
            v_side[k] += x2 * v_w[r, k]
        mean += x * m_b[r, 0]
        variance += x2 * v_b[r, 0]
    for side in range(2):
        for k in range(m_w.shape[1]):
            w.m[side, k], w.v[side, k] = w.m_prior[side, k], w.v_prior[side, k]
    return np.float64(mean), np.float64(variance)


@inlined
def sums_preview(traits, features, sample, now, settings, w):
    """`sums_forward` that does not change the rows: it computes drift and unseen features on the fly. MODIFIES: w."""
    m_w, v_w, m_b, v_b = traits.mean, traits.variance, traits.bias_mean, traits.bias_variance
    clear(w.m, w.v)
    mean, variance = ZERO, ZERO
    for j in range(features.indptr[sample], features.indptr[sample + 1]):
        r, x, side = features.rows[j], features.values[j], settings.side_of_field[features.fields[j]]
        x2 = x * x
        m_side, v_side = w.m[side], w.v[side]
        if r < 0:
            for k in range(m_w.shape[1]):
                m_side[k] += x * settings.initial_scale * standard_draw(settings.seed, features.keys[j], np.uint64(k))
                v_side[k] += x2 * settings.variance
            variance += x2 * settings.bias_variance
        else:
            growth = np.float32(grown(traits, r, now, settings.drift))
            for k in range(m_w.shape[1]):
                m_side[k] += x * m_w[r, k]
                v_side[k] += x2 * (v_w[r, k] + growth)
            mean += x * m_b[r, 0]
            variance += x2 * (v_b[r, 0] + growth)
    return np.float64(mean), np.float64(variance)


@inlined
def product_moments(m_s, v_s, m_t, v_t):
    """The product's message to z = s t: mean <s><t>, variance <s²><t²> - <s>²<t>²."""
    return m_s * m_t, m_s * m_s * v_t + m_t * m_t * v_s + v_s * v_t


@inlined
def product_forward(w):
    """Mean and variance of Σ_k z_k."""
    m_s, v_s, m_t, v_t = w.m[USER], w.v[USER], w.m[AD], w.v[AD]
    mean, variance = ZERO, ZERO
    for k in range(len(m_s)):
        m_z, v_z = product_moments(m_s[k], v_s[k], m_t[k], v_t[k])
        mean += m_z
        variance += v_z
    return np.float64(mean), np.float64(variance)


@inlined
def combined(m, v, precision, precision_mean):
    """The Gaussian N(m, v) times a message."""
    scale = ONE / (ONE + v * precision)
    return (m + v * precision_mean) * scale, v * scale


@inlined
def product_backward(shrink, pull, total, power, w):
    """Messages from r through the product to s, and with its new marginal to t; returns the largest step of a mean, in deviations.

    The click's Gaussian message to r, to a power of at most 1, reaches z_k without the other parts of r: with precision c w/D and
    precision-mean c (w <z_k> + pull)/D, where w = w(t), c the power, D = Σ² (1 - w + c w) - c w var z_k. MODIFIES: w.
    """
    m_s, v_s, m_t, v_t = w.m[USER], w.v[USER], w.m[AD], w.v[AD]
    m_s0, v_s0, m_t0, v_t0 = w.m_prior[USER], w.v_prior[USER], w.m_prior[AD], w.v_prior[AD]
    whole = total * (ONE - shrink + power * shrink)
    step = ZERO
    for k in range(len(m_s)):
        m_z, v_z = product_moments(m_s[k], v_s[k], m_t[k], v_t[k])
        d = power / (whole - power * shrink * v_z)
        precision, precision_mean = shrink * d, (shrink * m_z + pull) * d
        m, v = combined(m_s0[k], v_s0[k], precision * (m_t[k] * m_t[k] + v_t[k]), precision_mean * m_t[k])
        step = max(step, abs(m - m_s[k]) / np.sqrt(v + SMALLEST))
        m_s[k], v_s[k] = m, v
        m, v = combined(m_t0[k], v_t0[k], precision * (m * m + v), precision_mean * m)
        step = max(step, abs(m - m_t[k]) / np.sqrt(v + SMALLEST))
        m_t[k], v_t[k] = m, v
    return step


@inlined
def term(m, v, x, dm, h):
    """A term's new mean and variance, and 1 if the guard kept the old ones (both), else 0."""
    step, loss = x * v * dm, x * x * v * v * h
    return guarded(m, v, step, loss, in_bounds(m + step, v - loss))


@inlined
def sums_backward(traits, features, sample, now, settings, dm_b, h_b, counts, w):
    """Give every feature its share of what s, t and b moved by; returns the rejected updates. MODIFIES: traits, w.

    A sum that moves from N(M, V) to N(M', V') moves its term N(m, v), of factor x, by x v (M'-M)/V and by -x² v² (V-V')/V².
    """
    m_w, v_w, m_b, v_b = traits.mean, traits.variance, traits.bias_mean, traits.bias_variance
    last_seen, seen = traits.last_seen, traits.seen
    rows, values, fields, side_of_field = features.rows, features.values, features.fields, settings.side_of_field
    for side in range(2):
        m, v, m_prior, v_prior = w.m[side], w.v[side], w.m_prior[side], w.v_prior[side]
        for k in range(len(m)):
            scale = ONE / v_prior[k] if v_prior[k] > SMALLEST else ZERO  # no features on this side: nothing to move
            m[k] = (m[k] - m_prior[k]) * scale
            v[k] = (v_prior[k] - v[k]) * scale * scale
    bad = ZERO
    for j in range(features.indptr[sample], features.indptr[sample + 1]):
        r, x, side = rows[j], values[j], side_of_field[fields[j]]
        dm, h = w.m[side], w.v[side]
        for k in range(m_w.shape[1]):
            m_w[r, k], v_w[r, k], no = term(m_w[r, k], v_w[r, k], x, dm[k], h[k])
            bad += no
        m_b[r, 0], v_b[r, 0], no = term(m_b[r, 0], v_b[r, 0], x, dm_b, h_b)
        bad += no
        seen[r] = learned_from(seen[r], counts)
        last_seen[r] = now
    return int(bad)


@jit
def learn_batch(traits, bias, samples, settings, ctr, counters):
    """Learn samples one after the other. MODIFIES: traits, bias, counters; ctr, the probabilities predicted before."""
    features, clicks, powers, clock, came_before, came_by = samples
    w = make_scratch(traits.mean.shape[1])
    for sample in range(len(clicks)):
        now, power = clock[sample], np.float64(powers[sample])
        if settings.drift > 0.0:
            drift_rows(traits, features, sample, now, settings.drift)
            bias[VARIANCE] += settings.drift * max(now - bias[LAST_SEEN], 0.0)
            bias[LAST_SEEN] = max(now, bias[LAST_SEEN])
        m_b, v_b = sums_forward(traits, features, sample, settings, w)
        m_b, v_b = m_b + bias[MEAN], v_b + bias[VARIANCE]
        if power == 0.0:
            m_z, v_z = product_forward(w)
            ctr[sample] = cdf((m_b + m_z) / math.sqrt(settings.noise + v_b + v_z))
            continue
        counts, clicked = counted(samples, sample), clicks[sample] > 0
        before, by = np.float64(came_before[sample]), np.float64(came_by[sample])
        total, pull, shrink, left = 1.0, 0.0, 0.0, 1.0
        for turn in range(settings.rounds):
            m_z, v_z = product_forward(w)
            total = settings.noise + v_b + v_z
            deviation = math.sqrt(total)
            t = (m_b + m_z) / deviation
            if turn == 0:
                ctr[sample] = cdf(t)
            slope, shrink = stage_corrections(t, clicked, before, by)
            pull, left = slope * deviation, power
            if power > 1.0:  # is taken at r, as in `kernels.adf`
                c = power / (1.0 + (power - 1.0) * (1.0 - settings.noise / total) * shrink)
                pull, shrink, left = c * pull, c * shrink, 1.0
            step = product_backward(np.float32(shrink), np.float32(pull), np.float32(total), np.float32(left), w)
            counters[ROUNDS] += 1
            if step < SETTLED:
                break
        g = v_b * shrink / total
        c = 1.0 / (1.0 + (left - 1.0) * g)
        dm_b, h_b = left * pull / total * c, (1.0 - (1.0 - g) * c) / v_b
        bias[MEAN], bias[VARIANCE] = bias[MEAN] + bias[VARIANCE] * dm_b, bias[VARIANCE] - bias[VARIANCE] ** 2 * h_b
        of_bias = np.float32(dm_b), np.float32(h_b)
        counters[REJECTED] += sums_backward(traits, features, sample, now, settings, *of_bias, counts, w)


@jit
def predict_batch(traits, bias, features, now, settings, mean, variance):
    """Moments of r without its noise. MODIFIES: mean, variance."""
    w = make_scratch(traits.mean.shape[1])
    growth = settings.drift * max(now - bias[LAST_SEEN], 0.0)
    for sample in range(len(mean)):
        m_b, v_b = sums_preview(traits, features, sample, now, settings, w)
        m_z, v_z = product_forward(w)
        mean[sample], variance[sample] = m_b + bias[MEAN] + m_z, v_b + bias[VARIANCE] + growth + v_z


@jit
def sample_bilinear(traits, bias, features, now, settings, seeds, z):
    """MatchBox's r under every draw, one seed for each. MODIFIES: z (draws, samples)."""
    rows, values, keys, dim = features.rows, features.values, features.keys, traits.mean.shape[1]
    sides = np.empty((2, dim))
    bias_variance = bias[VARIANCE] + settings.drift * max(now - bias[LAST_SEEN], 0.0)
    for draw in range(len(seeds)):
        seed = seeds[draw]
        at_bias = bias[MEAN] + math.sqrt(bias_variance) * noise_at(seed, BIAS_KEY, np.uint64(0))
        for sample in range(z.shape[1]):
            total = at_bias
            sides[:] = 0.0
            for j in range(features.indptr[sample], features.indptr[sample + 1]):
                r, x, side = rows[j], np.float64(values[j]), sides[settings.side_of_field[features.fields[j]]]
                growth = grown(traits, r, now, settings.drift) if r >= 0 else 0.0
                for k in range(dim):
                    m, v = ZERO, settings.variance
                    if r >= 0:
                        m, v = traits.mean[r, k], traits.variance[r, k]
                    else:
                        m = settings.initial_scale * standard_draw(settings.seed, keys[j], np.uint64(k))
                    side[k] += x * (m + math.sqrt(v + growth) * noise_at(seed, keys[j], np.uint64(k)))
                m, v = (traits.bias_mean[r, 0], traits.bias_variance[r, 0]) if r >= 0 else (ZERO, settings.bias_variance)
                total += x * (m + math.sqrt(v + growth) * noise_at(seed, keys[j], np.uint64(dim)))
            for k in range(dim):
                total += sides[USER, k] * sides[AD, k]
            z[draw, sample] = total
