"""How fast a stream is learned, beside a file of the same rows; and a day of traffic, replayed.

    python -m benchmarks.online rate --rows 300000    Redis -> joined -> learned -> published, against training from a file
    python -m benchmarks.online day --rows 2000000    24 hours of events: rate and memory on the way

Both start a Redis server of their own. Times are those of whole runs, the program's start left out; the two take turns.
"""

import argparse
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

from benchmarks.stopwatch import Stopwatch
from pbodl.data.synthetic import World
from pbodl.streaming.learner import StreamOptions
from pbodl.streaming.redis_stream import RedisSink
from pbodl.streaming.replay import DelayedClicks
from pbodl.streaming.service import Options, online
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rate"])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rate(options.rows, options.rounds)


if __name__ == "__main__":
    main()
