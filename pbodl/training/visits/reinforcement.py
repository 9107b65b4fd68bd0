"""Learning more from the same data (PBODL §4.5): several passes over a minibatch, or expectation propagation.

The other way of §4.5, several sets of non-clicks, is in `data.sampling`; what is checked of its key is here.

The paper's warning holds: all of these learn faster from abnormal data too (docs/lab/parallel.md has figures).

`model.learn_with(EP())` or `model.learn_with(Passes())` makes `model.learn` work minibatch by minibatch; the probabilities that it
returns are those of the first visit to each row.
"""

import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.gaussian import Gaussian
from pbodl.kernels.arguments import (
    Features,
    LabelledSamples,
    Network,
    NetworkWeights,
    Outputs,
    most_features,
    outputs_between,
    rows_counted,
    samples_between,
)
from pbodl.kernels.ep import Cavity, Sites, ep_pass
from pbodl.kernels.network import learn_batch
from pbodl.models.learning import Learning

MOST_PASSES = 100
MOST_SETS = 16


class Passes(Learning):
    """Several ADF passes over each minibatch of `rows` rows.

    Each pass raises the likelihood to the power 1/passes, so that all passes together count a row once. `paper=True` counts it in
    every pass, as the paper does: faster, but overconfident.
    """

    def __init__(self, passes: int = 2, rows: int = 256, paper: bool = False) -> None:
        self.passes, self.rows = _at_least_one("passes", passes), _at_least_one("rows", rows)
        self.power = np.float32(1.0 if paper else 1.0 / passes)

    def learn(self, weights: NetworkWeights, network: Network, samples: LabelledSamples, outputs: Outputs) -> None:
        for start in range(0, len(samples.clicks), self.rows):
            stop = min(start + self.rows, len(samples.clicks))
            part = samples_between(samples, start, stop)
            part = part._replace(powers=part.powers * self.power)
            learn_batch(weights, network, part, outputs_between(outputs, start, stop))
            for _ in range(1, self.passes):
                learn_batch(weights, network, part, _ignored(outputs, stop - start))
            counts = np.repeat(rows_counted(part), np.diff(part.features.indptr))
            at, times = np.unique(part.features.rows[counts], return_counts=True)
            weights.rows.count[at] -= (times * (self.passes - 1)).astype(np.uint32)


class EP(Learning):
    """Expectation propagation over each minibatch of `rows` rows.

    It ends when a pass moves no mean by more than `tolerance` standard deviations, or after `passes` passes. `damping` is the share
    of the way that a site moves at each visit after the first.
    """

    def __init__(self, passes: int = 5, rows: int = 256, damping: float = 0.5, tolerance: float = 0.01) -> None:
        self.passes, self.rows = _at_least_one("passes", passes), _at_least_one("rows", rows)
        if not 0.0 < damping <= 1.0:
            raise InputError(f"damping is {damping}; it must be above 0 and at most 1")
        self.damping, self.tolerance = damping, tolerance
        self.passes_made = self.minibatches = self.converged = 0

    def learn(self, weights: NetworkWeights, network: Network, samples: LabelledSamples, outputs: Outputs) -> None:
        for start in range(0, len(samples.clicks), self.rows):
            stop = min(start + self.rows, len(samples.clicks))
            part = samples_between(samples, start, stop)
            sites, cavity = _sites(weights, network.shape.sizes, part.features)
            ep_pass(True, 1.0, sites, cavity, weights, network, part, outputs_between(outputs, start, stop))
            at = np.unique(part.features.rows)
            step, made = np.inf, 1
            while made < self.passes and step > self.tolerance:
                before = _flat(weights, at).mean
                ep_pass(False, self.damping, sites, cavity, weights, network, part, _ignored(outputs, stop - start))
                after = _flat(weights, at)
                step = float((np.abs(after.mean - before) / np.sqrt(after.variance)).max())
                made += 1
            self.passes_made += made
            self.minibatches += 1
            self.converged += int(step <= self.tolerance)


def check_sets(sets: int, rate: float | str) -> None:
    """InputError if the key `sets` is out of range, or has nothing to do: sets differ in the non-clicks that are left out."""
    if not 1 <= sets <= MOST_SETS:
        raise InputError(f"[training] sets is {sets}; it must be a whole number from 1 to {MOST_SETS}")
    if sets > 1 and rate == 1.0:
        raise InputError(
            f"[training] sets is {sets}, and negative_rate is 1: all sets would have the same rows. Give a negative_rate below 1, "
            'such as 0.3 or "auto", or leave out sets'
        )


def reinforced(passes: int, ep: bool, power: str, sets: int = 1) -> Learning | None:
    """How a model learns with these keys of [training]; None if they are the usual ones."""
    if power not in ("once", "paper"):
        raise InputError(f"[training] power is {power!r}; allowed are 'once' and 'paper'")
    if not 1 <= passes <= MOST_PASSES:
        raise InputError(f"[training] passes is {passes}; it must be a whole number from 1 to {MOST_PASSES}")
    if passes == 1 and ep:
        raise InputError("[training] ep is about several visits; give passes, such as 5, or leave it out")
    if passes == 1 and sets == 1 and power == "paper":
        raise InputError("[training] power is about several visits or sets; give passes, such as 5, or sets, or leave it out")
    if ep and power == "paper":
        raise InputError("[training] power = 'paper' is not for ep, in which a row counts once by construction; remove one of them")
    if passes == 1:
        return None
    return EP(passes) if ep else Passes(passes, paper=power == "paper")


def refuse_reinforced(learning: Learning | None, how: str) -> None:
    """InputError if a model that is to learn otherwise (`how`) was set to visit rows several times."""
    if isinstance(learning, EP | Passes):
        raise InputError(f"[training] passes: several visits to a minibatch are made by one worker; leave out passes, or {how}")


def _ignored(outputs: Outputs, n: int) -> Outputs:
    """Room for predictions that nobody reads: those of later visits."""
    return Outputs(np.empty(n), np.empty(n), outputs.rejected)


def _flat(weights: NetworkWeights, at: NDArray[np.int32]) -> Gaussian:
    """All weights that a minibatch with the rows `at` can change."""
    rows, dense = weights
    linear = at if len(rows.linear_mean) else at[:0]
    parts = [
        (rows.mean[at], rows.variance[at]),
        (rows.linear_mean[linear], rows.linear_variance[linear]),
        (dense.mean, dense.variance),
    ]
    return Gaussian(*(np.concatenate([array.ravel() for array in arrays]) for arrays in zip(*parts, strict=True)))


def _sites(weights: NetworkWeights, sizes: NDArray[np.int64], features: Features) -> tuple[Sites, Cavity]:
    """Sites of 1 for a minibatch, and room for one sample's cavity."""
    samples, most, dim = len(features.indptr) - 1, most_features(features.indptr), weights.rows.mean.shape[1]
    entries, n = len(features.rows), int(((sizes[:-1] + 1) * sizes[1:]).sum())
    sites = Sites(np.zeros((entries, 2, dim)), np.zeros((entries, 2, 1)), np.zeros((samples, 2, n)))
    f32, layers = np.float32, weights.dense.mean.shape
    return sites, Cavity(np.empty((2, most, dim), f32), np.empty((2, most, 1), f32), np.empty((2, *layers), f32))


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{name} is {value}; it must be a whole number of at least 1")
    return value
