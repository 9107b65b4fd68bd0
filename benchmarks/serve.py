"""The speed of a server while a trainer publishes, and the time from a click to a served CTR that reflects it.

    python -m benchmarks.serve                   # all three, some four minutes
    python -m benchmarks.serve --seconds 10 --trials 5 --only a

    a  1000 candidates at 50 requests/s, a new model every 5 s
    b  100 candidates at 200 requests/s, a new model every 5 s
    c  from a click handed to the trainer to a served CTR that reflects it, at the default settings, under the load of a

Three processes (and the server's worker): `pbodl serve`, the load generator (`benchmarks.load`), and this one, which is the
trainer: FM-MLP, dim 16, hidden 64-32, learning some thousand rows per second. Like that of `pbodl up`, it has a lower priority than
the server (unless `--same-priority`).
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from benchmarks.ads import SCHEMA, Traffic
from pbodl import FMMLP
from pbodl.publishing.publisher import EVERY, Publisher
from pbodl.serving import Client
from pbodl.serving.models.background import background

STEP, PAUSE = 20, 0.01  # rows learned at a time, and seconds in between
RESULTS = Path(__file__).parent / "results" / "serve.json"
EDGES = (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 15, 20, 50, 100, np.inf)


class Load(NamedTuple):
    """A load and its target."""

    candidates: int
    rate: int
    p99: float  # milliseconds


LOADS = {"a": Load(1000, 50, 10.0), "b": Load(100, 200, 5.0)}


class Trainer:
    """Learns and publishes; its rows are made beforehand, so that they cost no time later."""

    def __init__(self, folder: str, rows: int, same_priority: bool) -> None:
        self._thread = ThreadPoolExecutor(1) if same_priority else background("trainer")
        traffic = Traffic(seed=0)
        self.model = FMMLP(SCHEMA)
        for _ in range(0, rows, 10_000):
            self.model.learn(traffic.rows(10_000))
        self._steps = [traffic.rows(STEP) for _ in range(500)]
        self.publisher = Publisher(self.model, folder)
        self.publisher.publish()
        self._at = 0

    def step(self) -> int | None:
        """Learn a few rows; returns the version, if one was published."""
        published = self._thread.submit(self._learn).result()
        time.sleep(PAUSE)
        return published

    def _learn(self) -> int | None:
        self.model.learn(self._steps[self._at % len(self._steps)])
        self._at += 1
        return self.publisher.publish_when_due()


class Server:
    """`pbodl serve` in a separate process, or another command that serves; its log is beside the folder."""

    def __init__(self, folder: str, *options: str, command: tuple[str, ...] = ()) -> None:
        with tempfile.NamedTemporaryFile("w", dir=Path(folder).parent, suffix=".log", delete=False) as log:
            self._log = Path(log.name)
            given = [*(command or ("serve", folder)), "--port", "0", *options]
            self._process = subprocess.Popen([sys.executable, "-m", "pbodl.cli", *given], stdout=log, stderr=log)

    def __enter__(self) -> str:
        while not (found := re.findall(r"listening on (\S+)", self._log.read_text())):
            if self._process.poll() is not None:
                raise SystemExit(self._log.read_text())
            time.sleep(0.1)
        with Client(found[0], timeout=60.0) as client:
            while not client.ready():
                time.sleep(0.1)
        return found[0]

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()
        if "Traceback" in self._log.read_text():
            print(self._log.read_text(), file=sys.stderr)


class Generator(NamedTuple):
    process: "subprocess.Popen[bytes]"
    told: IO[bytes]  # a file: a pipe would fill up, and stop the generator


def generator(url: str, load: Load, seconds: float) -> Generator:
    options = ["--candidates", load.candidates, "--rate", load.rate, "--seconds", seconds]
    told = tempfile.TemporaryFile()  # noqa: SIM115, it is closed with the last who holds it
    return Generator(subprocess.Popen([sys.executable, "-m", "benchmarks.load", url, *map(str, options)], stdout=told), told)


def under_load(trainer: Trainer, url: str, load: Load, seconds: float) -> dict[str, Any]:
    """Latencies while the trainer runs."""
    trainer.publisher.every = 5.0
    running = generator(url, load, seconds)
    while running.process.poll() is None:
        trainer.step()
    return figures(running, load)


def figures(running: Generator, load: Load) -> dict[str, Any]:
    running.process.wait()
    running.told.seek(0)
    told = json.load(running.told)
    latencies = np.array(told["latencies"])
    return {
        "requests": len(latencies), "failures": told["failures"], "versions": len(told["versions"]), "wanted": load.p99,
        **{f"p{q:g}": round(float(np.percentile(latencies, q)), 2) for q in (50, 90, 99, 99.9)},
        "max": float(latencies.max()), "histogram": np.histogram(latencies, (0, *EDGES))[0].tolist(),
    }  # fmt: skip


def freshness(trainer: Trainer, url: str, trials: int) -> dict[str, Any]:
    """Seconds from a click to a served CTR that reflects it; the clicks are on new ads."""
    trainer.publisher.every = EVERY
    traffic, seconds = Traffic(seed=2), []
    running = generator(url, LOADS["a"], 3600.0)
    trainer.model.predict(traffic.rows(1))  # compiles it, where it is not cached: only this measurement predicts, no trainer does
    with Client(url, timeout=5.0) as client:
        for trial in range(trials):
            wait = time.monotonic() + random.Random(trial).uniform(0.0, EVERY)
            while time.monotonic() < wait:
                trainer.step()
            request = traffic.request(1)
            request["candidates"][0] = {**request["candidates"][0], "ad_id": f"new-{trial}"}
            row = {**request["user"], **request["context"], **request["candidates"][0]}
            seconds.append(_until_served(trainer, client, request, row))
            print(f"trial {trial + 1} of {trials}: {seconds[-1]:.2f} s", file=sys.stderr)
    running.process.terminate()
    told = {"trials": trials, "median": round(float(np.median(seconds)), 2), "worst": round(max(seconds), 2)}
    return {**told, "load": figures(running, LOADS["a"])}


def _until_served(trainer: Trainer, client: Client, request: dict[str, Any], row: dict[str, Any]) -> float:
    before = client.score(**request).ctr[0]
    clicked_at = time.monotonic()
    trainer.model.learn([{**row, "click": 1}])
    expected: dict[int, float] = {}
    while True:
        version = trainer.step()
        if version is not None:
            expected[version] = trainer.model.predict([row]).ctr[0]
        answer = client.score(**request)
        if answer.model in expected:
            served = answer.ctr[0]
            assert abs(served - expected[answer.model]) < 1e-5, "the server serves something else than the trainer learned"
            assert abs(served - before) > 1e-6, "the click does not show"
            return time.monotonic() - clicked_at


def show(name: str, load: Load, told: dict[str, Any]) -> None:
    print(f"\n{name}: {load.candidates} candidates at {load.rate} requests/s, {told['versions']} versions of the model")
    print("  " + ", ".join(f"{key} {told[key]:.2f} ms" for key in ("p50", "p90", "p99", "p99.9", "max")))
    print(f"  {told['requests']} requests, failed: {told['failures'] or 'none'}")
    low, most = 0.0, max(told["histogram"])
    for high, count in zip(EDGES, told["histogram"], strict=True):
        if count:
            print(f"  {low:>5g} to {high:>5g} ms {count:>7} {'#' * -(-60 * count // most)}")
        low = high
    met = told["p99"] < load.p99 and not told["failures"]
    print(f"  wanted: p99 under {load.p99:g} ms, none failed: {'met' if met else 'missed'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds per load")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--rows", type=int, default=200_000, help="rows to learn before the server starts")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--same-priority", action="store_true", help="give trainer and server the same priority")
    parser.add_argument("--only", default="abc", help="parts to run: a, b, c")
    given = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(f"{folder}/model", given.rows, given.same_priority)
        with Server(f"{folder}/model", "--workers", str(given.workers)) as url:
            for name in [name for name in LOADS if name in given.only]:
                results[name] = under_load(trainer, url, LOADS[name], given.seconds)
                show(name, LOADS[name], results[name])
            if "c" in given.only:
                results["c"] = told = freshness(trainer, url, given.trials)
                print(f"\nc: click to served, {told['trials']} trials: median {told['median']} s, worst {told['worst']} s")
                print(f"  wanted: under 5 s: {'met' if told['worst'] < 5 else 'missed'}")
                show("meanwhile", LOADS["a"], told["load"])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
