"""Is a model's uncertainty about an ad right, and is it larger for new ads? The ad world knows the truth.

    python -m benchmarks.ab_uncertainty

A model learns the burn-in, then predicts all candidates of the next day's requests. On the probit scale, m/√(1+v), its error is
known. A ranking depends on the error within a request, so the part that all candidates of a request share is removed. The error is
compared with the variance that exploration uses, (v - least v of the request)/(1+v).
"""

import argparse
import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pbodl.experiments.ab.ab_tuning import NEVER, SEEDS
from pbodl.experiments.ab.ad_features import AdFeatures, batch_of
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.arm import ArmAtWork, burn_in, with_candidates
from pbodl.experiments.ab.lineup import Arm

DAYS, AFTER, REQUESTS_PER_DAY, ADS = 3, 7, 216_000, 60  # as in the experiment
EVERY = 100  # one of so many of the next day's requests is used


class Found(NamedTuple):
    """Columns with one value per candidate."""

    squared: NDArray[np.float64]  # error within its request
    excess: NDArray[np.float64]  # variance for exploration
    new: NDArray[np.bool_]  # the ad was never shown
    spread: NDArray[np.float64]  # squared, of the truth within its request
    predicted: NDArray[np.float64]
    truth: NDArray[np.float64]

    def calibration(self, chosen: NDArray[np.bool_]) -> float:
        return float(self.predicted[chosen].sum() / self.truth[chosen].sum())


def find(arm: Arm, seed: int) -> Found:
    """Predict the candidates of the day after the burn-in."""
    world = AdWorld(seed, DAYS + AFTER, REQUESTS_PER_DAY, ADS)
    features = AdFeatures(world)
    log = burn_in(world, features, DAYS)
    model = ArmAtWork(arm, world, features, log, "ecpm").model
    requests, candidates = with_candidates(world, world.requests(DAYS).part(slice(None, None, EVERY)))
    counts = np.diff(candidates.indptr)
    rows = features.with_ads(np.repeat(features.of_requests(requests), counts, axis=0), candidates.ad)
    predicted = model.predict(batch_of(rows))
    truth = norm.ppf(candidates.probability)

    def within(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values - np.repeat(np.add.reduceat(values, candidates.indptr[:-1]) / counts, counts)

    error = within(truth - predicted.mean / np.sqrt(1.0 + predicted.variance))
    least = np.repeat(np.minimum.reduceat(predicted.variance, candidates.indptr[:-1]), counts)
    excess = (predicted.variance - least) / (1.0 + predicted.variance)
    new = np.isinf(log.first_shown[candidates.ad])
    return Found(error**2, excess, new, within(truth) ** 2, predicted.ctr, candidates.probability)


def main() -> None:
    """Print errors and variances of old and new ads, by quarters of the variance, and whether new ads' CTR is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS), help="seeds of the worlds")
    seeds = parser.parse_args().seeds
    for name, kind, changes in (("PairFM", "pair-fm", ()), ("FM-MLP", "fm-mlp", ()), ("FFM-MLP", "ffm-mlp", ())):
        worlds = [find(Arm(name, kind, NEVER, changes=changes), seed) for seed in seeds]
        squared, excess, new, spread = (np.concatenate(column) for column in list(zip(*worlds, strict=True))[:4])
        print(f"{name}: variance of the truth within a request {spread.mean():.3f}")
        for which, chosen in (("ads seen in the burn-in", ~new), ("ads never shown yet", new)):
            print(f"  {which}: squared error {squared[chosen].mean():.3f}, variance {excess[chosen].mean():.3f}")
        for low, high in itertools.pairwise(np.quantile(excess, [0.0, 0.25, 0.5, 0.75, 1.0])):
            chosen = (excess >= low) & (excess <= high)
            print(f"  variance {low:.3f} to {high:.3f}: squared error {squared[chosen].mean():.3f}")
        for seed, world in zip(seeds, worlds, strict=True):
            old, never = world.calibration(~world.new), world.calibration(world.new)
            print(f"  world {seed}, predicted over true CTR: {old:.3f} of ads seen, {never:.3f} of ads never shown")


if __name__ == "__main__":
    main()
