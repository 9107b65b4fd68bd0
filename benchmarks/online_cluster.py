"""`python -m benchmarks.online_cluster WHAT`: what a cluster that learns from a stream costs, beside one process.

accuracy   one process and a cluster (`--workers`, `--shards`) on the same events of a generated world, nine tenths of `--rows`;
           the cluster is the real one without processes: in each round, all workers learn from the same weights. Both are then
           tested on the last tenth, frozen
speed      `pbodl online` in one process and with --engine ray on the same files: seconds and processor seconds of all processes,
           and what is left of them without those of a run with few rows
pause      how long a shard of `--features` features waits for a copy of its process, and how long the copy writes
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pyarrow as pa

from pbodl.data.convert import from_data
from pbodl.data.sampling import selected
from pbodl.data.synthetic import World
from pbodl.models.adaptation import next_moment
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.durable_shard import DurableShard, write_first
from pbodl.parallel.cluster.on_ray import minibatch
from pbodl.parallel.cluster.sharding import deal, empty_part, join
from pbodl.parallel.cluster_prior import adapt_cluster
from pbodl.parallel.message import Message, encode
from pbodl.streaming.cluster.partition_learner import PartitionLearner
from pbodl.streaming.cluster.stream_worker import PartitionLane, StreamWorker, WorkerSettings
from pbodl.streaming.events import CLICK, EventDecoder, Events
from pbodl.streaming.replay import DelayedClicks
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from pbodl.streaming.stream_reader import ReadStep
from pbodl.system.tensors import unpack
from pbodl.training.config import Config, check_config, to_toml
from pbodl.training.stream_metrics import StreamMetrics

CHUNK, DELAY, HERE = 20_000, 60.0, StreamPosition()
START = 5000  # rows of a run that shows what the start costs


def settings_of(world: World, kind: str) -> Config:
    return check_config({"schema": msgspec.to_builtins(world.schema), "model": {"kind": kind}})


def chunks_of(world: World, rows: int) -> Iterator[list[dict[str, Any]]]:
    """The events of the first rows, and their clicks, in the order of time."""
    chunk: list[dict[str, Any]] = []
    left = rows

    def batches() -> Iterator[Any]:
        nonlocal left
        for batch in world.batches():
            yield batch[: min(left, batch.num_rows)]
            left -= batch.num_rows
            if left <= 0:
                return

    for event in DelayedClicks(world.schema, DELAY, world.seed).events(batches()):
        chunk.append(event)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    yield chunk


class MemoryCluster:
    """Shards without journals, and stream workers with one partition each, in rounds."""

    def __init__(self, config: Config, workers: int, shards: int, folder: Path, rows: int | None) -> None:
        model = config.build()
        assert isinstance(model, DeepProbit)
        self.model, self.limit, self._priors = model, float(next_moment(0)), 0
        for shard in deal(model, shards):
            write_first(shard, folder / str(shard.number))
        self.shards = [DurableShard(empty_part(model, shards), n, folder / str(n)) for n in range(shards)]
        for shard in self.shards:
            shard.journal.append = lambda record: None  # type: ignore[method-assign]
        settings = WorkerSettings(workers, shards, rows or minibatch(workers))
        lanes = [PartitionLane(PartitionLearner(f"p{n}", config, model, StreamOptions(), HERE)) for n in range(workers)]
        self.workers = [StreamWorker(model, [lane], settings, 1, self._ask) for lane in lanes]

    def _ask(self, calls: Any) -> list[Any]:
        return [getattr(shard, name)(*given) for shard, (name, given) in zip(self.shards, calls, strict=True)]

    def take(self, events: Events) -> None:
        part = (events.ids % np.uint64(len(self.workers))).astype(np.int64)
        for number, worker in enumerate(self.workers):
            own = part == number
            rows = selected(events.rows, own[events.kinds != CLICK])
            mine = replace(events, kinds=events.kinds[own], ids=events.ids[own], times=events.times[own], rows=rows)
            worker.lanes[0].take(ReadStep(mine, HERE, 0))
        self.rounds()

    def rounds(self) -> None:
        while any(worker.lanes[0].learner.pending for worker in self.workers):
            for worker in self.workers:
                worker.limit = self.limit
            learned = [(worker, worker.begin(worker.lanes[0])) for worker in self.workers]
            for worker, one in learned:
                if one is not None:
                    worker.finish(one)
            if self.shards[0].shard.model.rows_learned >= self.limit:
                self._priors = adapt_cluster(self.model, self._evidence, self._push, self._priors)
                self.limit = float(next_moment(self.shards[0].shard.model.rows_learned))

    def _evidence(self) -> list[np.ndarray]:
        return [unpack(shard.evidence())["evidence"] for shard in self.shards]

    def _push(self, message: Message) -> None:
        for shard in self.shards:
            shard.push(encode(message))

    def figures(self) -> StreamMetrics:
        total = StreamMetrics()
        for worker in self.workers:
            total.merge(worker.metrics.state())
        return total


def accuracy(rows: int, seeds: list[int], workers: int, shards: int, minibatch_rows: int | None, kind: str) -> None:
    print("| seed | which | AUC on the last tenth | log loss there | progressive AUC | progressive log loss | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for seed in seeds:
        world = World(seed=seed, rows=rows)
        config, train = settings_of(world, kind), rows * 9 // 10
        decoder = EventDecoder(config.schema)
        packs = [msgspec.msgpack.encode(chunk) for chunk in chunks_of(world, train)]
        late = from_data(config.schema, pa.Table.from_batches(list(world.batches()))[train:rows], labelled=True)
        with tempfile.TemporaryDirectory() as name:
            one = StreamLearner.start(config, Path(name) / "one", StreamOptions(), HERE)
            cluster = MemoryCluster(config, workers, shards, Path(name) / "shards", minibatch_rows)
            spent = [0.0, 0.0]
            for pack in packs:
                events, began = decoder.decode([pack]), time.process_time()
                one.take(events, HERE)
                between = time.process_time()
                cluster.take(events)
                spent = [spent[0] + between - began, spent[1] + time.process_time() - between]
            whole = join([shard.shard for shard in cluster.shards])
            for label, model, figures, cpu in (
                ("one process", one.model, one.tracker.overall(), spent[0]),
                (f"{workers} x {shards}", whole, cluster.figures().figures(), spent[1]),
            ):
                frozen = StreamMetrics()
                for start in range(0, len(late), 65_536):
                    batch = late.rows(start, start + 65_536)
                    frozen.add(model.predict(batch).ctr, batch.clicks)  # type: ignore[arg-type]
                tested = frozen.figures()
                numbers = (tested.auc, tested.log_loss, figures.auc, figures.log_loss)
                print(f"| {seed} | {label} | {' | '.join(f'{number:.4f}' for number in numbers)} | {cpu:.0f} |", flush=True)


def speed(rows: int, workers: int, shards: int, rounds: int, kind: str) -> None:
    world = World(seed=0, rows=rows)
    config = settings_of(world, kind)
    cluster = ["--engine", "ray", "--workers", str(workers), "--shards", str(shards)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "online.toml").write_text(to_toml(config))
        base = [sys.executable, "-m", "pbodl.cli", "online", "--config", str(folder / "online.toml"), "--until-end", "--json"]
        spent: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for what, count in (("start", START), ("all", rows)):
            whole, parts = _write_events(folder / what, world, count, workers)
            ways = {"one process": ["--source", whole], f"{workers} x {shards}": ["--source", parts, *cluster]}
            if what == "start":
                for label, more in ways.items():  # compiles
                    _run([*base, "--out", str(folder / f"compiling-{label}".replace(" ", "-")), *more])
            for lap in range(rounds):
                for label, more in ways.items():
                    out = str(folder / f"{what}-{label}-{lap}".replace(" ", "-"))
                    seconds, used, figures = _run([*base, "--out", out, *more])
                    spent.setdefault((label, what), []).append((seconds, used))
                    print(
                        f"{label}, {count:,} rows: {seconds:.0f} s, processor time {used:.0f} s; AUC {figures['auc']:.4f}, "
                        f"log loss {figures['log_loss']:.4f}, {figures['rows_learned']:,} rows learned",
                        flush=True,
                    )
    print("\nwithout the start, medians:")
    for label in dict.fromkeys(label for label, _ in spent):
        whole_run, start = (np.median(spent[label, what], axis=0) for what in ("all", "start"))
        print(f"{label}: {whole_run[0] - start[0]:.0f} s, processor time {whole_run[1] - start[1]:.0f} s")


def _write_events(folder: Path, world: World, rows: int, workers: int) -> tuple[str, str]:
    """Files with the events of the first rows: all in one, and dealt out by their ids."""
    files = []
    for part in range(workers):
        (folder / "events" / str(part)).mkdir(parents=True)
        files.append((folder / "events" / str(part) / "a.jsonl").open("wb"))
    with (folder / "all.jsonl").open("wb") as whole:
        for chunk in chunks_of(world, rows):
            for event in chunk:
                line = msgspec.json.encode(event) + b"\n"
                files[int(event["id"], 16) % workers].write(line)
                whole.write(line)
    for file in files:
        file.close()
    return str(folder / "all.jsonl"), str(folder / "events")


def _run(command: list[str]) -> tuple[float, float, dict[str, Any]]:
    """Seconds, processor seconds of all processes, and the figures of a run."""
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        used = _follow(process.pid)
        assert process.stdout is not None
        figures = json.loads(process.stdout.read().splitlines()[-1])
    return time.monotonic() - began, used(), figures


def _follow(pid: int) -> Any:
    """Watch the processor time of a process and of all that descend from it; returns a function that gives the sum so far."""
    most: dict[int, float] = {}

    def watch() -> None:
        while True:
            try:
                root = psutil.Process(pid)
                for process in (root, *root.children(recursive=True)):
                    times = process.cpu_times()
                    most[process.pid] = times.user + times.system
            except psutil.NoSuchProcess:
                if not psutil.pid_exists(pid):
                    return
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()
    return lambda: sum(most.values())


def pause(features: int) -> None:
    world = World(seed=0, rows=10)
    model = settings_of(world, "fm-mlp").build()
    assert isinstance(model, DeepProbit)
    rng = np.random.default_rng(0)
    model.table.insert(rng.integers(1, 2**63, features, dtype=np.uint64))
    model.table.field[:], model.table.last_seen[:], model.table.count[:] = 0, 0.0, 1
    for name in ("mean", "variance", "linear_mean", "linear_variance"):
        model.table.column(name)[:] = 0.5
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        write_first(deal(model, 1)[0], Path(name) / "0")
        shard = DurableShard(empty_part(model, 1), 0, Path(name) / "0")
        waits, busy, writes = [], [], []
        for _ in range(3):
            began, used = time.monotonic(), time.thread_time()
            shard.begin_save(name.encode())
            waits.append(time.monotonic() - began)
            busy.append(time.thread_time() - used)
            shard.saved(name.encode())()
            writes.append(time.monotonic() - began)
    size = psutil.Process().memory_info().rss / 1e9
    told = f"{1000 * max(waits):.0f} ms at most, median {1000 * statistics.median(waits):.0f} ms"
    told += f", of which {1000 * statistics.median(busy):.0f} ms of processor time"
    print(f"{features:,} features, {size:.1f} GB: the shard waited {told}; its copy wrote for {statistics.median(writes):.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "speed", "pause"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--minibatch", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--features", type=int, default=5_000_000)
    parser.add_argument("--model", default="fm-mlp")
    given = parser.parse_args()
    if given.what == "accuracy":
        accuracy(given.rows, given.seeds, given.workers, given.shards, given.minibatch, given.model)
    elif given.what == "speed":
        speed(given.rows, given.workers, given.shards, given.rounds, given.model)
    else:
        pause(given.features)


if __name__ == "__main__":
    main()
