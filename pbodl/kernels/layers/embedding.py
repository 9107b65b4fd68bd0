"""The embedding layer: a sample's features become Gaussian vectors (PBODL eq. 11, eq. 16), and their rows are updated.

Letters: row r of the table holds m_w, v_w of D = G K numbers, with K the dimension and G = 1 but for FFM (one vector per group);
feature j of a sample has value x (1 for a category), field f and row r (-1 if it was never seen):
    m_x = x m_w        v_x = x² v_w        ∂/∂m_w = x dm_x        ∂/∂v_w = x² dv_x
The linear term is one more weight per feature; its moments are added to those of z_L.

erratum E7: with every mean at the prior's zero the gradients of FM vanish and hidden units stay equal. The prior mean is zero, but
the *initial posterior mean* is a small draw, a pure function of (seed, key, dimension). It is the same on every machine and in
every order of arrival, and features that were never seen need no memory for it.
"""

import numpy as np

from pbodl._jit import by_type, first_column, in_order, inlined, jit, kernel
from pbodl.kernels.adf import adf_step, adf_update, decay
from pbodl.kernels.arguments import USUAL, NoForgetting
from pbodl.kernels.guards import only_if
from pbodl.kernels.normal import ONE, ZERO
from pbodl.mixing import GOLDEN, mix

S16, S32, S48 = (np.uint64(n) for n in (16, 32, 48))
LOW_16 = np.uint64(0xFFFF)
SMALLEST_FORGETTING = 1e-4  # half-lives between two steps of decay, at least: float32 would lose the tiny steps of frequent rows
DRAW_CENTRE = 2.0 * 65535.0
DRAW_SCALE = 1.0 / 37837.22723720648  # √(4 (65536² - 1)/12)


@inlined
def standard_draw(seed, key, k):
    """A draw with mean 0 and variance 1, a pure function of three uint64."""
    return draw_of(key, mix(seed + (k + np.uint64(1)) * GOLDEN))


@inlined
def draw_of(key, stirred):
    """The draw of a key and a stirred dimension: the sum of four uniform numbers, integers up to the last step."""
    h = mix(key ^ stirred)
    total = (h & LOW_16) + ((h >> S16) & LOW_16) + ((h >> S32) & LOW_16) + (h >> S48)
    return np.float32((np.float64(np.int32(total)) - DRAW_CENTRE) * DRAW_SCALE)


@jit
def initialise_rows(rows, keys, fields, start, prior):
    """Set rows [start, start + len(keys)) to their state before any data. MODIFIES: rows."""
    for n in range(len(keys)):
        r = start + n
        for d in range(rows.mean.shape[1]):
            rows.mean[r, d] = prior.initial_scale * standard_draw(prior.seed, keys[n], np.uint64(d))
            rows.variance[r, d] = prior.variance[fields[n], d]
        if len(rows.linear_mean) > 0:
            rows.linear_mean[r, 0] = ZERO
            rows.linear_variance[r, 0] = prior.linear_variance[fields[n]]
        rows.count[r] = np.uint32(0)


@inlined
def kept_share(elapsed, half_life):
    """The share of the likelihood's part that is left after `elapsed`: 2^(-elapsed/half_life). It is 1 without a half-life (0), and
    until the step is large enough for float32."""
    return np.float32(2.0 ** (-elapsed / half_life)) if half_life > 0.0 and elapsed > SMALLEST_FORGETTING * half_life else ONE


@inlined
def means_decay(prior, forgetting):
    """Whether the embeddings' means decay."""
    return forgetting.also_mean and prior.initial_scale == ZERO


@inlined
def entries(features, sample):
    """Where a sample's entries begin and end; unsigned, so that the compiler need not check for negative indices."""
    return np.uint64(features.indptr[sample]), np.uint64(features.indptr[sample + 1])


@jit
def forget_rows(rows, features, sample, now, prior, forgetting):
    """Decay a sample's rows up to the clock `now`; a row never learned has nothing to forget. MODIFIES: rows."""
    for j in range(features.indptr[sample], features.indptr[sample + 1]):
        r, field = features.rows[j], features.fields[j]
        if rows.count[r] == 0:
            rows.last_seen[r] = now
        kept = kept_share(now - rows.last_seen[r], forgetting.half_life)
        if kept == ONE:
            continue
        rows.last_seen[r] = now
        for d in range(rows.mean.shape[1]):
            rows.mean[r, d], rows.variance[r, d] = decay(
                rows.mean[r, d], rows.variance[r, d], prior.variance[field, d], kept, means_decay(prior, forgetting)
            )
        if len(rows.linear_mean) > 0:
            rows.linear_mean[r, 0], rows.linear_variance[r, 0] = decay(
                rows.linear_mean[r, 0], rows.linear_variance[r, 0], prior.linear_variance[field], kept, forgetting.also_mean
            )


@inlined
def embedding_forward(rows, features, sample, m_x, v_x):
    """Gather a sample's features; returns the linear term's mean and variance. MODIFIES: m_x, v_x (features, D)."""
    m_w, v_w, m_l, v_l = rows.mean, rows.variance, rows.linear_mean, rows.linear_variance
    at, values = features.rows, features.values
    first, last = entries(features, sample)
    m_linear, v_linear = ZERO, ZERO
    for j in range(last - first):
        r, x = at[first + j], values[first + j]
        x2 = x * x
        for d in range(m_w.shape[1]):
            m_x[j, d] = x * m_w[r, d]
            v_x[j, d] = x2 * v_w[r, d]
        if len(m_l) > 0:
            m_linear += x * m_l[r, 0]
            v_linear += x2 * v_l[r, 0]
    return m_linear, v_linear


@inlined
def are_plain(features, begin, end):
    """Whether entries [begin, end) can be read straight from their rows, apart from decay: all seen, all of value 1."""
    at, values = features.rows, features.values
    others = np.int32(0)
    for j in range(np.uint64(begin), np.uint64(end)):
        others |= np.int32((at[j] < 0) | (values[j] != ONE))
    return others == 0


@in_order
def plus(a, b):
    """a + b."""
    return a + b


@jit
def linear_columns(rows):
    """The linear term's means and variances, (rows,)."""
    return first_column(rows.linear_mean), first_column(rows.linear_variance)


@inlined
def linear_forward(m_l, v_l, features, sample):
    """The linear term's mean and variance for a plain sample."""
    at = features.rows
    m_linear, v_linear = ZERO, ZERO
    if len(m_l) > 0:
        first, last = entries(features, sample)
        for j in range(first, last):
            r = np.uint32(at[j])
            m_linear = plus(m_linear, m_l[r])
            v_linear = plus(v_linear, v_l[r])
    return m_linear, v_linear


@inlined
def kept_of_all(forgetting, elapsed):
    """Without forgetting, all of it."""
    return ONE


@inlined
def kept_of_some(forgetting, elapsed):
    """The share that is left after `elapsed`."""
    return kept_share(elapsed, forgetting.half_life)


# What is left of a row's likelihood after `elapsed`: a constant where nothing is forgotten, so that no decay is compiled.
kept_after = by_type(NoForgetting, kept_of_all, kept_of_some)


@inlined
def preview_weight(m, v, v_prior, kept, also_mean):
    """A weight after decay; the stored one is unchanged."""
    return decay(m, v, v_prior, kept, also_mean) if kept < ONE else (m, v)


@inlined
def embedding_preview(rows, features, sample, now, prior, forgetting, m_x, v_x):
    """`embedding_forward` that does not change the table: it computes decay and unseen features on the fly. MODIFIES: m_x, v_x."""
    m_w, v_w, m_l, v_l, last_seen = rows.mean, rows.variance, rows.linear_mean, rows.linear_variance, rows.last_seen
    at, values, fields, keys = features.rows, features.values, features.fields, features.keys
    first, last = entries(features, sample)
    m_linear, v_linear = ZERO, ZERO
    for j in range(last - first):
        r, x, field = at[first + j], values[first + j], fields[first + j]
        x2 = x * x
        m, v = ZERO, prior.linear_variance[field]
        if r < 0:
            for d in range(m_w.shape[1]):
                m_x[j, d] = x * prior.initial_scale * standard_draw(prior.seed, keys[first + j], np.uint64(d))
                v_x[j, d] = x2 * prior.variance[field, d]
        else:
            kept = kept_after(forgetting, now - last_seen[r])
            for d in range(m_w.shape[1]):
                m_d, v_d = preview_weight(m_w[r, d], v_w[r, d], prior.variance[field, d], kept, means_decay(prior, forgetting))
                m_x[j, d] = x * m_d
                v_x[j, d] = x2 * v_d
            if len(m_l) > 0:
                m, v = preview_weight(m_l[r, 0], v_l[r, 0], v, kept, forgetting.also_mean)
        if len(m_l) > 0:
            m_linear += x * m
            v_linear += x2 * v
    return m_linear, v_linear


@inlined
def learned_from(count, counts):
    """A row's count after one more sample. It is never 0 then, even if an impression's first stage met another row of this key that
    was dropped meanwhile: a row of count 0 is new, and new rows do not decay."""
    return max(np.uint32(count + counts), np.uint32(1))


@inlined
def embedding_backward(
    rows, m_l, v_l, features, sample, now, forgets, dm_x, dv_x, dm_linear, dv_linear, power, cap, counts, bad, rejected
):
    """Update the rows of a sample's features, (m_l, v_l) being their linear columns; `counts`: whether they count the sample.

    MODIFIES: rows, m_l, v_l, rejected (embeddings, linear term), and bad: scratch.
    """
    last_seen, count, at, values = rows.last_seen, rows.count, features.rows, features.values
    first, last = entries(features, sample)
    n = np.int64(last - first)
    rejected[0] += update_vectors(rows.mean, rows.variance, at[first:], values[first:], n, dm_x, dv_x, power, cap, bad)
    bad_linear = ZERO
    for j in range(first, last):
        r, x = np.uint32(at[j]), values[j]
        if len(m_l) > 0:
            m_l[r], v_l[r], no = adf_update(m_l[r], v_l[r], x * dm_linear, x * x * dv_linear, power, cap)
            bad_linear += no
        count[r] = learned_from(count[r], counts)
        if not forgets:  # otherwise `forget_rows` sets it
            last_seen[r] = now
    rejected[1] += int(bad_linear)


@kernel
def update_vectors(m_w, v_w, at, values, n, dm_x, dv_x, power, cap, bad):
    """Update the embeddings of n features; returns how many the guard rejected. MODIFIES: m_w, v_w; and bad: scratch."""
    # A branch for the plain case: with constants, the compiler drops the power and the cap from its loops.
    if power == ONE and cap == ZERO:
        update_plainly(m_w, v_w, at, values, n, dm_x, dv_x, bad)
    else:
        update_any(m_w, v_w, at, values, n, m_w.shape[1], dm_x, dv_x, power, cap, bad)
    total = ZERO
    for d in range(m_w.shape[1]):
        total += bad[d]
    return int(total)


@kernel
def update_plainly(m_w, v_w, at, values, n, dm_x, dv_x, bad):
    """As `update_any`, with power 1 and no cap, and a branch for the usual dimension. MODIFIES: m_w, v_w, bad."""
    if m_w.shape[1] == USUAL:
        update_any(m_w, v_w, at, values, n, np.int64(USUAL), dm_x, dv_x, ONE, ZERO, bad)
    else:
        update_any(m_w, v_w, at, values, n, m_w.shape[1], dm_x, dv_x, ONE, ZERO, bad)


@inlined
def update_any(m_w, v_w, at, values, n, dim, dm_x, dv_x, power, cap, bad):
    """Update the embeddings of n features. MODIFIES: m_w, v_w; bad: how many updates were rejected, by dimension."""
    for d in range(dim):
        bad[d] = ZERO
    for j in range(n):
        r, x = np.uint32(at[j]), values[j]
        x2 = x * x
        for d in range(dim):
            m, v = m_w[r, d], v_w[r, d]
            step, loss, good = adf_step(m, v, x * dm_x[j, d], x2 * dv_x[j, d], power, cap)
            m_w[r, d], v_w[r, d] = m + only_if(good, step), v - only_if(good, loss)
            # Counted by dimension: a single count would need a sum across the vector at the end of every row.
            bad[d] += ZERO if good else ONE


@jit
def stirred_dimensions(seed, n):
    """The stirred dimensions 0, 1, 2, ..., n - 1, for `draw_of`."""
    stirred = np.empty(n, np.uint64)
    for k in range(n):
        stirred[k] = mix(seed + np.uint64(k + 1) * GOLDEN)
    return stirred


@jit
def standard_draws(seed, key, n):
    """n draws of `standard_draw` for k = 0, 1, 2, ..."""
    draws = np.empty(n, np.float32)
    for k in range(n):
        draws[k] = standard_draw(seed, key, np.uint64(k))
    return draws
