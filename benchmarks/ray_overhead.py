"""`python -m benchmarks.ray_overhead`: the cost of Ray compared with the same cluster in one process, and with threads.

Three models take turns, chunk by chunk: `cluster` pulls, learns, pushes and merges in one process and thread; `ray` does so with
processes and messages, the next pull in flight while a minibatch is learned; `threads` shares memory. The wall clock shows what a
worker loses to Ray: with one worker (the default), both have one core for learning. CPU seconds include all processes, also
Ray's. It also measures the journal with and without fsync, and a call.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

import pbodl
from benchmarks.workload import make_workload
from pbodl.parallel.cluster.journal import Journal
from pbodl.parallel.cluster.on_ray import RaySettings, ray_for
from pbodl.parallel.cluster.remote_calls import TOKEN, Address, CallClients, CallServer
from pbodl.parallel.cluster.worker_slot import DEPTH
from pbodl.parallel.schedule import Round, Schedule
from pbodl.parallel.simulated import Cluster
from pbodl.parallel.threads.learning_threads import learn_with_threads
from pbodl.training.config import check_config
from pbodl.training.presets import PRESETS
from pbodl.training.run import Run

CHUNK = 32_768


def cpu_seconds() -> float:
    """CPU seconds of this process and its children."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


class Steady(Schedule):
    """No ramp: minibatches have their full size. Two are in flight even with one worker, which represents one of many."""

    def next(self, seen: int, now: float, variance: float) -> Round:
        return Round(self.workers, self.rows)


def measure(rows: int, workers: int, shards: int, minibatch: int, half: bool) -> None:
    workload = make_workload(rows)
    threads = pbodl.FMMLP(workload.schema)
    learn_with_threads(threads, workers)
    cluster = Cluster(pbodl.FMMLP(workload.schema), DEPTH * workers, minibatch, shards, half=half)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.start(check_config(PRESETS["synthetic"]()), folder, workload.batch.rows(0, 1000))
        with ray_for(RaySettings(workers, shards, minibatch, half=half))(run) as on_ray:
            calls()
            cluster.schedule = on_ray.coordinator.schedule = Steady(DEPTH * workers, minibatch)
            learners: dict[str, Callable] = {"cluster": cluster.learn, "ray": on_ray.learn, "threads": threads.learn}
            spent: dict[str, list[tuple[float, float]]] = {name: [] for name in learners}
            for start in range(0, rows, CHUNK):
                part = workload.batch.rows(start, start + CHUNK)
                for name, learn in learners.items():
                    before, began = cpu_seconds(), time.perf_counter()
                    learn(part)
                    spent[name].append(((cpu_seconds() - before) / len(part), (time.perf_counter() - began) / len(part)))
            staleness = on_ray.summary()["staleness"]
    warm = {name: list(zip(*times[2:], strict=True)) for name, times in spent.items()}
    print("| path | CPU µs a row | wall µs a row |\n|---|---|---|")
    for name, (cpu, wall) in warm.items():
        print(f"| {name} | {1e6 * statistics.median(cpu):.2f} | {1e6 * statistics.median(wall):.2f} |")
    print(f"\nstaleness on Ray: {staleness}")
    for other in ("cluster", "threads"):
        pairs = zip(warm["ray"], warm[other], strict=True)
        cpu, wall = (statistics.median(a / b - 1 for a, b in zip(*pair, strict=True)) for pair in pairs)
        print(f"ray over {other}: CPU {cpu:+.0%}, wall {wall:+.0%} (medians over chunks)")


def journal(record: int = 560_000, records: int = 100) -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for sync in (False, True):
            log = Journal(Path(folder) / str(sync), sync)
            log.begin(b"")
            times = []
            for _ in range(records):
                began = time.perf_counter()
                log.append(b"a" * record)
                times.append(time.perf_counter() - began)
            print(f"journal, {record / 1e3:.0f} kB a record, sync={sync}: {1e3 * statistics.median(times):.2f} ms (median)")


def calls(sizes: tuple[int, ...] = (1_000, 600_000), laps: int = 200) -> None:
    """CPU seconds of a call between two actors, at both ends: over the sockets that pulls and pushes take, and by Ray itself."""
    import ray

    token = bytes(TOKEN)

    class Answer:
        def __init__(self) -> None:
            self._server = CallServer({"push": self.push}, "127.0.0.1", token)

        def push(self, content: bytes) -> bytes:
            return len(content).to_bytes(8, "little")

        def address(self) -> Address:
            return self._server.address

        def cpu(self) -> float:
            return time.process_time()

    class Ask:
        def run(self, other: Any, size: int, linked: bool) -> tuple[float, float]:
            content = b"a" * size
            address: Any = ray.get(other.address.remote())
            clients = CallClients(1, lambda _: address, token)
            before: Any = ray.get(other.cpu.remote())
            began = time.process_time()
            for _ in range(laps):
                clients.ask([("push", (content,))]) if linked else ray.get(other.push.remote(content))
            spent = time.process_time() - began
            after: Any = ray.get(other.cpu.remote())
            return spent / laps, (after - before) / laps

    other, one = (ray.remote(num_cpus=0.1)(kind).remote() for kind in (Answer, Ask))
    for linked, way in ((True, "over a socket"), (False, "by Ray")):
        for size in sizes:
            ray.get(one.run.remote(other, size, linked))
            asking, answering = ray.get(one.run.remote(other, size, linked))
            ends = f"{1e3 * asking:.2f} ms of CPU at the caller, {1e3 * answering:.2f} at the callee"
            print(f"a call with {size / 1e3:.0f} kB {way}: {ends}")
    for actor in (one, other):
        ray.kill(actor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--minibatch", type=int, default=1024)
    parser.add_argument("--wire-bits", type=int, default=16)
    options = parser.parse_args()
    journal()
    measure(options.rows, options.workers, options.shards, options.minibatch, options.wire_bits == 16)


if __name__ == "__main__":
    main()
