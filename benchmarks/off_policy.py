"""How often the intervals of off-policy estimates hold the truth, in logs of the simulated ad market.

    python -m benchmarks.off_policy --logs 200 --first-seed 1000

Each log is a world of its own. One model learns half of the random impressions of the first day, and decides about the requests of
the second day by a policy that explores. Another model has learned all of them, and is evaluated with greedy ranking. What it
would have earned on these requests is known, since the market knows the probability of every candidate.
"""

import argparse
import itertools
import json

import numpy as np
from numpy.typing import NDArray

import pbodl
from pbodl.data.synthetic.world import rng
from pbodl.experiments.ab.ad_features import SCHEMA, AdFeatures, batch_of
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.arm import best_indices, burn_in, with_candidates
from pbodl.experiments.decisions.off_policy import ESTIMATORS, LoggedRows, effective_size
from pbodl.serving.ranking.policies import RankPolicy, rank
from pbodl.serving.ranking.propensities import counted_in_draws
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import Encoded


def one_log(seed: int, requests_per_day: int, ads: int, epsilon: float, draws: int) -> dict[str, float]:
    """The truth, the estimates, and whether their intervals hold the truth; `draws` above 0: Thompson sampling instead of ε."""
    world = AdWorld(seed, 2, requests_per_day, ads)
    features = AdFeatures(world)
    past = burn_in(world, features, 1).feedback
    logging, new = pbodl.PairFM(SCHEMA, dim=2), pbodl.PairFM(SCHEMA, dim=2)
    logging.learn(past.rows(slice(0, len(past.click) // 2)).batch())
    new.learn(past.batch())
    requests, candidates = with_candidates(world, world.requests(1))
    indptr, luck, n = candidates.indptr, rng(seed, "off-policy"), len(requests)
    counts = np.diff(indptr)
    rows = batch_of(features.with_ads(np.repeat(features.of_requests(requests), counts, axis=0), candidates.ad))
    best, target = np.empty(n, np.int64), np.empty(n, np.int64)
    predicted = new.predict(rows).ctr
    best_indices(indptr, predicted, target)
    if draws:  # decide and count the propensity as the server does
        shown, propensity = shown_by_draws(logging, rows.keys.reshape(len(rows), -1), indptr, draws, luck)
    else:
        best_indices(indptr, logging.predict(rows).ctr, best)
        at_random = indptr[:-1] + (luck.random(n) * counts).astype(np.int64)
        shown = np.where(luck.random(n) < epsilon, at_random, best)
        propensity = (1.0 - epsilon) * (shown == best) + epsilon / counts
    click = (requests.luck < candidates.probability[shown]).astype(np.float64)
    chance = (shown == target).astype(np.float64)
    logged = LoggedRows(
        click, propensity, chance, predicted[shown], predicted[target], np.arange(n), np.zeros(n, np.int64)
    )  # fmt: skip
    truth = float(candidates.probability[target].mean())
    found = {"truth": truth, "effective": effective_size(logged.weight) / n, "logged": float(click.mean())}
    for name, estimator in ESTIMATORS.items():
        one = estimator(logged)
        found |= {name: one.value, f"{name}_error": one.error, f"{name}_holds": bool(one.low <= truth <= one.high)}
    return found


def shown_by_draws(
    model: pbodl.PairFM, keys: NDArray[np.uint64], indptr: NDArray[np.int64], draws: int, luck: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What Thompson sampling shows for every request, and with which propensity, counted in so many draws."""
    predictor = Predictor.of(model)
    encoder, shown, propensity = predictor.encoder, np.empty(len(indptr) - 1, np.int64), np.empty(len(indptr) - 1)
    for i, (first, last) in enumerate(itertools.pairwise(indptr.tolist())):
        common = np.ascontiguousarray(keys[first : first + 1, encoder.shared_fields])
        shared = Encoded(common, np.ones(common.shape, np.float32), encoder.shared_fields, None, True)
        own = encoder.from_keys(np.ascontiguousarray(keys[first:last, encoder.own_fields]))
        policy = RankPolicy("thompson", seed=int(luck.integers(2**62)))
        decided = rank(predictor, shared, own, None, 1, policy)
        count = counted_in_draws(predictor, shared, own, decided.scores, None, 1, policy, draws, luck, decided.placed)
        count.step()
        shown[i], propensity[i] = first + decided.placed[0], count.propensity()[0][0]
    return shown, propensity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=200, help="number of worlds")
    parser.add_argument("--first-seed", type=int, default=1000, help="seed of the first world")
    parser.add_argument("--requests", type=int, default=3000, help="requests of a log")
    parser.add_argument("--ads", type=int, default=20, help="ads on the market at a time")
    parser.add_argument("--epsilon", type=float, default=0.5, help="share of random ads in the log")
    parser.add_argument("--draws", type=int, default=0, help="log by Thompson sampling, with so many draws for the propensity")
    asked = parser.parse_args()
    lines = [
        one_log(seed, asked.requests, asked.ads, asked.epsilon, asked.draws)
        for seed in range(asked.first_seed, asked.first_seed + asked.logs)
    ]
    summary: dict[str, object] = {"logs": len(lines), **vars(asked)}
    summary |= {name: float(np.mean([line[name] for line in lines])) for name in ("truth", "logged", "effective")}
    for name in ESTIMATORS:
        errors = np.array([line[name] - line["truth"] for line in lines])
        summary[name] = {
            "holds": float(np.mean([line[f"{name}_holds"] for line in lines])),
            "mean_error": float(errors.mean()),
            "deviation": float(errors.std()),
            "mean_stated_error": float(np.mean([line[f"{name}_error"] for line in lines])),
        }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
