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

erratum E6: h can be negative, so a variance can grow; that is right, and bounded by the guard.
"""

import numpy as np

from pbodl._jit import inlined
from pbodl.kernels.normal import ONE, TWO, ZERO

LARGEST = np.float32(1e6)
SMALLEST = np.float32(1e-30)


@inlined
def adf_step(m, v, dm, dv, power, cap):
    """What one weight's mean gains, and what its variance loses; and whether the guard lets both pass.

    The guard rejects an update whole when the variance would not stay positive or a number would not stay finite.
    `cap` > 0 limits the step of the mean to cap √v.
    """
    g = v * (dm * dm - TWO * dv)
    c = ONE if power == ONE else ONE / (ONE + (power - ONE) * g)
    share = power * v * c
    step, loss = share * dm, share * g
    if cap > ZERO:
        limit = cap * np.sqrt(v)
        step = min(max(step, -limit), limit)
    v_new = v - loss
    # g < 1 follows from v' > 0 where the power is 1. In this order `max` hands NaN on, and NaN is never below the largest.
    good = (v_new > SMALLEST) & (max(abs(m + step), v_new) < LARGEST) & ((power == ONE) | (g < ONE))
    return step, loss, good


@inlined
def only_if(good, x):
    """x, a float32, if it is good, else 0. By its bits: of a choice the compiler may make a masked store, many times slower."""
    return np.int32(np.float32(x).view(np.int32) & -np.int32(good)).view(np.float32)


@inlined
def adf_update(m, v, dm, dv, power, cap):
    """One weight's new mean and variance, and 1 if the guard kept the old ones (both), else 0."""
    step, loss, good = adf_step(m, v, dm, dv, power, cap)
    # Written as a step of zero, not as a choice between m and m', so that the vector loop stores plainly: masked stores are slow.
    # Where the compiler sees through that, `only_if` does it.
    return m + (step if good else ZERO), v - (loss if good else ZERO), (ZERO if good else ONE)


@inlined
def decay(m, v, v_prior, kept, also_mean):
    """Forget a share of what the likelihood said: π' = π_prior + kept (π - π_prior), the n steps at once of PBODL eq. 28.

    `kept` = (1-ε)^n. In precision form a step is affine, π' = (1-ε) π + ε π_prior, so any number of steps is one. With
    `also_mean` the precision-mean decays alike (prior mean zero), as AdPredictor does; the paper decays the variance alone.
    """
    v_new = v * v_prior / (kept * v_prior + (ONE - kept) * v)
    return (kept * m * v_new / v if also_mean else m), v_new
