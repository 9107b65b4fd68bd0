"""Settings for the models of the online experiment: `python -m pbodl.experiments.ab.ab_tuning` prints how each did.

All kinds are tuned alike, in worlds that the experiment does not use: a model learns the burn-in log and then ranks the candidates
of the next day's requests without further learning. The criterion is the true share of the best. `TRIED` lists the changes to the
current settings (`lineup.TUNED`), which are tried one by one.
"""

import argparse
import json
import time
from typing import Any

import numpy as np

from pbodl.baselines.batch_model import BatchModel
from pbodl.experiments.ab.ad_features import AdFeatures
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.arm import CRITERIA, ArmAtWork, burn_in
from pbodl.experiments.ab.lineup import Arm

SEEDS = (1000, 1001, 1002)
REQUESTS = 2000  # on which a model is evaluated
NEVER = 1e9  # seconds

_NETWORK: tuple[dict[str, Any], ...] = (
    {"hidden": (64, 32)}, {"hidden": (16,)}, {"hidden": ()}, {"dim": 8}, {"dim": 32}, {"initial_spread": 0.03},
    {"prior": {"linear": 0.015, "embedding": 0.1, "dense": 0.05}}, {"prior": {"linear": 0.015, "embedding": 0.4, "dense": 0.05}},
    {"shortcut": True}, {"adapt_prior": True},
)  # fmt: skip
TRIED: dict[str, tuple[dict[str, Any], ...]] = {
    "fm-batch": (
        {"learning_rate": 0.03}, {"learning_rate": 0.1}, {"l2": 0.002}, {"l2": 0.008}, {"dim": 8}, {"dim": 32},
        {"initial_spread": 0.03}, {"initial_spread": 0.1}, {"optimizer": "adam", "learning_rate": 0.001}, {"batch_size": 1024},
    ),
    "dnn-batch": (
        {"learning_rate": 0.01}, {"learning_rate": 0.1}, {"l2": 0.0}, {"l2": 0.003}, {"dim": 32}, {"initial_spread": 0.03},
        {"initial_spread": 0.4}, {"optimizer": "adam", "learning_rate": 0.001}, {"hidden": (128, 64)}, {"embedding": "sum"},
    ),
    "fm-mlp": _NETWORK,
    "ffm-mlp": _NETWORK,
    "pair-fm": (
        {"dim": 4}, {"dim": 16}, {"initial_spread": 0.1}, {"pair_weight": 0.1}, {"pair_weight": 0.6}, {"adapt_prior": False},
        {"prior": {"linear": 0.01}}, {"prior": {"linear": 0.1}}, {"prior": {"embedding": 0.02}}, {"prior": {"embedding": 0.2}},
    ),
    "ftrl": (
        {"alpha": 0.02}, {"alpha": 0.05}, {"alpha": 0.2}, {"alpha": 0.4}, {"l2": 1.0}, {"l2": 3.0}, {"l2": 10.0}, {"beta": 0.3},
        {"beta": 3.0}, {"l1": 0.3},
    ),
}  # fmt: skip


def share_of_best(arm: Arm, world: AdWorld, features: AdFeatures, days: int) -> float:
    """The value of the arm's choices on the day after the burn-in, as a share of the best possible."""
    at_work = ArmAtWork(arm, world, features, burn_in(world, features, days), CRITERIA[0])
    if isinstance(at_work.model, BatchModel):
        at_work.model.fit()
    requests = world.requests(days).part(slice(None, None, max(1, world.requests_per_day // REQUESTS)))
    at_work.updated = NEVER
    value, best = np.sum([(shown.value.sum(), shown.best.sum()) for shown in at_work.serve(requests)], axis=0)
    return float(value / best)


def main() -> None:
    """Try the settings of every kind and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests-per-day", type=int, default=200_000)
    parser.add_argument("--ads", type=int, default=60)
    parser.add_argument("--days", type=int, default=3, help="days of burn-in")
    parser.add_argument("--kinds", nargs="*", choices=list(TRIED), default=list(TRIED))
    options = parser.parse_args()
    worlds = [AdWorld(seed, options.days + 1, options.requests_per_day, options.ads) for seed in SEEDS]
    for kind in options.kinds:
        for changes in ({}, *TRIED[kind]):
            began = time.process_time()
            arm = Arm(kind, kind, NEVER, changes=tuple(changes.items()))
            shares = [share_of_best(arm, world, AdFeatures(world), options.days) for world in worlds]
            seconds = time.process_time() - began
            line = {"kind": kind, "changes": changes, "share_of_best": float(np.mean(shares)), "worlds": shares, "cpu": seconds}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
