"""The likelihood of a stage (beyond the paper): what is known of an impression's click by some age, given what was known before.

A click comes late, or never. Letters: p the impression's CTR; a and b the fractions of an impression's clicks that have come before
the stage begins and by its end, 0 ≤ a ≤ b ≤ 1. What an impression teaches in a stage has the likelihood
    clicked within it          p (b - a) / (1 - a p)
    not clicked by its end     (1 - b p) / (1 - a p)
The factors of one impression multiply to the likelihood of its whole history, wherever that stops: nothing is ever taken back, and
an end is censoring. Final labels are the stage from 0 to 1, with p and 1 - p.

Probit: p = Φ(z), z ~ N(m, v), s = √(1 + v), t = m/s, E p = Φ(t). Each of p, 1 - a p and 1 - b p is linear in p, so its mean over z,
its slope and its information are exact. Those of a stage are differences: the ratio's mean is taken as the ratio of the means.
    slope of log(1 - F Φ(t))   -g(F),        g = F φ / (1 - F Φ)             of log Φ(t)   r = φ/Φ
    its information            k(F),         k = max(g (g - t), 0)                         r (r + t)
    clicked                    l = r + g(a)              w = r (r + t) - k(a)
    not clicked                l = g(a) - g(b)           w = k(b) - k(a)
    ∂log Z/∂m = l/s            h = w/s²                  ∂log Z/∂v = ½ ((∂log Z/∂m)² - h)
so that h is what `adf` makes of both derivatives. The slopes and the information of an impression's stages add up to those of its
whole history: after the last stage a model knows what final labels would have taught it. (With h from the squares of the *sums*,
as if log Z of a stage were that of one factor, they would not: the mixed terms are missing, and half of a click's information.)
Where t > 0, log(1 - F p) is convex for F < 1, and g (g - t) below zero: there k is 0, and grows with F all the same. So w is in
[0, 1] for every stage that is not clicked; for a click it is kept there.

Logit: p = 1/(1 + e^-z), q = 1 - p. Slopes of the log-likelihood by z:
    clicked      q / (1 - a p)            not clicked      -p q (b - a) / ((1 - a p) (1 - b p))
"""

import math

from pbodl._jit import inlined
from pbodl.kernels.layers.probit import probit_backward, probit_log_z
from pbodl.kernels.normal import cdf, corrections, density_over_cdf, log_cdf, wide_density

TINY = 1e-100  # its square and the reciprocal of that are finite


@inlined
def is_final(clicked, came_before, came_by):
    """Whether a stage says what a final label would: nothing had come before, and it is clicked, or all clicks have come."""
    return came_before == 0.0 and (clicked or came_by == 1.0)


@inlined
def odds_slope(t, came):
    """g(F) = F φ/(1 - F Φ) at t, for F = `came`; no loss of digits where Φ is close to 1."""
    if came == 1.0:
        return density_over_cdf(-t)
    return came * wide_density(t) / (1.0 - came + came * cdf(-t))


@inlined
def known(t, g):
    """k = g (g - t), the information in "not clicked yet"; 0 where it would be negative."""
    return max(g * (g - t), 0.0)


@inlined
def stage_slopes(t, clicked, came_before, came_by):
    """l and w: the slope of log Z by t, and the information about t."""
    g_before = odds_slope(t, came_before)
    k_before = known(t, g_before)
    if clicked:
        r, w = corrections(t)
        return r + g_before, max(w - k_before, 0.0)
    g_by = odds_slope(t, came_by)
    return g_before - g_by, min(max(known(t, g_by) - k_before, 0.0), 1.0)


@inlined
def stage_corrections(t, clicked, came_before, came_by):
    """`stage_slopes`, and for final labels exactly what `corrections` says."""
    if is_final(clicked, came_before, came_by):
        sign = 1.0 if clicked else -1.0
        r, w = corrections(sign * t)
        return sign * r, w
    return stage_slopes(t, clicked, came_before, came_by)


@inlined
def log_not_yet(t, came):
    """log(1 - F Φ(t)) for F = `came`; finite for every finite t."""
    return log_cdf(-t) if came == 1.0 else math.log(1.0 - came + came * cdf(-t))


@inlined
def stage_log_z(m, v, clicked, came_before, came_by):
    """log Z of a stage, for a click without the factor b - a, which no weight changes."""
    t = m / math.sqrt(1.0 + v)
    if is_final(clicked, came_before, came_by):
        return probit_log_z(m, v, 1.0 if clicked else -1.0)
    return (log_cdf(t) if clicked else log_not_yet(t, came_by)) - log_not_yet(t, came_before)


@inlined
def stage_backward(m, v, clicked, came_before, came_by):
    """∂log Z/∂m and ∂log Z/∂v; of final labels, exactly `probit_backward`."""
    if is_final(clicked, came_before, came_by):
        return probit_backward(m, v, 1.0 if clicked else -1.0)
    s = math.sqrt(1.0 + v)
    slope, w = stage_slopes(m / s, clicked, came_before, came_by)
    dm = slope / s
    return dm, 0.5 * (dm * dm - w / (s * s))


@inlined
def logit_stage_slope(p, q, clicked, came_before, came_by):
    """∂log-likelihood/∂z for the logistic link, with p + q = 1; q without cancellation."""
    if is_final(clicked, came_before, came_by):
        return 1.0 - p if clicked else -p
    q = max(q, TINY)
    before, by = 1.0 - came_before + came_before * q, 1.0 - came_by + came_by * q
    if clicked:
        return q / before
    return -p * (came_by - came_before) * (q / by) / before
