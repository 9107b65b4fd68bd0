"""`python -m benchmarks.ab_selection`: what an arm of the online experiment believes of ads that it shows, and of the others.

PairFM runs alone in one world of the market of Tables 3 and 4. Every evening it predicts all candidates of some requests of the
next day (on the last day, of the same one). Errors are those of the mean of the latent; the truth is known.
"""

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pbodl.experiments.ab.ab_arms import IMPRESSIONS, _apart, arm_of
from pbodl.experiments.ab.ad_features import AdFeatures, batch_of
from pbodl.experiments.ab.ad_market import DAY, MARKETS
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.arm import ArmAtWork, best_indices, burn_in, with_candidates
from pbodl.experiments.ab.lineup import TABLES

BURN_IN, ASKED = 3, 1500


def evening(work: ArmAtWork, day: int, own: NDArray[np.bool_], shown: NDArray[np.int64]) -> None:
    """Print errors and deviations by kind of ad; `shown` is how often the arm has shown each."""
    world, features = work.world, work.features
    requests = world.requests(day)
    requests = requests.part(own[requests.user])
    requests, candidates = with_candidates(world, requests.part(slice(0, None, max(1, len(requests) // ASKED))))
    counts, ads, indptr = np.diff(candidates.indptr), candidates.ad, candidates.indptr
    rows = features.with_ads(np.repeat(features.of_requests(requests), counts, axis=0), ads)
    predicted, truth = work.model.predict(batch_of(rows)), norm.ppf(candidates.probability)
    age = np.repeat(requests.time, counts) - world.ads.start[ads]
    kinds = {
        "all": age > -1.0,
        "new (less than a day)": age < DAY,
        "older, never shown": (age >= DAY) & (shown[ads] == 0),
        "shown 1000 times": shown[ads] >= 1000,
    }
    for name, which in kinds.items():
        if which.any():
            error = predicted.mean[which] - truth[which]
            print(
                f"  {name}: {len(np.unique(ads[which]))} ads, CTR {candidates.probability[which].mean():.1%}, predicted "
                f"{predicted.ctr[which].mean():.1%}; error {error.mean():+.2f}, rms {np.sqrt(np.mean(error**2)):.2f}, "
                f"predicted deviation {np.sqrt(predicted.variance[which].mean()):.2f}"
            )
    bids, top, best = world.ads.bid[ads].astype(np.float64), *np.empty((2, len(requests)), np.int64)
    best_indices(indptr, bids * predicted.ctr, top)
    best_indices(indptr, bids * candidates.probability, best)
    print(
        f"  best ads: CTR {candidates.probability[best].mean():.1%}, predicted {predicted.ctr[best].mean():.1%}, shown "
        f"{np.median(shown[ads[best]]):.0f} times in the median; {len(np.unique(ads[top]))} ads are the top of a request"
    )
    prior, field = work.model.row_prior, [field.name for field in work.model.schema.fields].index("ad")
    print(
        f"  prior deviations of an ad: vectors {np.sqrt(prior.variance[field].mean()):.3f}, linear weight "
        f"{np.sqrt(prior.linear_variance[field]):.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ab_selection", description=__doc__)
    parser.add_argument("--seed", type=int, default=1001, help="the world")
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--arm", type=int, default=5, help="number in Tables 3 and 4: 5 is PairFM greedy, 6 Thompson sampling")
    parser.add_argument("--spread", type=float, default=1.0, help="share of the deviation that Thompson sampling draws with")
    options = parser.parse_args()
    arms, size = len(TABLES.arms), MARKETS["standard"].ads
    world = AdWorld(options.seed, BURN_IN + options.days, IMPRESSIONS * size * arms, size, "standard")
    features = AdFeatures(world)
    owner = arm_of(np.arange(len(world.users.age)), TABLES.name, arms)
    work = ArmAtWork(
        TABLES.arms[options.arm]._replace(spread=options.spread), world, features, burn_in(world, features, BURN_IN), "ecpm"
    )
    shown, last = np.zeros(len(world.ads.bid), np.int64), BURN_IN + options.days - 1
    total = np.zeros(2)
    for day in range(BURN_IN, last + 1):
        value = best = 0.0
        for _, answered in _apart({options.arm: work}, world.requests(day), owner):
            np.add.at(shown, answered.ad, 1)
            value, best = value + answered.value.sum(), best + answered.best.sum()
        total += value, best
        print(f"day {day - BURN_IN + 1}: regret {1 - value / best:.1%}")
        evening(work, min(day + 1, last), owner == options.arm, shown)
    print(f"all days: regret {1 - total[0] / total[1]:.1%}")


if __name__ == "__main__":
    main()
