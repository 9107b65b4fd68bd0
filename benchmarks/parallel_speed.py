"""`python -m benchmarks.parallel_speed`: the speed of several threads compared with one, and the cost of a message.

Two models take turns, chunk by chunk, so that a busy moment of the machine affects both. A figure is the median over the chunks,
shown with the best chunk. `kernel` is learning from hashed batches; `bound` as many models as workers, each by its own
thread, which share nothing but the machine: what its cores and caches leave to be gained; `train` the whole session on a Parquet
file, reading, hashing and metrics included, and its CPU; its bound are as many processes, each of which trains a model of its own
on a file that is so much shorter. The costs of a cluster's steps are per row of a minibatch.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np

import pbodl
from benchmarks.workload import make_workload
from pbodl.data.synthetic import World
from pbodl.parallel.message import decode, encode
from pbodl.parallel.shard import Shard
from pbodl.parallel.threads.learning_threads import learn_with_threads, threads_for
from pbodl.parallel.worker import Worker, plan
from pbodl.training.config import check_config
from pbodl.training.presets import PRESETS
from pbodl.training.session import train

CHUNK = 65_536  # rows, as a training session reads them


def kernel(rows: int, workers: int, rounds: int) -> None:
    """Chunks of a hashed log, learned by one thread, by several, and by as many independent models."""
    workload = make_workload(rows)
    seconds: dict[str, list[float]] = {"one": [], "kernel": [], "bound": []}
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(rounds):
            one, together, *apart = (pbodl.FMMLP(workload.schema) for _ in range(2 + workers))
            learn_with_threads(together, workers)
            for start in range(0, rows, CHUNK):
                part = workload.batch.rows(start, start + CHUNK)
                for name, models in (("one", [one]), ("kernel", [together]), ("bound", apart)):
                    began = time.perf_counter()
                    list(pool.map(lambda model, part=part: model.learn(part), models))
                    if start >= 2 * CHUNK:  # the first chunks compile, and climb the ramp
                        seconds[name].append((time.perf_counter() - began) / (len(part) * len(models)))
    for name in ("kernel", "bound"):
        _tell(name, workers, {1: seconds["one"], workers: seconds[name]})


def session(rows: int, workers: int, rounds: int) -> None:
    """`pbodl train` on a Parquet file, with one worker and with several in turns; and in as many processes, a part each."""
    seconds: dict[str, list[float]] = {"one": [], "train": [], "train, bound": []}
    used: dict[str, list[float]] = {name: [] for name in seconds}
    fresh = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as name,
        ProcessPoolExecutor(1, fresh) as alone,
        ProcessPoolExecutor(workers, fresh) as apart,
    ):
        whole, *parts = [Path(name) / f"log-{n}.parquet" for n in range(1 + workers)]
        World(rows=rows).write(whole)
        for seed, part in enumerate(parts):
            World(seed=seed, rows=rows // workers).write(part)
        for lap in range(rounds + 1):
            for case, pool, logs, n in (
                ("one", alone, [whole], 1),
                ("train", alone, [whole], workers),
                ("train, bound", apart, parts, 1),
            ):
                taken = list(pool.map(_train, logs, [f"{case}-{lap}"] * len(logs), [n] * len(logs)))
                if lap:  # the first compiles
                    seconds[case].append(max(wall for wall, _ in taken) / rows)
                    used[case].append(sum(cpu for _, cpu in taken) / rows)
    for case in ("train", "train, bound"):
        _tell(case, workers, {1: seconds["one"], workers: seconds[case]})
    print("CPU µs a row: " + ", ".join(f"{case} {1e6 * statistics.median(times):.2f}" for case, times in used.items()))


def _train(log: Path, run: str, workers: int) -> tuple[float, float]:
    """The seconds of a session, and of CPU."""
    began = time.process_time()
    config = check_config(PRESETS["synthetic"]())
    summary = train(config, [str(log)], log.with_suffix(f".{run}"), prepare=threads_for(workers, "shared", None))
    return summary["seconds"], time.process_time() - began


def costs(rows: int, minibatch: int) -> None:
    """The costs of plan, pull, learn, encode, decode and push for one of two workers, after half of the log."""
    workload = make_workload(rows)
    model = pbodl.FMMLP(workload.schema)
    model.learn(workload.batch.rows(0, rows // 2))
    shard, worker = Shard(model), Worker(model, "worker")
    shard.predictive_variance = 0.15
    times: dict[str, list[float]] = {}
    size: list[int] = []
    sequential = pbodl.FMMLP(workload.schema)
    sequential.load_state(model.state())
    for start in range(rows // 2, rows - minibatch, minibatch):
        part = workload.batch.rows(start, start + minibatch)
        marks = [time.perf_counter()]
        task = plan(part)
        marks.append(time.perf_counter())
        pulled = shard.pull(task.keys)
        marks.append(time.perf_counter())
        message, _ = worker.learn(task, [pulled], workers=2)
        marks.append(time.perf_counter())
        content = encode(message)
        marks.append(time.perf_counter())
        message = decode(content)
        marks.append(time.perf_counter())
        shard.push(message)
        marks.append(time.perf_counter())
        sequential.learn(part)
        marks.append(time.perf_counter())
        size.append(len(content))
        for name, seconds in zip(("plan", "pull", "learn", "encode", "decode", "push", "sequential"), np.diff(marks), strict=True):
            times.setdefault(name, []).append(seconds)
    text = ", ".join(f"{name} {1e6 * statistics.median(values) / minibatch:.2f}" for name, values in times.items())
    print(f"minibatch of {minibatch}: µs per row: {text}; bytes per row {statistics.median(size) / minibatch:.0f}")


def _tell(what: str, workers: int, seconds: dict[int, list[float]]) -> None:
    median, best = ({n: figure(times) for n, times in seconds.items()} for figure in (statistics.median, min))
    print(
        f"{what}: 1 worker {1 / median[1]:,.0f} rows/s (best {1 / best[1]:,.0f}), {workers} workers {1 / median[workers]:,.0f} "
        f"(best {1 / best[workers]:,.0f}); ratio {median[1] / median[workers]:.2f}, of the best {best[1] / best[workers]:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.rows < 4 * CHUNK:
        parser.error(f"--rows must be at least {4 * CHUNK}: the first {2 * CHUNK} rows are not measured")
    kernel(options.rows, options.workers, options.rounds)
    for minibatch in (256, 1024):
        costs(min(options.rows, 300_000), minibatch)
    session(options.rows, options.workers, options.rounds)


if __name__ == "__main__":
    main()
