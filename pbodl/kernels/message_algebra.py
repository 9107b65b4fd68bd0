"""Messages between a worker and a server: quotients of Gaussians, and their products (PBODL eq. 26, eq. 27), weight by weight.

Letters: a worker began with N(m0, v0) and ended with N(m1, v1). Its message is what the data added, in natural parameters,
    Δπ = 1/v1 - 1/v0        Δη = m1/v1 - m0/v0 = Δπ m0 + d,    d = (m1 - m0)/v1
so that the server's product of prior and messages is π' = π + ΣΔπ, η' = η + ΣΔη, that is m' = m + Σ(Δη - Δπ m)/π'.

erratum E5: Algorithm 1 adds up such differences sample by sample; the sum telescopes to the one above.
erratum E6: Δπ may be negative, so the product has a guard.

The arithmetic is float64, although weights and deltas are float32, because 1/v is not a float32 number.
"""

import numpy as np

from pbodl._jit import jit
from pbodl.gaussian import Gaussian, Natural, divide, multiply, natural
from pbodl.kernels.guards import LARGEST, SMALLEST, least_precision


@jit
def quotient(m0, v0, m1, v1, precision_share, mean_share, precision_delta, precision_mean_delta):
    """The message of rows of weights, N(m1, v1)/N(m0, v0): `precision_share` of Δπ and `mean_share` of d, one of each per row.

    MODIFIES: precision_delta, precision_mean_delta.
    """
    for r in range(m0.shape[0]):
        for c in range(m0.shape[1]):
            prior = Gaussian(np.float64(m0[r, c]), np.float64(v0[r, c]))
            posterior = Gaussian(np.float64(m1[r, c]), np.float64(v1[r, c]))
            delta = divide(natural(posterior), natural(prior))
            shift = (posterior.mean - prior.mean) / posterior.variance
            precision = precision_share[r] * delta.precision
            precision_delta[r, c] = precision
            precision_mean_delta[r, c] = precision * prior.mean + mean_share[r] * shift


@jit
def product(m, v, at, v_prior, guard, first, precision_delta, precision_mean_delta):
    """Multiply messages into weights, message row n into row at[n] unless that is -1; returns how many weights the guard changed.

    Beside `guard`, a weight keeps the least precision that `guards` allows under its prior's variance v_prior[n, c]; where the
    numbers would not stay finite, it is unchanged. MODIFIES: m, v.
    """
    guarded = 0
    for n in range(len(at)):
        r = at[n]
        if r < 0:
            continue
        for c in range(m.shape[1]):
            least = least_precision(np.float64(v_prior[n, c]))
            delta = Natural(np.float64(precision_delta[n, first + c]), np.float64(precision_mean_delta[n, first + c]))
            mean, prior = np.float64(m[r, c]), natural(Gaussian(np.float64(m[r, c]), np.float64(v[r, c])))
            wanted, lowest = multiply(prior, delta).precision, max(guard.kept * prior.precision, least)
            precision = wanted if wanted >= lowest else lowest
            # A step from m, so that a weight whose precision the guard raised still takes it.
            step, limit = (delta.precision_mean - delta.precision * mean) / precision, guard.farthest * np.sqrt(np.float64(v[r, c]))
            m_new = mean + min(max(step, -limit), limit)
            fits = np.isfinite(step) and abs(m_new) < LARGEST and precision < 1.0 / SMALLEST
            guarded += int(not (fits and wanted >= lowest and abs(step) <= limit))
            if fits:
                m[r, c] = m_new
                v[r, c] = 1.0 / precision
    return guarded


@jit
def add_rows(at, source, target):
    """target[at[n]] += source[n]. MODIFIES: target."""
    for n in range(len(at)):
        for c in range(source.shape[1]):
            target[at[n], c] += source[n, c]
