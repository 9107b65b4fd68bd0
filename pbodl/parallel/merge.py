"""How much of its message a worker sends, so that the product of all messages does not overshoot.

In a mean-field posterior all workers correct the *same* residual through the *same* frequent weights. The paper's plain product
("add": natural parameters add up) therefore overshoots by up to the number of workers, and diverges with many of them. A rare row,
which only one worker touches, should get its full update. The rule "shared" estimates how many workers share the correction of each
row,
    C = 1 + (W-1) λ/(λ+τ),    λ = max(n-1, B f),    τ = 8 M/s
from the row's samples n among the B of the minibatch and its frequency f so far; M is the number of features per sample, s the
predictive variance of z_L. A feature contributes about s/M of it, so λ/(λ+τ) estimates the share of a residual that one worker
corrects by itself: C runs from 1 for rare rows to W, the number of workers, for frequent ones. Then the worker
    learns the row to the power √C, as if others had brought it the same evidence (`kernels.row_powers`),
    and sends Δπ/√C, and d/C of the mean's step d; for the dense weights it sends Δπ and d/W.
The root and the factor 8 are empirical: docs/lab/parallel.md has the measurements.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.training.visits.worker_rules import DEFAULT, MERGES, check_merge

__all__ = ["DEFAULT", "MERGES", "Shares", "all_of_it", "check_merge", "fair_shares"]
SLOWNESS = 8.0
SMALLEST_VARIANCE = 1e-9


class Shares(NamedTuple):
    """How a worker learns each row, and which share of the result it sends."""

    power: NDArray[np.float32]  # of the likelihood, while learning
    precision: NDArray[np.float64]  # the share of Δπ to send
    mean: NDArray[np.float64]  # the share of d to send
    dense_mean: float


def all_of_it(rows: int) -> Shares:
    """Shares that send the whole message: the paper's rule, and that of a lone worker."""
    one = np.ones(rows)
    return Shares(one.astype(np.float32), one, one, 1.0)


def fair_shares(
    workers: int, rows: int, touches: NDArray[np.int32], frequency: NDArray[np.float64], features: float, variance: float
) -> Shares:
    """The shares of the rule for a minibatch of `rows` rows; `touches` are n, `frequency` f, `features` M, `variance` s.

    >>> rare_and_frequent = np.array([1, 200], dtype=np.int32), np.array([1e-6, 0.8])
    >>> (1.0 / fair_shares(16, 256, *rare_and_frequent, features=22.0, variance=0.12).mean).round(2).tolist()
    [1.0, 2.84]
    """
    often = np.maximum(touches - 1.0, rows * frequency)
    slowness = SLOWNESS * features / max(variance, SMALLEST_VARIANCE)
    competitors = 1.0 + (workers - 1.0) * often / (often + slowness)
    root = np.sqrt(competitors)
    return Shares(root.astype(np.float32), 1.0 / root, 1.0 / competitors, 1.0 / workers)
