"""How fast a stream is learned, beside a file of the same rows; a day of traffic, replayed; and how often the watchdog errs.

    python -m benchmarks.online rate --rows 300000      Redis -> joined -> learned -> published, against training from a file
    python -m benchmarks.online day --rows 2000000      24 hours of events through Redis: rate and memory on the way
    python -m benchmarks.online watch --rows 10000000   ordinary events: how many alarms the watchdog raises

`rate` and `day` start a Redis server of their own. The two ways of `rate` take turns, the first round does not count, and times are
those of whole runs without the program's start.
"""

import argparse
import itertools
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.stopwatch import Stopwatch, peak, resident
from pbodl.data.synthetic import World
from pbodl.streaming.events import Decoder
from pbodl.streaming.learner import Learner, StreamOptions
from pbodl.streaming.redis_stream import RedisSink
from pbodl.streaming.replay import DelayedClicks
from pbodl.streaming.service import Options, online
from pbodl.streaming.source import Position
from pbodl.training.config import Config, check_config
from pbodl.training.session import train

PACK = 500


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """The address of a durable server of our own."""
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    time.sleep(1.0)
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def settings(world: World) -> Config:
    return check_config({"schema": msgspec.to_builtins(world.schema), "model": {"kind": "fm-mlp"}})


def send(world: World, address: str, delay: float = 60.0) -> int:
    """The world's events, in packed entries; returns how many."""
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
    """Rows a second of both ways, round by round."""
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
    """A day of traffic through Redis, in sittings of one run; the table is bounded, as it should be where it runs for months."""
    world = World(seed=0, days=1, rows=rows)
    config = check_config({"schema": msgspec.to_builtins(world.schema), "model": {"kind": "fm-mlp", "capacity": 100_000}})
    events = DelayedClicks(world.schema, 60.0, world.seed).events(world.batches())
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as server:
        sink = RedisSink(f"{server}/events", PACK)
        out, stream = Path(name) / "run", StreamOptions(capacity=rows // 20)
        options = Options(f"{server}/events", out, stream, publish=f"{name}/model", until_end=True)
        for sitting in range(1, 13):
            some = list(itertools.islice(events, rows // 10))
            for first in range(0, len(some), 20 * PACK):
                sink.send(some[first : first + 20 * PACK])
            count = len(some)
            del some
            resident()
            with Stopwatch() as watch:
                figures = online(config, options)
            sink.client.xtrim("events", maxlen=0, approximate=False)
            print(
                f"sitting {sitting}: {count / watch.seconds:,.0f} events/s, peak memory {peak() / 2**20:,.0f} MB, "
                f"{figures['features']:,} features, {figures['remembered']:,} impressions remembered, hurried "
                f"{figures['hurried']:,}, forgotten {figures['forgotten']:,}, log loss {figures['log_loss']:.4f}",
                flush=True,
            )


def watch(rows: int) -> None:
    """Alarms on ordinary events, straight into the learner."""
    world = World(seed=1, days=10, rows=rows)
    alarms = learned = 0
    with tempfile.TemporaryDirectory() as name:
        learner = Learner.start(settings(world), name, StreamOptions(), Position())
        decoder, chunk = Decoder(world.schema), []
        for event in DelayedClicks(world.schema, 60.0, world.seed).events(world.batches()):
            chunk.append(event)
            if len(chunk) == 20_000:
                learner.take(decoder.decode([msgspec.msgpack.encode(chunk)]), Position())
                chunk = []
                if learner.watchdog.alarms > alarms:
                    print(f"after {learner.events:,} events: {learner.watchdog.held}", flush=True)
                    alarms = learner.watchdog.alarms
                    learner.watchdog.release()
        learned = learner.model.rows_learned
    stretches = learner.watchdog.stretches
    print(f"{alarms} alarms in {learner.events:,} ordinary events, {stretches:,} stretches ({learned:,} rows learned)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rate", "day", "watch"])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.what == "rate":
        rate(options.rows, options.rounds)
    elif options.what == "day":
        day(options.rows)
    else:
        watch(options.rows)


if __name__ == "__main__":
    main()
