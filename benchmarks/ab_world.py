"""The speed of the ad world alone: it makes requests, finds candidates with their true probabilities, draws one and its click.

    python -m benchmarks.ab_world

It uses one thread and counts CPU time, which other work on the machine disturbs little.
"""

import time

import numpy as np

from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.arm import CHUNK, with_candidates

REQUESTS = 100_000


def main() -> None:
    """Print the requests per second of CPU time, in markets of two sizes."""
    for ads in (60, 300):
        world = AdWorld(0, 1, REQUESTS, ads)
        with_candidates(world, world.requests(0).part(slice(0, 10)))
        began, found, clicks = time.process_time(), 0, 0
        requests = world.requests(0)
        for start in range(0, REQUESTS, CHUNK):
            part, candidates = with_candidates(world, requests.part(slice(start, start + CHUNK)))
            counts = np.diff(candidates.indptr)
            place = candidates.indptr[:-1] + (part.pick * counts).astype(np.int64)
            clicks += int((part.luck < candidates.probability[place]).sum())
            found += len(candidates.ad)
        seconds = time.process_time() - began
        speed = f"{REQUESTS / seconds:,.0f} requests per second of CPU"
        print(f"{ads} ads, {found / REQUESTS:.0f} candidates: {speed}, CTR {clicks / REQUESTS:.4f}")


if __name__ == "__main__":
    main()
