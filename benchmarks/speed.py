"""`python -m benchmarks.speed`: the table of speeds, and its ratios beside the targets.

Every row of the table is a contestant; all take turns in one run, and a figure is the median of the rounds. Raw seconds go to
results/speed.json.
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import ours, startup
from benchmarks.rivals import torch_fm_mlp, vw_linear
from benchmarks.timing import Contestant, Timing, interleaved
from benchmarks.workload import Workload, make_workload

RESULTS = Path(__file__).parent / "results" / "speed.json"
LINEAR = ("linear", "adpredictor", "ftrl")
SLOW_ROWS = 2000  # for what takes a millisecond a row
TABLE_SIZES = np.geomspace(100_000, 3_000_000, 40).astype(np.int64)


class Target(NamedTuple):
    """What must hold: `measured` at least `bound`, or at most it."""

    what: str
    measured: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


def contestants(workload: Workload, folder: Path) -> list[Contestant]:
    rows = len(workload.batch)
    slow, scored = min(SLOW_ROWS, rows), min(50_000, rows)
    return [
        *(ours.learner(f"learn {name}", name, workload, rows) for name in (*ours.MODELS, *ours.BASELINES)),
        ours.learner("learn fm, 1 row a call", "fm", workload, slow, rows_per_call=1),
        torch_fm_mlp.learner("learn torch fm, batch 1024", workload, rows, batch=1024),
        torch_fm_mlp.learner("learn torch fm, batch 1", workload, slow, batch=1),
        vw_linear.learner("learn vw", workload, rows, folder),
        vw_linear.learner("learn vw --ftrl", workload, rows, folder, "--ftrl"),
        vw_linear.learner("learn vw --sgd", workload, rows, folder, "--sgd"),
        *(ours.scorer(f"predict {name}", name, workload, scored) for name in ours.MODELS),
        torch_fm_mlp.scorer("predict torch fm, mean only", workload, scored, ours.PREDICT_ROWS),
        vw_linear.scorer("predict vw", workload, scored, folder),
    ]


def targets(timings: dict[str, Timing], start_seconds: float, table_bytes: float) -> list[Target]:
    def ratio(name: str, rival: str) -> float:
        return timings[name].rows_per_second / timings[rival].rows_per_second

    return [
        Target("learn fm / torch at batch 1024", ratio("learn fm", "learn torch fm, batch 1024"), 1.5, True),
        Target("learn fm / torch at batch 1", ratio("learn fm", "learn torch fm, batch 1"), 100.0, True),
        *(Target(f"learn {name} / vw", ratio(f"learn {name}", "learn vw"), 2.0, True) for name in LINEAR),
        Target("learn matchbox / fm", ratio("learn matchbox", "learn fm"), 1.0, True),
        Target("learn pairs / fm of groups", ratio("learn pairs", "learn fm of groups"), 0.9, True),
        Target("predict fm / torch, mean only", ratio("predict fm", "predict torch fm, mean only"), 1.0, True),
        Target("seconds from process start to first score", start_seconds, 2.0, False),
        Target("bytes per feature at dim 16", table_bytes, 200.0, False),
    ]


def show(timings: dict[str, Timing], judged: list[Target]) -> None:
    console = Console(width=100, highlight=False)
    speeds = Table("contestant", "rows", "rows/s", "µs/row", "log loss")
    for column in speeds.columns[1:]:
        column.justify = "right"
    for name, timing in timings.items():
        speed = timing.rows_per_second
        loss = "" if timing.log_loss is None else f"{timing.log_loss:.4f}"
        speeds.add_row(name, f"{timing.rows:,}", f"{speed:,.0f}", f"{1e6 / speed:,.2f}", loss)
    console.print(speeds)
    bounds = Table("target", "measured", "wanted", "")
    for target in judged:
        sign = "≥" if target.at_least else "≤"
        bounds.add_row(target.what, f"{target.measured:,.2f}", f"{sign} {target.bound:g}", "met" if target.met else "missed")
    console.print(bounds)


def machine() -> dict[str, str]:
    cpu = [line.split(":")[1].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    libraries = {name: version(name) for name in ("numpy", "numba", "torch", "vowpalwabbit")}
    name = cpu[0] if cpu else platform.processor()
    return {"cpu": name, "cores": str(len(cpu)), "python": platform.python_version(), **libraries}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows to learn")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds; figures are their medians")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file for the raw numbers")
    options = parser.parse_args()

    workload = make_workload(options.rows)
    with tempfile.TemporaryDirectory() as folder:
        timings = interleaved(contestants(workload, Path(folder)), options.rounds, lambda text: print(text, file=sys.stderr))
    start_seconds = startup.seconds_to_first_score(options.rounds)
    table_bytes = ours.bytes_per_feature(16, TABLE_SIZES)
    judged = targets(timings, statistics.median(start_seconds), statistics.mean(table_bytes))
    show(timings, judged)

    options.output.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "machine": machine(),
        "timings": {name: {"rows_per_second": timing.rows_per_second, **timing._asdict()} for name, timing in timings.items()},
        "start_seconds": start_seconds,
        "bytes_per_feature": dict(zip(TABLE_SIZES.tolist(), table_bytes, strict=True)),
        "targets": [{**target._asdict(), "met": target.met} for target in judged],
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
