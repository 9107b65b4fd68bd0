"""Statistics that may be looked at any time: a confidence sequence for a mean, and a test of the shares of a split.

An ordinary 95 % interval is right if it is looked at once. Who looks every hour, and stops when it excludes 0, is wrong far more
often. A *confidence sequence* holds at all times at once: with probability 95 % no interval of the sequence, however long the test
goes on, misses the truth.

For the mean of n terms with standard deviation s the interval is (Robbins' normal mixture; asymptotic, Waudby-Smith et al. 2024)

    mean ± s √( 2 (n ρ² + 1)/(n² ρ²) · log( √(n ρ² + 1)/α ) )

ρ decides when it is tightest; here at n = `PEAK` terms. Terms of one unit (a user) depend on each other: s² n is then the sum of
the squared sums of the units.

The shares of a split are tested by a Bayes factor: the counts of the arms under shares drawn from a Dirichlet distribution around
the planned ones, against the planned ones (Lindon and Malek 2022). Under the planned shares its expectation is 1 at any time, so
that it exceeds 1/α at any time with probability α at most.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05
PEAK = 10_000.0  # terms at which a confidence sequence is tightest
CONCENTRATION = 10_000.0  # of the Dirichlet distribution: deviations of a percent are what one looks for


def half_width(terms: float, deviation: float, alpha: float = ALPHA, peak: float = PEAK) -> float:
    """Half of the width of a confidence sequence after so many terms."""
    if terms < 2:
        return math.inf
    rho = (-2.0 * math.log(alpha) + math.log(-2.0 * math.log(alpha) + 1.0)) / peak  # ρ² that is best at the peak
    spread = terms * rho + 1.0
    return deviation * math.sqrt(2.0 * spread / (terms**2 * rho) * math.log(math.sqrt(spread) / alpha))


def clustered_deviation(terms: NDArray[np.float64], unit: NDArray[np.int64]) -> float:
    """The standard deviation s of terms, such that s²/n is the variance of their mean where terms of one unit are dependent."""
    if len(terms) < 2:
        return math.inf
    sums = np.bincount(unit, terms - terms.mean())
    units = len(sums)
    return math.sqrt(float((sums**2).sum()) / len(terms) * units / max(units - 1, 1))


def shares_factor(counts: Sequence[int], shares: Sequence[float], concentration: float = CONCENTRATION) -> float:
    """The logarithm of the Bayes factor against the planned shares."""
    prior, total = [concentration * share for share in shares], sum(counts)
    drawn = math.lgamma(concentration) - math.lgamma(concentration + total)
    drawn += sum(math.lgamma(a + n) - math.lgamma(a) for a, n in zip(prior, counts, strict=True))
    return drawn - sum(n * math.log(share) for n, share in zip(counts, shares, strict=True))
