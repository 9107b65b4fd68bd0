"""Weights as whole numbers: a variance is one of 64 levels per power of two, a mean a multiple of a step that suits the variance.

    level   L = round(64 log2 variance)          variance = 2^(L/64)           within 0.55 %
    step    s(L) = 2^(floor(L/128) - 6), at least 2^-20                         between 1/128 and 1/64 of the standard deviation
    point   P = round(mean / s(L))               mean = P s(L), exactly         within half a step

What a server holds is always on this lattice, and follows from the trainer's weights of that moment alone: the errors of many
publications do not add up. A change is a difference of levels and of points, which are small whole numbers.
"""

import numpy as np
from numpy.typing import NDArray

LEVELS = 64
FINEST = -20  # a mean up to 16 then has at most 24 bits, which a float32 holds exactly
MOST_POINTS = 1 << 24
SMALLEST, LARGEST = -120 * LEVELS, 120 * LEVELS


def levels(variance: NDArray) -> NDArray[np.int32]:
    """The level of each variance."""
    tiny = np.float32(2.0**-120)
    exact = np.log2(np.maximum(variance, tiny).astype(np.float64)) * LEVELS
    return np.clip(np.rint(exact), SMALLEST, LARGEST).astype(np.int32)


def points(mean: NDArray, level: NDArray[np.int32]) -> NDArray[np.int32]:
    """The point of each mean, at the step of its level."""
    exact = np.ldexp(mean.astype(np.float64), -_exponents(level))
    return np.clip(np.rint(exact), -MOST_POINTS, MOST_POINTS).astype(np.int32)


def variances(level: NDArray[np.int32]) -> NDArray[np.float32]:
    """The variance of each level.

    >>> variances(levels(np.array([1.0, 0.25, 0.001], np.float32))).round(3)
    array([1.   , 0.25 , 0.001], dtype=float32)
    """
    return TABLE[np.asarray(level) - SMALLEST]


def means(point: NDArray[np.int32], level: NDArray[np.int32]) -> NDArray[np.float32]:
    """The mean of each point at its level."""
    return np.ldexp(point.astype(np.float64), _exponents(level)).astype(np.float32)


def moved_points(point: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]) -> NDArray[np.int32]:
    """The points nearest to the same means at other levels: what a reader expects before it knows the difference."""
    return points(means(point, before), after)


def _exponents(level: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.maximum((np.asarray(level) >> 7) - 6, FINEST)


# Of all levels, so that every machine takes the same numbers: 2^(n/64) for n in 0..63, times powers of two, rounded once.
TABLE = np.ldexp(
    np.float64(2.0) ** (np.arange(SMALLEST, LARGEST + 1) % LEVELS / LEVELS), np.arange(SMALLEST, LARGEST + 1) // LEVELS
).astype(np.float32)
