"""`python -m benchmarks.scale`: how far the online system scales, from measured costs, a simulation and the real code.

First the CPU seconds of every step are measured on this machine (`benchmarks.scale_costs`). Then clusters of 1 to 1000 workers are
simulated (`benchmarks.simulation`), with the number of shards that serves them best, and what a day of ten billion rows needs is
worked out. With --accuracy the deterministic cluster learns a log with up to 64 workers.
"""

import argparse
import math

from benchmarks.parallel import measure
from benchmarks.scale_costs import measured
from benchmarks.simulation import ClusterSize, Cost, Costs, Network, Outcome, simulate

WORTH = 1.03  # minimum gain for using more shards
SHARDS = (1, 2, 4, 8, 16, 32, 64, 128)
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
DAY, PEAK = 86_400, 2.0  # seconds; rows per second at the busiest time, as a multiple of the mean
BYTES_FEATURE, BYTES_SERVED = 178, 172  # of FM-MLP with dim 16, in a shard and in a server
REPLICAS = 3  # copies that the brokers keep


def rows_of(workers: int, in_flight: int) -> int:
    """Rows of a minibatch, if so many are to be in flight."""
    return max(64, min(1024, in_flight // workers))


def best(costs: Costs, network: Network, workers: int, rows: int, brokers: int, features: int, every: float) -> tuple[int, Outcome]:
    """The number of shards that learns the most, and what comes of it; more shards must be worth it."""
    chosen, outcome = 0, Outcome(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    for shards in SHARDS:
        size = ClusterSize(workers, shards, brokers, rows, features, every)
        other = simulate(costs, network, size, minibatches=max(400, 20 * workers))
        if other.rows_per_second > WORTH * outcome.rows_per_second:
            chosen, outcome = shards, other
    return chosen, outcome


def scaling(costs: Costs, network: Network, given: argparse.Namespace) -> None:
    told = f"{given.in_flight:,} rows in flight where minibatches of 64 to 1024 rows allow it"
    told += f", latency {given.latency:.0f} µs, {given.gigabits:g} Gbit/s, {given.brokers} brokers, {given.features:,} features"
    print(f"\n{told}\n")
    print("| workers | rows of a minibatch | rows in flight | shards | rows/s | messages stale | workers busy | shards | brokers |")
    print("|---|---|---|---|---|---|---|---|---|")
    for workers in WORKERS:
        rows = rows_of(workers, given.in_flight)
        shards, outcome = best(costs, network, workers, rows, given.brokers, given.features, given.every)
        print(
            f"| {workers} | {rows} | {rows * workers:,} | {shards} | {outcome.rows_per_second:,.0f} | {outcome.staleness:.1f} | "
            f"{outcome.cores:.0%} | {outcome.shards:.0%} | {outcome.brokers:.0%} |"
        )


def _fits(given: argparse.Namespace, shards: int) -> bool:
    return given.day_features * BYTES_FEATURE / shards <= given.machine * 2**30


def _learns(costs: Costs, network: Network, given: argparse.Namespace, workers: int, shards: int) -> Outcome:
    rows = rows_of(workers, given.in_flight)
    size = ClusterSize(workers, shards, given.brokers, rows, given.day_features, given.every)
    return simulate(costs, network, size, 20 * workers + 400)


def day(costs: Costs, network: Network, given: argparse.Namespace) -> None:
    """What a day of `given.day` rows and `given.day_features` features needs."""
    mean = given.day / DAY
    peak = PEAK * mean
    print(f"\n{given.day:,} rows a day ({mean:,.0f} a second, {peak:,.0f} at twice the mean), {given.day_features:,} features\n")
    for workers in WORKERS:
        rows = rows_of(workers, given.in_flight)
        found = [(shards, _learns(costs, network, given, workers, shards)) for shards in SHARDS if _fits(given, shards)]
        found = [(shards, outcome) for shards, outcome in found if outcome.rows_per_second >= peak]
        if found:
            break
    else:
        print("no cluster of up to 1000 workers learns that fast")
        return
    shards, outcome = found[0]
    inward = peak * costs.bytes_event
    changed = min(mean * given.every * costs.changed, given.day_features)
    version = changed * costs.bytes_published
    shares = math.ceil(given.day_features * BYTES_SERVED * 2 / (given.machine * 2**30))
    lines = {
        "broker": f"{inward / 1e6:,.0f} MB/s; {given.day * costs.bytes_event * REPLICAS / 1e12:,.1f} TB a day, {REPLICAS} copies",
        "partitions": f"{workers} at least; one worker reads each, twice as many leave room to grow",
        "workers": f"{workers} cores, minibatches of {rows} rows; {outcome.cores:.0%} busy",
        "shards": f"{shards} of {given.day_features * BYTES_FEATURE / shards / 2**30:,.0f} GB; {outcome.shards:.0%} busy",
        "snapshot": f"{given.day_features * BYTES_FEATURE / shards / 2**30:,.0f} GB for each shard, written beside the others",
        "publication": f"every {given.every:g} s {changed:,.0f} rows, {version / 1e6:,.0f} MB in all parts; a shard stops for "
                       f"{1e3 * outcome.pause:,.0f} ms, and compresses for {costs.write.row * changed / shards:,.2f} s beside",
        "servers": f"{shares} shares of {given.day_features * BYTES_SERVED * 2 / shares / 2**30:,.0f} GB (two tables); each takes "
                   f"{costs.take.row * changed / shares:,.2f} s for a version",
        "scores": f"a router core scores {1 / (1000 * costs.score.row):,.0f} requests of 1000 candidates a second, without parsing",
    }  # fmt: skip
    print("| | needs |\n|---|---|")
    for name, told in lines.items():
        print(f"| {name} | {told} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="rows to learn before measuring costs")
    parser.add_argument("--in-flight", type=int, default=4096, help="rows that all workers learn at the same time")
    parser.add_argument("--latency", type=float, default=200.0, help="one-way latency in µs")
    parser.add_argument("--gigabits", type=float, default=10.0)
    parser.add_argument("--carry", type=float, default=100.0, help="CPU time in µs to carry a call, on either side")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--features", type=int, default=10_000_000)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between publications")
    parser.add_argument("--day", type=int, default=10_000_000_000, help="rows of a day")
    parser.add_argument("--day-features", type=int, default=1_000_000_000)
    parser.add_argument("--machine", type=float, default=64.0, help="GB of memory that a shard or a server of a share may use")
    parser.add_argument("--accuracy", type=int, metavar="ROWS", help="instead, learn this many rows with 1 to 64 workers")
    given = parser.parse_args()
    if given.accuracy:
        print("| setting | seed | AUC | log loss | progressive | calibration | CPU s |\n|---|---|---|---|---|---|---|")
        for workers in (1, 4, 16, 64):
            print(measure(f"shared:{workers}x{4096 // max(workers, 4)}", given.accuracy, 0), flush=True)
        return
    costs = measured(given.rows, 1e-6 * given.carry)
    print("| step | µs a call | µs a row |\n|---|---|---|")
    for name, cost in costs._asdict().items():
        if isinstance(cost, Cost):
            print(f"| {name} | {1e6 * cost.call:.0f} | {1e6 * cost.row:.3g} |")
    print(f"\nbytes: {costs.bytes_row:.0f} of message and {costs.bytes_event:.0f} of events a row; {costs.bytes_published:.0f} "
          f"published for a changed row; {costs.changed:.2f} rows of the table change with a row learned")  # fmt: skip
    network = Network(1e-6 * given.latency, given.gigabits / 8 * 1e9)
    scaling(costs, network, given)
    scaling(costs, network, argparse.Namespace(**vars(given) | {"in_flight": 1_024_000}))
    day(costs, network, given)


if __name__ == "__main__":
    main()
