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
and the weights learn what comes of it to the power 1. Networks with layers, and powers below 1, stay with the rule above
(docs/lab/results.md#rows-with-weights has the reasons).

erratum E6: h can be negative, so a variance can grow; that is right, and bounded by the guard.
"""

import numpy as np

from pbodl._jit import inlined
from pbodl.kernels.guards import guarded, in_bounds
from pbodl.kernels.normal import ONE, TWO, ZERO


@inlined
def tempered(g, power):
    """c = 1/(1 + (w-1) g): what the power w of a likelihood does to a message that takes the share g of a variance."""
    return ONE if power == ONE else ONE / (ONE + (power - ONE) * g)


@inlined
def powered(v, dm, dv, power):
    """∂log Z by the mean and variance of z to a power above 1, and the power left to the weights; v: the variance of z."""
    if power > ONE:
        h = dm * dm - 2.0 * dv
        c = power / (1.0 + (power - 1.0) * v * h)
        return c * dm, 0.5 * c * (c * dm * dm - h), ONE
    return dm, dv, power


@inlined
def adf_step(m, v, dm, dv, power, cap):
    """What one weight's mean gains, and what its variance loses; and whether the guard (`guards`) lets both pass.

    The guard rejects an update whole when the variance would not stay positive or a number would not stay finite.
    `cap` > 0 limits the step of the mean to cap √v.
    """
    g = v * (dm * dm - TWO * dv)
    share = power * v * tempered(g, power)
    step, loss = share * dm, share * g
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
