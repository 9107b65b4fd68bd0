"""Workers, shards and the coordinator of a live cluster are killed, or stopped for a while, again and again; disks fill up.

After all of it, the posterior of a linear model is that of the events, each counted once, in closed form (`exact_stream`).
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pbodl.models.snapshot import load_snapshot
from pbodl.streaming.cluster.cluster_service import ClusterOptions, online_on_ray
from pbodl.streaming.online_service import Options
from pbodl.streaming.sources.kafka_sink import KafkaSink
from pbodl.streaming.sources.redis_stream import RedisSink
from pbodl.training.config import to_toml
from tests.parallel.chaos import Chaos, actors
from tests.streaming.cluster.exact_stream import check_posterior, exact_config, visits
from tests.streaming.cluster.test_cluster_service import JOIN, write_events
from tests.streaming.kafka_broker import KafkaBrokers, needs_kafka
from tests.streaming.redis_server import RedisServer, needs_redis

PARTITIONS = 4
SETTINGS = exact_config(snapshot_every=2.0)
KILLS = int(os.environ.get("PBODL_CHAOS_KILLS", "30"))  # of each kind


class ClusterProcess:
    """`pbodl online --engine ray`, as a process of its own."""

    def __init__(self, folder: Path, source: str, workers: int, shards: int, *more: str) -> None:
        (folder / "online.toml").write_text(to_toml(SETTINGS))
        command = [sys.executable, "-m", "pbodl.cli", "online", "--source", source, "--out", str(folder / "run"), "--engine", "ray"]
        command += ["--config", str(folder / "online.toml"), "--workers", str(workers), "--shards", str(shards), "--merge", "add"]
        command += ["--window", "5m", "--late", "1h", "--settle", "at-end", "--minibatch", "16", "--wire-bits", "32"]
        self._errors = (folder / "errors.txt").open("ab")
        self._process = subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=self._errors)
        self._folder = folder

    def actors(self, kind: str) -> list[psutil.Process]:
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                if process.cmdline()[:1] and process.cmdline()[0].startswith(f"ray::{kind}"):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                continue
        return sorted(found, key=lambda process: process.pid)

    def kill(self) -> None:
        assert self._process.poll() is None, self.told()
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def terminate(self) -> None:
        """Ask it to stop: it saves, and says so."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=300)
        assert self._process.returncode == 128 + signal.SIGTERM, self.told()

    def finish(self) -> dict:
        out, _ = self._process.communicate(timeout=600)
        assert self._process.returncode == 0, self.told()
        return json.loads(out.splitlines()[-1])

    def told(self) -> str:
        return (self._folder / "errors.txt").read_text()[-3000:]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None


def rows_saved(folder: Path) -> int:
    try:
        return load_snapshot(folder / "run").counters["rows_learned"]
    except Exception:
        return -1


def journalled(folder: Path) -> tuple[int, ...]:
    """What the journals of the shards hold: it changes while they learn."""
    found = []
    for path in (folder / "run").glob("shards/*/*/*.log"):
        try:
            found.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return tuple(sorted(found))


def wait_until(happened, patience: float) -> bool:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if happened():
            return True
        time.sleep(0.1)
    return False


def torment(folder: Path, source: str, send, kinds: dict[str, int], seed: int) -> list[dict]:
    """Strike in a random order while events come; returns all events that were sent."""
    chance = random.Random(seed)
    strikes = [kind for kind, times in kinds.items() for _ in range(times)]
    chance.shuffle(strikes)
    events: list[dict] = []

    def more(count: int) -> None:
        new = visits(len([event for event in events if event["event"] == "impression"]), count, seed)
        events.extend(new)
        send(new)

    more(500)
    process = ClusterProcess(folder, source, 2, 2)
    for strike in strikes:
        more(chance.randrange(50, 200))
        before = journalled(folder)
        wait_until(lambda before=before: journalled(folder) != before, 60.0)
        time.sleep(chance.uniform(0.0, 1.0))
        assert process.alive, process.told()
        if strike == "coordinator" and chance.random() < 0.3:
            process.terminate()
            process = ClusterProcess(folder, source, 2, 2)
            continue
        if strike == "coordinator":
            process.kill()
            process = ClusterProcess(folder, source, chance.choice([1, 2, 4]), chance.choice([1, 2, 3]))
            continue
        kind = "ShardActor" if strike == "shard" else "StreamActor"
        wait_until(lambda kind=kind, process=process: bool(process.actors(kind)), 60.0)
        found = process.actors(kind)
        if not found:
            continue
        victim = chance.choice(found)
        try:
            victim.send_signal(signal.SIGSTOP if strike == "stop" else signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
        if strike == "stop":
            time.sleep(chance.uniform(1.0, 5.0))
            victim.send_signal(signal.SIGCONT)
    process.kill()
    print(f"\n{kinds}: {len(events)} events")
    return events


@pytest.mark.slow
def test_killed_and_stopped_again_and_again(tmp_path):
    source = tmp_path / "events"
    kinds = {"worker": KILLS, "shard": KILLS, "coordinator": max(KILLS // 3, 1), "stop": max(KILLS // 3, 1)}
    events = torment(tmp_path, str(source), lambda new: write_events(source, new, PARTITIONS), kinds, seed=KILLS)
    figures = ClusterProcess(tmp_path, str(source), 2, 2, "--until-end", "--json").finish()
    assert figures["ledger"]["sound"] and figures["events"] == len(events), figures
    check_posterior(tmp_path / "run", events)


@pytest.mark.slow
def test_a_signal_saves_and_another_cluster_continues(tmp_path):
    source, events = tmp_path / "events", visits(0, 1500)
    write_events(source, events, PARTITIONS)
    first = ClusterProcess(tmp_path, str(source), 2, 2)
    assert wait_until(lambda: sum(journalled(tmp_path)) > 20_000, 300.0), first.told()
    first.terminate()
    assert rows_saved(tmp_path) > 0
    write_events(source, visits(1500, 300), PARTITIONS)
    write_events(source / "more", visits(1800, 200), 1)  # another partition
    (source / "more" / "0" / "events.jsonl").rename(source / "more" / "events.jsonl")
    (source / "more" / "0").rmdir()
    figures = ClusterProcess(tmp_path, str(source), 5, 3, "--until-end", "--json").finish()
    assert figures["ledger"]["sound"] and len(figures["ledger"]["lines"]) == PARTITIONS + 1
    check_posterior(tmp_path / "run", [*events, *visits(1500, 300), *visits(1800, 200)])


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr("pbodl.streaming.cluster.cluster_session.HUNG", 4.0)
    events = visits(0, 4000)
    write_events(tmp_path / "events", events, PARTITIONS)

    def ready(number: int) -> bool:
        return number == 0 and sum(journalled(tmp_path)) > 40_000

    def stop(number: int) -> bool:
        found = sorted(actors("StreamActor"), key=lambda process: process.pid)
        if found:
            found[0].send_signal(signal.SIGSTOP)
        return bool(found)

    options = Options(str(tmp_path / "events"), tmp_path / "run", JOIN, until_end=True, merge="add", workers=2)
    with Chaos(ready, stop) as chaos:
        figures = online_on_ray(SETTINGS, options, ClusterOptions(shards=2, rows=16, half=False))
    assert chaos.strikes == 1 and figures["ledger"]["sound"]
    check_posterior(tmp_path / "run", events)


@pytest.mark.slow
@needs_redis
def test_redis_streams_whose_server_dies_too(tmp_path, redis_server: RedisServer):
    names = [f"clicks-{part}" for part in range(PARTITIONS)]
    sinks = [RedisSink(redis_server.address(name), 7) for name in names]

    def send(new: list[dict]) -> None:
        for part, sink in enumerate(sinks):
            own = [event for event in new if int(event["id"][1:]) % PARTITIONS == part]
            if own:
                sink.send(own)
        if random.Random(len(new)).random() < 0.2:
            redis_server.restart()

    source = redis_server.address(",".join(names))
    kinds = {"worker": max(KILLS // 3, 1), "shard": max(KILLS // 3, 1), "coordinator": max(KILLS // 10, 1)}
    events = torment(tmp_path, source, send, kinds, seed=1)
    figures = ClusterProcess(tmp_path, source, 4, 1, "--until-end", "--json").finish()
    assert figures["ledger"]["sound"] and figures["events"] == len(events), figures
    check_posterior(tmp_path / "run", events)


@pytest.mark.slow
class TestKafka:
    """The same on a real broker, which is killed as well."""

    pytestmark = needs_kafka

    def test_a_topic_whose_broker_dies_too(self, tmp_path, kafka: KafkaBrokers):
        source = kafka.create("clicks", partitions=PARTITIONS)
        times = [0]

        def send(new: list[dict]) -> None:
            sink = KafkaSink(source, 7)
            sink.send(new)
            sink.close()
            times[0] += 1
            if times[0] % 4 == 0:
                kafka.kill()
                kafka.start()

        kinds = {"worker": max(KILLS // 3, 1), "shard": max(KILLS // 3, 1), "coordinator": max(KILLS // 10, 1)}
        events = torment(tmp_path, source, send, kinds, seed=2)
        figures = ClusterProcess(tmp_path, source, 2, 2, "--until-end", "--json").finish()
        assert figures["ledger"]["sound"] and figures["events"] == len(events), figures
        check_posterior(tmp_path / "run", events)
