"""Learning more from the same data (PBODL §4.5): several passes over a minibatch, expectation propagation, sets of negatives.

The paper's warning holds: all of these learn faster from abnormal data too (docs/lab/parallel.md has figures).

`Passes` and `EP` are kernels: `model.kernel = EP()` makes `model.learn` use them, minibatch by minibatch; the probabilities that it
returns are those of the first visit to each row.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import concat
from pbodl.data.sampling import kept_rows, selected
from pbodl.errors import InputError
from pbodl.gaussian import Gaussian
from pbodl.kernels.ep import Cavity, Sites, ep_pass
from pbodl.kernels.layers.embedding import Features, Rows
from pbodl.kernels.network import Dense, learn_batch, most_features


class Passes:
    """Several ADF passes over each minibatch of `rows` rows.

    Each pass raises the likelihood to the power 1/passes, so that all of them count a row once; `paper=True` counts it in every
    pass, as the paper does: faster, and too sure of itself.
    """

    def __init__(self, passes: int = 2, rows: int = 256, paper: bool = False) -> None:
        self.passes, self.rows = _at_least_one("passes", passes), _at_least_one("rows", rows)
        self.power = np.float32(1.0 if paper else 1.0 / passes)

    def __call__(
        self, weights: Any, dense: Any, shape: Any, features: Any, clicks: Any, powers: Any, clock: Any, prior: Any,
        forgetting: Any, cap: Any, mean: Any, variance: Any, rejected: Any,
    ) -> None:  # fmt: skip
        """As `network.learn_batch`."""
        for start in range(0, len(clicks), self.rows):
            part, here = _part(features, start, start + self.rows)
            own = clicks[here], powers[here] * self.power, clock[here], prior
            learn_batch(weights, dense, shape, part, *own, forgetting, cap, mean[here], variance[here], rejected)
            ignored = np.empty((2, len(own[0])))
            for _ in range(1, self.passes):
                learn_batch(weights, dense, shape, part, *own, forgetting, cap, ignored[0], ignored[1], rejected)
            at, times = np.unique(part.rows, return_counts=True)
            weights.count[at] -= (times * (self.passes - 1)).astype(np.uint32)


class EP:
    """Expectation propagation over each minibatch of `rows` rows.

    It ends when a pass moves no mean by more than `tolerance` standard deviations, or after `passes` passes; `damping` is the share
    of the way that a site goes at each visit after the first.
    """

    def __init__(self, passes: int = 5, rows: int = 256, damping: float = 0.5, tolerance: float = 0.01) -> None:
        self.passes, self.rows = _at_least_one("passes", passes), _at_least_one("rows", rows)
        if not 0.0 < damping <= 1.0:
            raise InputError(f"damping is {damping}; it must be above 0 and at most 1")
        self.damping, self.tolerance = damping, tolerance
        self.passes_made = self.minibatches = self.converged = 0

    def __call__(
        self, weights: Any, dense: Any, shape: Any, features: Any, clicks: Any, powers: Any, clock: Any, prior: Any,
        forgetting: Any, cap: Any, mean: Any, variance: Any, rejected: Any,
    ) -> None:  # fmt: skip
        """As `network.learn_batch`."""
        for start in range(0, len(clicks), self.rows):
            part, here = _part(features, start, start + self.rows)
            sites, cavity = _sites(weights, dense, shape.sizes, part)
            own = clicks[here], powers[here], clock[here], prior
            ep_pass(
                True, 1.0, sites, cavity, weights, dense, shape, part, *own, forgetting, cap, mean[here], variance[here], rejected
            )
            ignored = np.empty((2, len(own[0])))
            at = np.unique(part.rows)
            step, made = np.inf, 1
            while made < self.passes and step > self.tolerance:
                before = _weights(weights, dense, at).mean
                later = part, *own, forgetting, cap, ignored[0], ignored[1], rejected
                ep_pass(False, self.damping, sites, cavity, weights, dense, shape, *later)
                after = _weights(weights, dense, at)
                step = float((np.abs(after.mean - before) / np.sqrt(after.variance)).max())
                made += 1
            self.passes_made += made
            self.minibatches += 1
            self.converged += int(step <= self.tolerance)


def multiple_data(batch: Batch, position: int, seed: int, rate: float, sets: int, rows: int = 256, paper: bool = False) -> Batch:
    """The rows of `sets` sets of workers: all clicks, and for each set other non-clicks, a share `rate` of them.

    The sets' minibatches of `rows` rows stand in turns, so that workers that take one each learn all sets side by side. Every set
    has the power 1/sets, so that together they count a click once; `paper=True` counts it once per set.
    """
    _at_least_one("sets", sets)
    assert batch.clicks is not None
    chosen = [selected(batch, kept_rows(batch.clicks, position, seed + number, rate)) for number in range(sets)]
    power = np.float32(1.0 if paper else 1.0 / sets)
    chosen = [part._replace(weights=part.weights * power) for part in chosen]
    starts = range(0, max(len(part) for part in chosen), rows)
    return concat([part.rows(start, start + rows) for start in starts for part in chosen if start < len(part)])


def _part(features: Features, start: int, stop: int) -> tuple[Features, slice]:
    """Samples start to stop of a batch's features."""
    ends = features.indptr[start : stop + 1]
    entries = (array[ends[0] : ends[-1]] for array in features[1:])
    return Features(ends - ends[0], *entries), slice(start, stop)


def _weights(weights: Rows, dense: Dense, at: NDArray[np.int32]) -> Gaussian:
    """All weights that a minibatch can change."""
    linear = at if len(weights.linear_mean) else at[:0]
    parts = [
        (weights.mean[at], weights.variance[at]),
        (weights.linear_mean[linear], weights.linear_variance[linear]),
        (dense.mean, dense.variance),
    ]
    return Gaussian(*(np.concatenate([array.ravel() for array in arrays]) for arrays in zip(*parts, strict=True)))


def _sites(weights: Rows, dense: Dense, sizes: NDArray[np.int64], features: Features) -> tuple[Sites, Cavity]:
    """Sites of 1 for a minibatch, and room for one sample's cavity."""
    samples, most, dim = len(features.indptr) - 1, most_features(features.indptr), weights.mean.shape[1]
    entries, n = len(features.rows), int(((sizes[:-1] + 1) * sizes[1:]).sum())
    sites = Sites(np.zeros((entries, 2, dim)), np.zeros((entries, 2, 1)), np.zeros((samples, 2, n)))
    f32 = np.float32
    return sites, Cavity(np.empty((2, most, dim), f32), np.empty((2, most, 1), f32), np.empty((2, *dense.mean.shape), f32))


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{name} is {value}; it must be a whole number of at least 1")
    return value
