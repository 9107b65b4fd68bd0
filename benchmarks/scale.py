"""`python -m benchmarks.scale`: how far a cluster scales, from measured costs, a simulation and the real code.

First the CPU seconds of every step are measured on this machine, for minibatches of 256 and 1024 rows: a line through both gives
those per call and per row. Then clusters of 1 to 1000 workers are simulated (`benchmarks.simulation`), with the number of shards
that serves them best. With --accuracy the deterministic cluster learns a log with up to 64 workers.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import pbodl
from benchmarks.parallel import measure
from benchmarks.simulation import Cost, Costs, Network, Outcome, simulate
from benchmarks.workload import make_workload
from pbodl.data.convert import from_data
from pbodl.data.synthetic import World
from pbodl.parallel.cluster.work_format import Work, decode_pulled, decode_work, encode_pulled, encode_work
from pbodl.parallel.message import decode, encode
from pbodl.parallel.shard import Shard
from pbodl.parallel.worker import Worker, plan

SIZES = (256, 1024)
LAPS = 40
WORTH = 1.03  # minimum gain for using more shards
SHARDS = (1, 2, 4, 8, 16, 32, 64)


def measured(rows: int, carry: float) -> Costs:
    """The costs of a cluster's steps on this machine, after `rows` rows."""
    workload = make_workload(rows + (LAPS + 2) * sum(SIZES))
    model = pbodl.FMMLP(workload.schema)
    model.learn(workload.batch.rows(0, rows))
    shard, worker = Shard(model), Worker(model, "worker")
    shard.predictive_variance = 0.15
    start, times, sizes = rows, {}, []
    for size in SIZES:
        for _ in range(LAPS):
            seconds, length = _lap(shard, worker, workload.batch.rows(start, start + size))
            start += size
            sizes.append((size, length))
            for name, value in seconds.items():
                times.setdefault((name, size), []).append(value)
    lines = {name: _line(name, times) for name, _ in times}
    read = Cost(0.0, _reading())
    per_row = statistics.median(length / size for size, length in sizes if size == SIZES[1])
    return Costs(
        Cost(lines["hand"].call, read.row + lines["hand"].row), lines["plan"], lines["learn"], lines["encode"], lines["pull"],
        lines["push"], carry, per_row,
    )  # fmt: skip


def _lap(shard: Shard, worker: Worker, part: Any) -> tuple[dict[str, float], int]:
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.thread_time()
        result = work()
        seconds[name] = seconds.get(name, 0.0) + time.thread_time() - began
        return result

    content = timed("hand", lambda: encode_work(Work(1, 2, part)))
    task = timed("plan", lambda: plan(decode_work(content).batch))
    answer = timed("pull", lambda: encode_pulled(shard.pull(task.keys), 0))
    pulled = timed("plan", lambda: decode_pulled(answer)[0])
    message, _ = timed("learn", lambda: worker.learn(task, [pulled], workers=2))
    content = timed("encode", lambda: encode(message))
    timed("push", lambda: shard.push(decode(content)))
    return seconds, len(content)


def _line(name: str, times: dict[tuple[str, int], list[float]]) -> Cost:
    small, large = (statistics.median(times[name, size]) for size in SIZES)
    row = max((large - small) / (SIZES[1] - SIZES[0]), 0.0)
    return Cost(max(small - row * SIZES[0], 0.0), row)


def _reading() -> float:
    """Seconds to hash a row of a table in memory; reading a file runs beside it in another thread."""
    world = World(rows=131_072)
    parts = list(world.batches())
    began = time.thread_time()
    for part in parts:
        from_data(world.schema, part, labelled=True)
    return (time.thread_time() - began) / 131_072


def scaling(costs: Costs, network: Network, rows: int) -> None:
    print(f"\nminibatches of {rows} rows, latency {1e6 * network.latency:.0f} µs, {8e-9 * network.bandwidth:.0f} Gbit/s\n")
    print("| workers | shards | rows/s | rows/s per worker | staleness | workers busy | shards busy | reader busy |")
    print("|---|---|---|---|---|---|---|---|")
    for workers in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000):
        shards, outcome = 0, Outcome(0.0, 0.0, 0.0, 0.0, 0.0)
        for more in SHARDS:
            other = simulate(costs, network, workers, more, rows, minibatches=max(400, 20 * workers))
            if other.rows_per_second > WORTH * outcome.rows_per_second:
                shards, outcome = more, other
        print(
            f"| {workers} | {shards} | {outcome.rows_per_second:,.0f} | {outcome.rows_per_second / workers:,.0f} | "
            f"{outcome.staleness:.1f} | {outcome.cores:.0%} | {outcome.shards:.0%} | {outcome.reader:.0%} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="rows to learn before measuring costs")
    parser.add_argument("--minibatch", type=int, default=1024)
    parser.add_argument("--latency", type=float, default=200.0, help="one-way latency in µs")
    parser.add_argument("--gigabits", type=float, default=10.0)
    parser.add_argument("--carry", type=float, default=100.0, help="CPU time in µs to carry a call, on either side")
    parser.add_argument("--free-reading", action="store_true", help="leave the reader out, as with many readers")
    parser.add_argument("--accuracy", type=int, metavar="ROWS", help="instead, learn this many rows with 1 to 64 workers")
    options = parser.parse_args()
    if options.accuracy:
        print("| setting | seed | AUC | log loss | progressive | calibration | CPU s |\n|---|---|---|---|---|---|---|")
        for workers in (1, 4, 16, 64):
            print(measure(f"shared:{workers}x{4096 // max(workers, 4)}", options.accuracy, 0), flush=True)
        return
    costs = measured(options.rows, 1e-6 * options.carry)
    print("| step | µs a call | µs a row |\n|---|---|---|")
    for name, cost in costs._asdict().items():
        if isinstance(cost, Cost):
            print(f"| {name} | {1e6 * cost.call:.0f} | {1e6 * cost.row:.2f} |")
    print(f"\na message has {costs.bytes_row:.0f} bytes a row")
    megabyte = 1e6 / costs.bytes_row
    print(f"per MB of message: encode {1e3 * costs.encode.row * megabyte:.1f} ms, pull {1e3 * costs.pull.row * megabyte:.1f} ms, "
          f"decode and push {1e3 * costs.push.row * megabyte:.1f} ms")  # fmt: skip
    if options.free_reading:
        costs = costs._replace(read=Cost(0.0, 0.0))
    network = Network(1e-6 * options.latency, options.gigabits / 8 * 1e9)
    scaling(costs, network, options.minibatch)


if __name__ == "__main__":
    main()
