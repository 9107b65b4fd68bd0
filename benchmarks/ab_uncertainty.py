"""Is a model's uncertainty about an ad right, and is it larger for new ads? With the truth of the ad world at hand.

    python -m benchmarks.ab_uncertainty

A model learns the burn-in, then predicts all candidates of the next day's requests. On the probit scale, m/√(1+v), its error is
known. What matters to a ranking is the error within a request: what all candidates of a request share is taken out of it. Beside it
stands the variance that exploration works with, (v - least v of the request)/(1+v).
"""

import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pbodl.experiments.ab_arm import ArmAtWork, burn_in, with_candidates
from pbodl.experiments.ab_features import Features, batch_of
from pbodl.experiments.ab_lineup import Arm
from pbodl.experiments.ab_tuning import SEEDS
from pbodl.experiments.ab_world import World

DAYS, REQUESTS_PER_DAY, ADS = 3, 40_000, 300
EVERY = 20  # of the next day's requests, one is looked at


def errors(kind: str, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Of every candidate: squared error within its request, variance for exploration, whether the ad is new, truth's spread."""
    world = World(seed, DAYS + 1, REQUESTS_PER_DAY, ADS)
    features = Features(world)
    log = burn_in(world, features, DAYS)
    model = ArmAtWork(Arm(kind, kind, 1e9), world, features, log, "ecpm").model
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
    return error**2, excess, np.isinf(log.first_shown[candidates.ad]), within(truth) ** 2


def main() -> None:
    """Print errors and variances of old and new ads, and by quarters of the variance."""
    for kind in ("fm-mlp", "ffm-mlp"):
        found = [errors(kind, seed) for seed in SEEDS]
        squared, excess, new, spread = (np.concatenate(column) for column in zip(*found, strict=True))
        print(f"{kind}: variance of the truth within a request {spread.mean():.3f}")
        for name, chosen in (("ads seen in the burn-in", ~new), ("ads never shown yet", new)):
            print(f"  {name}: squared error {squared[chosen].mean():.3f}, variance {excess[chosen].mean():.3f}")
        edges = np.quantile(excess, [0.0, 0.25, 0.5, 0.75, 1.0])
        for low, high in itertools.pairwise(edges):
            chosen = (excess >= low) & (excess <= high)
            print(f"  variance {low:.3f} to {high:.3f}: squared error {squared[chosen].mean():.3f}")


if __name__ == "__main__":
    main()
