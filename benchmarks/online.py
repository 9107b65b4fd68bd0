"""The speed of learning from a stream, compared with a file of the same rows; a replayed day of traffic; the watchdog; fresh CTRs.

    python -m benchmarks.online rate --rows 300000      Redis -> joined -> learned -> published, against training from a file
    python -m benchmarks.online day --rows 2000000      24 hours of events through Redis: rate and memory on the way
    python -m benchmarks.online watch --rows 1720000 --seeds 21 22 23 24 25     ordinary events: alarms of the watchdog
    python -m benchmarks.online faults --seeds 31 32 33                         labels inverted, fields missing: how soon it sees it
    python -m benchmarks.online served --seeds 12 --days 4 --rows 700000        log loss as served
    python -m benchmarks.online fresh --trials 50       from a click in the broker to a served CTR: real processes

`rate`, `day` and `fresh` start their own Redis server. The two ways of `rate` take turns, the first round does not count, and the
times are those of whole runs without the start of the program.
"""

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.broker import redis_server
from benchmarks.fresh import fresh
from benchmarks.served import served
from benchmarks.stopwatch import Stopwatch, peak, resident
from benchmarks.watch import DAYS, faults, ordinary
from pbodl.data.synthetic import World
from pbodl.streaming.online_service import Options, online
from pbodl.streaming.replay import DelayedClicks
from pbodl.streaming.sources.redis_stream import RedisSink
from pbodl.streaming.stream_learner import StreamOptions
from pbodl.training.config import Config, check_config
from pbodl.training.session import train

PACK = 500


def settings(world: World) -> Config:
    return check_config({"schema": msgspec.to_builtins(world.schema), "model": {"kind": "fm-mlp"}})


def send(world: World, address: str, delay: float = 60.0) -> int:
    """Send the world's events in packed entries; returns their number."""
    sink, sent, chunk = RedisSink(address, PACK), 0, []
    for event in DelayedClicks(world.schema, delay, world.seed).events(world.batches()):
        chunk.append(event)
        if len(chunk) == 20 * PACK:
            sink.send(chunk)
            sent, chunk = sent + len(chunk), []
    sink.send(chunk)
    sink.close()
    return sent + len(chunk)


def rate(rows: int, rounds: int) -> None:
    """Rows per second of both ways, round by round."""
    world = World(seed=0, days=1, rows=rows)
    config = settings(world)
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as server:
        folder = Path(name)
        world.write(folder / "log.parquet")
        events = send(world, f"{server}/events")
        ratios = []
        for lap in range(rounds + 1):
            with Stopwatch() as file:
                train(config, [str(folder / "log.parquet")], folder / f"file{lap}")
            options = Options(
                f"{server}/events", folder / f"stream{lap}", StreamOptions(), publish=str(folder / f"model{lap}"), until_end=True
            )
            with Stopwatch() as stream:
                online(config, options)
            kind = "warming up" if lap == 0 else f"round {lap}"
            print(
                f"{kind}: file {rows / file.seconds:,.0f} rows/s, Redis {rows / stream.seconds:,.0f} rows/s "
                f"({events / stream.seconds:,.0f} events/s), ratio {file.seconds / stream.seconds:.2f}; "
                f"processor time {file.cpu_seconds:.1f} s and {stream.cpu_seconds:.1f} s",
                flush=True,
            )
            if lap:
                ratios.append(file.seconds / stream.seconds)
    print(f"median ratio {statistics.median(ratios):.2f}")


def day(rows: int) -> None:
    """A day of traffic through Redis, in several sessions of one run; the table is bounded, as in a long-lived service."""
    world = World(seed=0, days=1, rows=rows)
    config = check_config({"schema": msgspec.to_builtins(world.schema), "model": {"kind": "fm-mlp", "capacity": 100_000}})
    events = DelayedClicks(world.schema, 60.0, world.seed).events(world.batches())
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as server:
        sink = RedisSink(f"{server}/events", PACK)
        out, stream = Path(name) / "run", StreamOptions(capacity=50_000)
        options = Options(f"{server}/events", out, stream, publish=f"{name}/model", until_end=True)
        peaks = []
        while some := list(itertools.islice(events, 100_000)):
            for first in range(0, len(some), 20 * PACK):
                sink.send(some[first : first + 20 * PACK])
            count = len(some)
            del some
            resident()
            with Stopwatch() as watch:
                figures = online(config, options)
            sink.client.xtrim("events", maxlen=0, approximate=False)
            peaks.append(peak() / 2**20)
            print(
                f"{figures['events']:,} events, {figures['watermark'] % 86400 / 3600:.1f} h: {count / watch.seconds:,.0f} "
                f"events/s, peak memory {peaks[-1]:,.0f} MB, {figures['features']:,} features, {figures['evicted']:,} evicted, "
                f"{figures['remembered']:,} impressions remembered, crowded out {figures['crowded_out']:,}, log loss "
                f"{figures['log_loss']:.4f}",
                flush=True,
            )
        tell_slope(peaks, figures["events"])


def tell_slope(peaks: list[float], events: int) -> None:
    """The growth of memory after the first third, with its standard error."""
    rest = np.array(peaks[len(peaks) // 3 :])
    millions = np.linspace(events / len(peaks), events, len(peaks))[len(peaks) // 3 :] / 1e6
    (slope, _), covariance = np.polyfit(millions, rest, 1, cov=True)
    error = covariance[0, 0] ** 0.5
    print(f"after a third: {rest.min():,.0f} to {rest.max():,.0f} MB; slope {slope:+.2f} ± {error:.2f} MB per 1M events")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rate", "day", "watch", "faults", "served", "fresh"])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--days", type=int, nargs="+", default=DAYS, help="days of watch and served, one per seed")
    parser.add_argument("--negative-rate", type=float, default=1.0, help="share of non-clicks kept in watch")
    parser.add_argument("--trials", type=int, default=50)
    given = parser.parse_args()
    if given.what == "rate":
        rate(given.rows, given.rounds)
    elif given.what == "day":
        day(given.rows)
    elif given.what == "watch":
        ordinary(given.seeds, given.rows, given.negative_rate, given.days)
    elif given.what == "faults":
        faults(given.seeds)
    elif given.what == "served":
        for seed, days in zip(given.seeds, itertools.cycle(given.days), strict=False):
            served(seed, days, given.rows)
    else:
        fresh(given.trials)


if __name__ == "__main__":
    main()
