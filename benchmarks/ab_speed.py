"""`python -m benchmarks.ab_speed`: candidates per second of CPU time in the online experiment, with all that an arm does.

That is the world (requests, candidates, true probabilities), scoring, exploring, learning and publishing. Each arm runs alone, on
one thread, from noon on, with the traffic of 400 impressions per ad, arm and day; the burn-in does not count. At the end: all
candidates over all seconds.
"""

import argparse
import time

import numpy as np

from pbodl.experiments.ab.ab_arms import IMPRESSIONS, Setting, _apart, arm_of
from pbodl.experiments.ab.ad_features import AdFeatures
from pbodl.experiments.ab.ad_market import DAY, HOUR
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.arm import ArmAtWork, burn_in, with_candidates
from pbodl.experiments.ab.lineup import TESTS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ab_speed", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="hours, from noon on")
    parser.add_argument("--market", default="standard", choices=list(TESTS))
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART", help="only arms whose name contains one of these")
    options = parser.parse_args()
    total = np.zeros(2)
    for test in TESTS[options.market]:
        setting = Setting(market=options.market)
        ads = setting.settled(1).ads
        assert ads
        world = AdWorld(900, 2, IMPRESSIONS * ads * len(test.arms), ads, options.market)
        features = AdFeatures(world)
        log = burn_in(world, features, 1)
        owner = arm_of(np.arange(len(world.users.age)), test.name, len(test.arms))
        requests = world.requests(1)
        noon = 1.5 * DAY
        requests = requests.part((requests.time >= noon) & (requests.time < noon + options.hours * HOUR))
        for number, arm in enumerate(test.arms):
            if not any(part in arm.name for part in options.only):
                continue
            for timed in (False, True):
                at_work = ArmAtWork(arm, world, features, log, "ecpm")
                some = requests if timed else requests.part(slice(0, 200))
                candidates = len(with_candidates(world, some.part(owner[some.user] == number))[1].ad)
                began = time.process_time()
                for _ in _apart({number: at_work}, some, owner):
                    pass
                seconds = time.process_time() - began
            total += candidates, seconds
            print(f"{test.name}, {arm.name}: {candidates / seconds:,.0f} candidates per second of CPU time", flush=True)
    print(f"all: {total[0] / total[1]:,.0f}")


if __name__ == "__main__":
    main()
