"""From a click in the broker to a served CTR that reflects it: real processes, at default settings.

A Redis server with an append-only file, `pbodl online` reading from it and publishing, `pbodl serve` following what is published.
After an hour of history, learned at once, traffic arrives at a steady rate. A trial sends an impression of a new user and a
new ad, with new values in all fields, and some seconds later its click. One request scores that ad; another scores a user and an ad
that were never sent, with the same model. Other traffic moves both scores, the click only one. The time runs from the XADD of the
click to the first answer in which the log odds of the two have moved apart by MOVED.
"""

import heapq
import random
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.broker import command, free_port, redis_server
from pbodl.data.synthetic import World
from pbodl.data.synthetic.world_columns import GROUPS
from pbodl.serving import Client
from pbodl.serving.client import ServerError
from pbodl.streaming.sources.redis_stream import RedisSink

HISTORY, RATE, STEP = 100_000, 500, 0.1  # impressions before the trials, impressions a second, seconds between messages
DELAY = 60.0  # of clicks, in the mean
MOVED = 0.1  # upwards; other traffic moves it by less than half of that in some seconds
PATIENCE = 60.0  # seconds


class Traffic:
    """A thread that sends a world's impressions and clicks at a steady rate, with current times."""

    def __init__(self, sink: RedisSink, world: World) -> None:
        self._sink, self._draws = sink, random.Random(world.seed)
        self._rows = (row for batch in world.batches() for row in batch.drop_columns("p_true").to_pylist())
        self._clicks: list[tuple[float, str]] = []
        self._number = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def row(self) -> dict[str, Any]:
        return next(self._rows)

    def history(self) -> None:
        """Send an hour of traffic that ends now, at once."""
        now = time.time()
        events = [event for at in np.linspace(now - 3600, now, HISTORY).tolist() for event in self._until(at)]
        for first in range(0, len(events), 10_000):
            self._sink.send(events[first : first + 10_000])

    def _until(self, now: float) -> Iterator[dict[str, Any]]:
        """Send the clicks that are due, and an impression."""
        while self._clicks and self._clicks[0][0] <= now:
            at, name = heapq.heappop(self._clicks)
            yield {"event": "click", "id": name, "time": at}
        row = self.row()
        self._number += 1
        if row.pop("click"):
            heapq.heappush(self._clicks, (now + self._draws.expovariate(1 / DELAY), f"{self._number:x}"))
        yield {**row, "event": "impression", "id": f"{self._number:x}", "time": now}

    def _go_on(self) -> None:
        due = time.time()
        while not self._stop.wait(max(0.0, due - time.time())):
            self._sink.send([event for n in range(int(RATE * STEP)) for event in self._until(due + n / RATE - STEP)])
            due += STEP

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Marked:
    """An impression with a new user and a new ad, and a twin that is never sent."""

    def __init__(self, number: int, row: dict[str, Any]) -> None:
        self.name = f"marked-{number}"
        self.row = {field: value for field, value in row.items() if field not in ("click", "time")} | self._own("marked", number)
        context = {field: row[field] for field in GROUPS["context"] if field != "hour"}
        self._requests = [
            ({field: own[field] for field in GROUPS["user"]}, context, [{field: own[field] for field in GROUPS["ad"]}])
            for own in (self._own("marked", number), self._own("never", number))
        ]

    def _own(self, kind: str, number: int) -> dict[str, str]:
        return {field: f"{kind}-{number}" for group in ("user", "ad") for field in GROUPS[group]}

    def apart(self, client: Client) -> float:
        """The difference of the two in the log odds of one served model."""
        while True:
            try:
                answers = [client.score(user, context | {"time": time.time()}, ads) for user, context, ads in self._requests]
            except ServerError:  # an overloaded server is asked again, and the time runs on
                continue
            if answers[0].model == answers[1].model:
                odds = [float(np.log(answer.ctr[0] / (1 - answer.ctr[0]))) for answer in answers]
                return odds[0] - odds[1]


def trial(number: int, row: dict[str, Any], sink: RedisSink, client: Client) -> tuple[float, float, float]:
    """Seconds from the click to an answer that reflects it, how far that moved, and how far anything moved before."""
    marked, draws = Marked(number, row), random.Random(number)
    sink.send([{**marked.row, "event": "impression", "id": marked.name, "time": time.time()}])
    before, noise, until = marked.apart(client), 0.0, time.monotonic() + 2.5 + draws.uniform(0.0, 2.5)
    while time.monotonic() < until:
        time.sleep(0.05)
        now = marked.apart(client)
        noise, before = max(noise, abs(now - before)), now
    began = time.monotonic()
    sink.send([{"event": "click", "id": marked.name, "time": time.time()}])
    while time.monotonic() < began + PATIENCE:
        moved = marked.apart(client) - before
        if moved > MOVED:
            return time.monotonic() - began, moved, noise
        time.sleep(0.01)
    raise SystemExit(f"the click of {marked.name} was not served within {PATIENCE:g} s")


def wait_for(log: Path, pattern: str) -> str:
    while not (found := re.findall(pattern, log.read_text())):
        time.sleep(0.1)
    return found[0]


def caught_up(port: int) -> bool:
    """Whether the learner has read the whole stream."""
    try:
        told = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    except httpx.HTTPError:
        return False
    figures = dict(re.findall(r"^pbodl_online_(lag|events_total) (\S+)$", told, re.MULTILINE))
    return float(figures.get("lag", "nan")) <= 3 and float(figures.get("events_total", "0")) > HISTORY


def fresh(trials: int) -> None:
    """The trials, one after the other."""
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as server:
        folder, stream, port = Path(name), f"{server}/events", free_port()
        (folder / "model").mkdir()
        sink = RedisSink(stream, 500)
        traffic = Traffic(sink, World(seed=7, days=1, rows=10_000_000))
        rows = [traffic.row() for _ in range(trials)]
        traffic.history()
        learn = ["online", "--source", stream, "--preset", "synthetic", "--out", str(folder / "run")]
        learn += ["--publish", str(folder / "model"), "--metrics-port", str(port)]
        serve = ["serve", str(folder / "model"), "--port", "0"]
        with command(folder / "online.log", *learn), command(folder / "serve.log", *serve), traffic:
            with Client(wait_for(folder / "serve.log", r"listening on (\S+)"), timeout=30.0) as client:
                while not (client.ready() and caught_up(port)):
                    time.sleep(0.05)
                own = RedisSink(stream, 1)
                told = [trial(number, row, own, client) for number, row in enumerate(rows)]
            sizes = {path.suffix: path.stat().st_size for path in (folder / "model").iterdir()}
    seconds, moved, noise = np.array(told).T
    print("seconds: " + " ".join(f"{value:.2f}" for value in seconds))
    print(
        f"the log odds moved by {moved.min():.2f} to {moved.max():.2f}; before the click by at most {noise.max():.3f}; bytes of "
        f"the last publications: {sizes}"
    )
    print(
        f"click to served CTR, {trials} trials: first {seconds[0]:.2f} s, median {np.median(seconds):.2f} s, worst "
        f"{seconds.max():.2f} s"
    )
    print(f"wanted: under 5 s: {'met' if seconds.max() < 5.0 else 'missed'}")
