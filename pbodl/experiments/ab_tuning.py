"""Settings for the models of the online experiment: `python -m pbodl.experiments.ab_tuning` prints them.

All kinds are tuned alike: the same number of trials, by progressive log loss, on the burn-in log of a world that the experiment
does not use. Batch models are fitted anew every twelve hours while they are tuned.
"""

import argparse
import json

import msgspec

from pbodl.experiments.ab_arm import burn_in
from pbodl.experiments.ab_features import SCHEMA, Features, batch_of
from pbodl.experiments.ab_lineup import BATCH, START, TUNED
from pbodl.experiments.ab_world import World
from pbodl.training.config import check_config
from pbodl.training.tuning import tune

SEED = 1000


def main() -> None:
    """Tune every kind; one line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests-per-day", type=int, default=40_000)
    parser.add_argument("--ads", type=int, default=300)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--kinds", nargs="*", default=list(TUNED))
    options = parser.parse_args()
    world = World(SEED, options.days, options.requests_per_day, options.ads)
    log = burn_in(world, Features(world), options.days).feedback
    for kind in options.kinds:
        retrain = {"retrain_every": "12h"} if kind in BATCH else {}
        tables = {"schema": msgspec.to_builtins(SCHEMA), "model": {"kind": kind, **START.get(kind, {}), **retrain}}
        best, *others = tune(check_config(tables), [batch_of(*log)], options.trials)
        given = next(trial.log_loss for trial in (best, *others) if trial.given)
        print(json.dumps({"kind": kind, "values": best.values, "log_loss": best.log_loss, "as_given": given}), flush=True)


if __name__ == "__main__":
    main()
