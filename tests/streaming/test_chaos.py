"""Killed at any moment, with kill -9, and its Redis server too: the model ends with the same bits, and every event counts once."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pbodl
from pbodl.models.snapshot import load_snapshot
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.sources.redis_stream import RedisSink
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from pbodl.training.config import to_toml
from tests.patience import happens
from tests.streaming.redis_server import RedisServer, needs_redis
from tests.streaming.traffic import config, decoded, fingerprint, traffic

pytestmark = needs_redis
JOIN = StreamOptions("5m", "20m", 1500)
SETTINGS = config(negative_rate=0.7, half_life="1h", snapshot_every=0.05)


class Process:
    """`pbodl online`, as a process of its own."""

    def __init__(self, folder: Path, source: str, workers: int, *more: str) -> None:
        (folder / "online.toml").write_text(to_toml(SETTINGS))
        command = [sys.executable, "-m", "pbodl.cli", "online", "--source", source, "--out", str(folder / "run")]
        command += ["--config", str(folder / "online.toml"), "--publish", str(folder / "published"), "--publish-every", "0.05"]
        command += ["--window", JOIN.window, "--late", JOIN.late, "--join-capacity", str(JOIN.capacity), "--workers", str(workers)]
        self._process = subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def kill(self) -> None:
        assert self._process.poll() is None, self._process.communicate()[1].decode()
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def finish(self) -> dict:
        out, errors = self._process.communicate(timeout=300)
        assert self._process.returncode == 0, errors.decode()
        return json.loads(out.splitlines()[-1])


def torment(folder: Path, server: RedisServer, events: list[dict], kills: int, restarts: int, workers: int, seed: int) -> dict:
    """Send the events piece by piece while the learner, and now and then the server, is killed; returns the last figures."""
    draws = np.random.default_rng(seed)
    sinks = [RedisSink(server.address("clicks"), pack) for pack in (1, 40)]
    ends = np.linspace(0, len(events), kills + 1).astype(int)
    server_dies = set(draws.choice(kills, restarts, replace=False).tolist())
    for kill in range(kills):
        process = Process(folder, server.address("clicks"), workers)
        pieces = np.array_split(np.arange(ends[kill], ends[kill + 1]), 8)
        # The process takes a while to start: the first death strikes early, the others after some work.
        happens(lambda before=kill: before == 0 or learned(folder) > 0, 20.0)
        for piece in pieces:
            sinks[int(draws.integers(2))].send([events[place] for place in piece])
            time.sleep(float(draws.uniform(0.0, 0.1)))
        if kill in server_dies:
            server.restart()
        before = learned(folder)
        happens(lambda before=before: learned(folder) > before, 8.0)
        time.sleep(float(draws.uniform(0.0, 0.15)))
        process.kill()
    return Process(folder, server.address("clicks"), workers, "--until-end", "--json").finish()


def learned(folder: Path) -> int:
    try:
        return load_snapshot(folder / "run").facts["rows"]
    except (pbodl.InputError, FileNotFoundError):
        return 0


def undisturbed(folder: Path, events: list[dict]) -> StreamLearner:
    ref = StreamLearner.start(SETTINGS, folder / "undisturbed", JOIN, StreamPosition())
    ref.take(decoded(events), StreamPosition())
    return ref


def compare(folder: Path, server: RedisServer, kills: int, restarts: int, rows: int) -> None:
    events = traffic(rows)
    comp = torment(folder, server, events, kills, restarts, workers=1, seed=kills)
    ref = undisturbed(folder, events)
    assert comp == ref.metrics()
    assert fingerprint(pbodl.load(folder / "run")) == fingerprint(ref.model)


def test_killed_three_times_and_the_server_once(tmp_path: Path, redis_server: RedisServer) -> None:
    compare(tmp_path, redis_server, kills=3, restarts=1, rows=4000)


@pytest.mark.slow
def test_killed_thirty_times(tmp_path: Path, redis_server: RedisServer) -> None:
    compare(tmp_path, redis_server, kills=30, restarts=6, rows=30_000)


@pytest.mark.slow
def test_with_two_workers_every_event_counts_once(tmp_path: Path, redis_server: RedisServer) -> None:
    events = traffic(20_000)
    comp = torment(tmp_path, redis_server, events, 10, 2, workers=2, seed=1)
    ref = undisturbed(tmp_path, events).metrics()
    # Threads merge in another order each time: the figures differ, the counters must not.
    figures = {name for name in ref if name.removeprefix("known_") in ("log_loss", "auc", "calibration")}
    for name in (*figures, "rejected_embedding", "rejected_linear", "rejected_dense"):
        comp.pop(name), ref.pop(name)
    assert comp == ref
