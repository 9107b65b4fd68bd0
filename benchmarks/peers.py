"""`python -m benchmarks.peers`: our models beside today's tools, on the same rows, in one table: docs/lab/peers.md.

One pass over the training days of a generated log, then its last day with the model frozen. The tools run one after the
other in separate processes; settings are chosen by the progressive log loss on the first training rows, never by the last day.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.peer import PEERS, Peer
from benchmarks.split import load, log_loss, prepare
from pbodl.training.paired import Difference, paired_difference
from pbodl.training.stream_metrics import StreamMetrics

PAGE = Path(__file__).parent.parent / "docs" / "lab" / "peers.md"
LIBRARIES = ("vowpalwabbit", "river", "torch", "lightgbm", "numpy", "numba")


class Result(NamedTuple):
    peer: Peer
    value: float
    facts: dict[str, Any]
    predicted: NDArray[np.float32]
    auc: float
    log_loss: float

    @property
    def ours(self) -> bool:
        return self.peer.name.startswith("PBODL")


def measure(number: int, folder: Path, train_rows: int, clicks: NDArray[np.float32]) -> Result:
    """Choose the peer's setting, then run it over all rows."""
    peer, value = PEERS[number], PEERS[number].values[0]
    if len(peer.values) > 1:
        first = min(peer.tune_rows, train_rows)
        tried = {each: _run(number, folder, each, "--first", str(first))["progressive"] for each in peer.values}
        value = min(tried, key=tried.__getitem__)
    facts = _run(number, folder, value)
    predicted = np.load(folder / "predicted.npy")
    judged = clicks[: len(predicted)]
    metrics = StreamMetrics()
    metrics.add(predicted.astype(np.float64), judged)
    return Result(peer, value, facts, predicted, metrics.figures().auc, log_loss(predicted, judged))


def _run(number: int, folder: Path, value: float, *options: str) -> dict[str, Any]:
    subprocess.run([sys.executable, "-m", "benchmarks.peer", str(folder), str(number), str(value), *options], check=True)
    return json.loads((folder / "outcome.json").read_text())


def differences(results: list[Result], clicks: NDArray[np.float32]) -> tuple[Result, dict[str, Difference]]:
    """Our best model by progressive log loss, and every tool against it, on the rows that the tool scored."""
    best = min((result for result in results if result.ours), key=lambda result: result.facts["progressive"])
    against = {}
    for result in results:
        if result is not best:
            n = len(result.predicted)
            against[result.peer.name] = paired_difference(result.predicted, best.predicted[:n], clicks[:n].astype(np.uint8))
    return best, against


def page(results: list[Result], clicks: NDArray[np.float32], train_rows: int, rows: int, command: str) -> str:
    best, against = differences(results, clicks)
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    lines = [
        "# Side by side with today's tools",
        "",
        f"`{command}`: {rows:,} rows of the synthetic world",
        f"(seed 0), 22 categorical fields. One pass over the first days ({train_rows:,} rows), then the last day",
        f"({rows - train_rows:,} rows) with the model frozen. One run, one tool after the other, one thread each (Vowpal Wabbit",
        f"parses in a second one), on {os.cpu_count()} cores.",
        f"Versions: {libraries}, Python {platform.python_version()}.",
        "",
        "| tool | AUC | log loss | progressive log loss | rows/s | rows per CPU second | memory, MB |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *(_line(result, result is best) for result in results),
        "",
        "Settings:",
        "",
        *(f"- {result.peer.name}: {_setting(result.peer, result.value)}" for result in results),
        "",
        "- AUC and log loss are those of the last day. Progressive log loss is that of the training rows, each predicted before it",
        "  was learned (for PyTorch, before its batch was).",
        "- Rows/s is the speed of learning by the wall clock, which other work on the machine slows; CPU seconds, of all threads,",
        "  suffer less from it. Memory is the most that learning and scoring added to a process that already held its libraries",
        "  and the rows.",
        "- Values of a setting in brackets were tried; the one before them had the least progressive log loss on that many first",
        '  training rows. "An end" means the first or last value tried: one beyond it might do better. Others were not tuned.',
        "  Our models have their default settings, but we found these on logs of the same generator: they are not untuned.",
        f"- In bold: {best.peer.name}, our best by progressive log loss. We did not choose it by the last day.",
        "",
        f"## Differences to {best.peer.name}",
        "",
        "The other minus our best model, on the same test rows, with the 95 % interval of a paired bootstrap (200 draws). The",
        "intervals do not count the spread between seeds.",
        "",
        "| other | AUC | interval | log loss | interval | our best ahead in both |",
        "|---|--:|---|--:|---|---|",
        *(_difference(name, difference) for name, difference in against.items()),
    ]
    return "\n".join(lines) + "\n"


def _line(result: Result, best: bool) -> str:
    peer, facts = result.peer, result.facts
    progressive = "" if facts["progressive"] is None else f"{facts['progressive']:.4f}"
    name = f"**{peer.name}**" if best else peer.name
    speeds = [f"{facts['rows'] / facts[clock]:,.0f}" for clock in ("seconds", "cpu_seconds")]
    cells = [name, f"{result.auc:.4f}", f"{result.log_loss:.4f}", progressive, *speeds, f"{facts['memory'] / 1e6:,.0f}"]
    return f"| {' | '.join(cells)} |"


def _setting(peer: Peer, value: float) -> str:
    if len(peer.values) == 1:
        return peer.note
    # At an end of the range, a value beyond it might have been better still: the reader should know.
    end = ", an end" if value in (min(peer.values), max(peer.values)) else ""
    tried = f"{peer.what} {value:g} (of {', '.join(f'{each:g}' for each in peer.values)}{end}; by {peer.tune_rows:,} rows)"
    return f"{tried}; {peer.note}" if peer.note else tried


def _difference(name: str, d: Difference) -> str:
    ahead = "yes" if d.auc_high < 0 < d.log_loss_low else "no"
    auc, loss = f"{d.auc_low:+.4f} to {d.auc_high:+.4f}", f"{d.log_loss_low:+.4f} to {d.log_loss_high:+.4f}"
    return f"| {name} | {d.auc:+.4f} | {auc} | {d.log_loss:+.4f} | {loss} | {ahead} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the log, the last day included")
    parser.add_argument("--only", nargs="+", metavar="PART", help="run only tools whose name contains one of these")
    parser.add_argument("--output", type=Path, default=PAGE, help="file for the page")
    options = parser.parse_args()
    chosen = [number for number, peer in enumerate(PEERS) if any(part in peer.name for part in options.only or [""])]
    if not any(PEERS[number].name.startswith("PBODL") for number in chosen):
        parser.error(f"--only leaves none of our models to compare with; the tools are: {', '.join(peer.name for peer in PEERS)}")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(options.rows, folder)
        split = load(folder)
        train_rows, clicks = len(split.train.batch), split.test.clicks.copy()
        del split
        results = []
        for number in chosen:
            print(PEERS[number].name, file=sys.stderr, end=": ", flush=True)
            results.append(measure(number, folder, train_rows, clicks))
            result = results[-1]
            print(f"AUC {result.auc:.4f}, log loss {result.log_loss:.4f}, {result.facts}", file=sys.stderr, flush=True)
    command = " ".join(["python -m benchmarks.peers --rows", str(options.rows), *_quoted(options.only)])
    options.output.write_text(page(results, clicks, train_rows, options.rows, command))


def _quoted(only: list[str] | None) -> list[str]:
    return ["--only", *map(shlex.quote, only)] if only else []


if __name__ == "__main__":
    main()
