"""Assumed density filtering of one weight (PBODL eq. 6, eq. 7), its guards, and decay towards the prior (PBODL eq. 28).

Bayes' rule (PBODL eq. 5) would give a posterior that is no Gaussian; the update keeps its mean and variance, and goes on with them.

Letters: (m, v) the weight's mean and variance; dm, dv the derivatives of log Z by them.
    m' = m + v dm                     v' = v - v² h,   h = dm² - 2 dv

A likelihood to a power w (an example's weight) raises its Gaussian message to the power w. With g = v h, the share of the
variance that the whole message takes away, dividing out and multiplying back gives
    m' = m + w v dm c                 v' = v - w v g c = v (1 - g) c,    c = 1/(1 + (w-1) g)
which for w = 1 is the update above, for w = 2 two messages, and never drives a variance below zero where one message does not.
(Scaling log Z itself in both derivatives would square w in the first term of h, and *raise* the variance on surprising clicks
with w < 1; tests/kernels/test_adf.py compares both with quadrature.)

Weights that share a sample should not all do that on their own: each takes only a little of its own variance away (c is almost 1),
and together they step almost w times as far as one message, which is further than w messages would. What a sample says, it says
about z. So where weights reach z by their slopes alone (`by_slopes`), a power above 1 is taken there, with G = v_z h_z,
    dm_z ← w dm_z C                   h_z ← w h_z C,    C = 1/(1 + (w-1) G)
and the weights learn what comes of it to the power 1. Powers below 1 stay with the rule above.

In a network with layers, moments are no sums of slopes, and what is right at z is not right for every weight. There each weight
raises its own message, to the power w/√(1 + ((w-1) G)²) alone, G by the slopes of z: small powers are taken whole, and the
predicted change of z stays that of the likelihood, however large w is (docs/lab/hard-rows.md).

erratum E6: h can be negative, so a variance can grow; that is right, and bounded by the guard. The power w of a message of negative
precision is soon no Gaussian at all, and before that it widens the weight, whose next message is then larger still: weights of 5
threw networks out by 10¹¹. So a growing variance takes at most two messages (`multiples`).
"""

import numpy as np

from pbodl._jit import inlined
from pbodl.kernels.guards import guarded, in_bounds
from pbodl.kernels.normal import ONE, TWO, ZERO

# What `arguments.Outputs` counts of rows with powers above 1: those that step at most half as far as their powers alone would, and
# by how much all of their powers, and the powers' squares, are above 1.
DAMPED, EXTRA, EXTRA_SQUARES = 3, 4, 5
FAR = 6.0
MOST_COUNTED = np.float32(1000.0)


@inlined
def tempered(g, power):
    """c = 1/(1 + (w-1) g): what the power w of a likelihood does to a message that takes the share g of a variance."""
    return ONE if power == ONE else ONE / (ONE + (power - ONE) * g)


@inlined
def multiples(g, power):
    """The multiples of a message of share g by which mean and variance move; where a power above 1 would make the variance rise,
    it rises at most as two messages do."""
    u = (power - ONE) * g
    if (u < ZERO) & (power > ONE):
        return power, min(power, TWO) / (ONE - u)
    c = power / (ONE + u)
    return c, c


@inlined
def overshoot(v, dm, dv, power):
    """(w-1) G, with G = v_z h_z: by how much w messages that learn side by side step beyond where their product is."""
    return (power - 1.0) * v * max(dm * dm - 2.0 * dv, 0.0)


@inlined
def powered(v, dm, dv, power):
    """∂log Z by the mean and variance of z to a power above 1, and the power left to the weights; v: the variance of z."""
    if power > ONE:
        h = dm * dm - 2.0 * dv
        c = power / (1.0 + (power - 1.0) * v * h)
        return c * dm, 0.5 * c * (c * dm * dm - h), ONE
    return dm, dv, power


@inlined
def damped(v, dm, dv, power):
    """The power that the weights of a network with layers take of a power above 1; v: the variance of z by their slopes."""
    u = overshoot(v, dm, dv, power)
    return np.float32(power / np.sqrt(1.0 + u * u))


@inlined
def no_further(m, dm, dv):
    """∂log Z by the mean and variance of z, where a label that agrees with a mean beyond FAR moves no mean, and h stays as it is.

    The variance of a product grows with its factors. So where every row agrees, each asks a network of products for a step of some
    of its deviations, however far it is.
    """
    if (m * dm > 0.0) & (abs(m) > FAR):
        return 0.0, dv - 0.5 * dm * dm
    return dm, dv


@inlined
def count_power(v, dm, dv, power, counts):
    """Count a row with a power above 1. MODIFIES: counts (`arguments.Outputs`)."""
    bounded = min(power, MOST_COUNTED)
    counts[DAMPED] += np.int64(overshoot(v, dm, dv, power) > 1.0)
    counts[EXTRA] += np.int64(bounded - 0.5)
    counts[EXTRA_SQUARES] += np.int64(bounded * bounded - 0.5)


@inlined
def adf_step(m, v, dm, dv, power, cap):
    """What one weight's mean gains, and what its variance loses; and whether the guard (`guards`) lets both pass.

    The guard rejects an update whole when the variance would not stay positive or a number would not stay finite.
    `cap` > 0 limits the step of the mean to cap √v.
    """
    g = v * (dm * dm - TWO * dv)
    by_mean, by_variance = (ONE, ONE) if power == ONE else multiples(g, power)
    step, loss = by_mean * (v * dm), by_variance * (v * g)
    if cap > ZERO:
        limit = cap * np.sqrt(v)
        step = min(max(step, -limit), limit)
    v_new = v - loss
    good = in_bounds(m + step, v_new) & ((power == ONE) | (g < ONE))  # g < 1 follows from v' > 0 where the power is 1
    return step, loss, good


@inlined
def adf_update(m, v, dm, dv, power, cap):
    """One weight's new mean and variance, and 1 if the guard kept the old ones (both), else 0."""
    step, loss, good = adf_step(m, v, dm, dv, power, cap)
    return guarded(m, v, step, loss, good)


@inlined
def decay(m, v, v_prior, kept, also_mean):
    """Forget a share of what the likelihood said: π' = π_prior + kept (π - π_prior), the n steps at once of PBODL eq. 28.

    `kept` = (1-ε)^n. In precision form a step is affine, π' = (1-ε) π + ε π_prior, so any number of steps is one. With
    `also_mean` the precision-mean decays alike (prior mean zero), as AdPredictor does; the paper decays the variance alone.
    """
    v_new = v * v_prior / (kept * v_prior + (ONE - kept) * v)
    return (kept * m * v_new / v if also_mean else m), v_new


@inlined
def decay_home(m, v, start, v_prior, kept):
    """As `decay`, with a mean that goes back to where it started: what the likelihood said to mean and precision decays alike.

    With 1/v = 1/v_prior + λ and m/v = start/v_prior + η, both λ and η are multiplied by `kept`.
    """
    v_new = v * v_prior / (kept * v_prior + (ONE - kept) * v)
    return m + (start - m) * ((ONE - kept) * v_new / v_prior), v_new
