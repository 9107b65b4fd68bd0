"""Moments by drawing: definitions only, no formula for any moment."""

import numpy as np
from numpy.typing import NDArray

DRAWS = 200_000
FAR = 5.0  # standard errors: a right formula is this far off once in two million times


def gaussians(mean: NDArray, variance: NDArray, seed: int, draws: int = DRAWS) -> NDArray[np.float64]:
    """Draws of independent Gaussians, of shape (draws, *mean.shape)."""
    rng = np.random.default_rng(seed)
    return mean + np.sqrt(variance) * rng.standard_normal((draws, *np.shape(mean)))


def deviations(draws: NDArray, mean: NDArray, variance: NDArray) -> tuple[NDArray, NDArray]:
    """How many standard errors the claimed mean and variance are away from those of the draws, column by column."""
    n = len(draws)
    centred = draws - draws.mean(axis=0)
    second, fourth = (centred**2).mean(axis=0), (centred**4).mean(axis=0)
    of_mean = (mean - draws.mean(axis=0)) / np.sqrt(second / n)
    of_variance = (variance - second) / np.sqrt((fourth - second**2) / n)
    return np.abs(of_mean), np.abs(of_variance)


def pair_sums(z: NDArray) -> NDArray:
    """Σ_{i<j} z_i z_j over the features of z (draws, features, K) (PBODL eq. 19)."""
    total = np.zeros((z.shape[0], z.shape[2]))
    for i in range(z.shape[1]):
        for j in range(i + 1, z.shape[1]):
            total += z[:, i] * z[:, j]
    return total


def crossed_pair_sums(z: NDArray, groups: list[int]) -> NDArray:
    """Σ_{i<j} z_{i,f_j} z_{j,f_i} for z (draws, features, groups, K) (PBODL eq. 22)."""
    total = np.zeros((z.shape[0], z.shape[3]))
    for i in range(z.shape[1]):
        for j in range(i + 1, z.shape[1]):
            total += z[:, i, groups[j]] * z[:, j, groups[i]]
    return total
