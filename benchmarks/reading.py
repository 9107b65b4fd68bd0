"""The share of the kernel's speed that remains while a log is read, decoded and hashed; and the speed of generating logs.

`python -m benchmarks.reading [--rows 1000000]`: FM-MLP learns the same rows from memory, from Parquet and from csv.gz, in turns;
medians of three.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pbodl
from pbodl.data.log.log_reader import open_log
from pbodl.data.synthetic import World

FORMATS = ("parquet", "csv.gz")
WANTED = {"parquet": 0.8, "csv.gz": 0.6}
ROUNDS = 3


def rate(rows: int, work: Callable[[], object]) -> float:
    """Rows per second."""
    began = time.perf_counter()
    work()
    return rows / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    world = World(rows=rows)
    print(f"making rows: {rate(rows, lambda: sum(1 for _ in world.batches())):,.0f} rows/s")
    with tempfile.TemporaryDirectory() as folder:
        logs = {name: Path(folder) / f"log.{name}" for name in FORMATS}
        for name, path in logs.items():
            print(f"making {name}: {rate(rows, lambda path=path: world.write(path)):,.0f} rows/s")  # type: ignore[misc]
        batches = [chunk.batch for chunk in open_log(logs["parquet"], world.schema)]

        def from_memory() -> None:
            model = pbodl.FMMLP(world.schema)
            for batch in batches:
                model.learn(batch)

        def from_log(path: Path) -> None:
            model = pbodl.FMMLP(world.schema)
            with open_log(path, world.schema) as log:
                for chunk in log:
                    model.learn(chunk.batch)

        times: dict[str, list[float]] = {"memory": [], **{name: [] for name in FORMATS}}
        for _ in range(ROUNDS):
            times["memory"].append(rate(rows, from_memory))
            for name, path in logs.items():
                times[name].append(rate(rows, lambda path=path: from_log(path)))  # type: ignore[misc]
    kernel = statistics.median(times["memory"])
    print(f"learning from memory: {kernel:,.0f} rows/s")
    for name in FORMATS:
        found = statistics.median(times[name])
        print(f"learning from {name}: {found:,.0f} rows/s, {found / kernel:.2f} of it (wanted: {WANTED[name]})")


if __name__ == "__main__":
    main()
