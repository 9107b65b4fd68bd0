"""`pbodl online` and a broker that does not answer: it is told, it shows in /metrics, signals end it, and no secret shows."""

import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from pbodl.models.snapshot import load_snapshot, snapshots
from pbodl.streaming.sources.redis_stream import RedisSink
from pbodl.training.config import to_toml
from tests.patience import PATIENCE, happens
from tests.ports import free_port
from tests.streaming.redis_server import RedisServer, needs_redis
from tests.streaming.traffic import config, traffic

pytestmark = needs_redis
SECRET = "hunter2"


class Learner:
    """`pbodl online` as a process, and what it says."""

    def __init__(self, folder: Path, source: str, *more: str, **environment: str) -> None:
        (folder / "online.toml").write_text(to_toml(config(snapshot_every=0.05)))
        self._port = free_port()
        command = [sys.executable, "-m", "pbodl.cli", "online", "--source", source, "--config", str(folder / "online.toml")]
        command += ["--out", str(folder / "run"), "--metrics-port", str(self._port), *more]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
        self.lines: list[str] = []
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def said(self) -> str:
        return "".join(self.lines)

    def until(self, happened) -> None:
        assert happens(lambda: happened() or self.process.poll() is not None), self.said()
        assert self.process.poll() is None or happened(), self.said()

    def metrics(self) -> str:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5).read().decode()
        except OSError:
            return ""

    def wait(self) -> int:
        try:
            code = self.process.wait(PATIENCE)
        finally:
            self.process.kill()
        self._listening.join()
        assert "Traceback" not in self.said(), self.said()
        return code

    def stop(self, number: int) -> None:
        self.process.send_signal(number)
        assert self.wait() == 128 + number, self.said()


@pytest.mark.parametrize(
    ("source", "number"), [("redis://127.0.0.1:1/clicks", signal.SIGTERM), ("kafka://127.0.0.1:1/clicks", signal.SIGINT)]
)
def test_a_broker_that_is_not_there(tmp_path: Path, source: str, number: int) -> None:
    learner = Learner(tmp_path, source)
    learner.until(lambda: f"waiting: {source} does not answer" in " ".join(learner.said().split()))
    learner.until(lambda: 'pbodl_online_broker_away{reason="' in learner.metrics())
    assert "does not answer" in learner.metrics() and not snapshots(tmp_path / "run")
    learner.stop(number)


def test_a_broker_that_hangs_and_answers_again(tmp_path: Path, redis_server: RedisServer) -> None:
    events = traffic(400)
    sink = RedisSink(redis_server.address("clicks"), 20)
    sink.send(events[:200])
    learner = Learner(tmp_path, redis_server.address("clicks"))
    learner.until(lambda: saved(tmp_path) == 200)
    redis_server.pause()
    try:
        learner.until(lambda: "does not answer in time" in learner.said())
        learner.until(lambda: 'pbodl_online_broker_away{reason=""}' not in learner.metrics())
    finally:
        redis_server.resume()
    learner.until(lambda: "answers again" in learner.said())
    RedisSink(redis_server.address("clicks"), 20).send(events[200:])
    learner.until(lambda: saved(tmp_path) == len(events))
    redis_server.pause()
    try:
        learner.stop(signal.SIGTERM)
    finally:
        redis_server.resume()
    assert saved(tmp_path) == len(events)


def saved(folder: Path) -> int:
    return load_snapshot(folder / "run").facts["rows"] if snapshots(folder / "run") else 0


def test_what_waiting_does_not_mend_ends_at_once(tmp_path: Path, redis_server: RedisServer) -> None:
    redis_server.client.set("text", "x")
    wrong = Learner(tmp_path, redis_server.address("text"))
    assert wrong.wait() == 2 and "the key is not a stream" in wrong.said()
    redis_server.client.config_set("requirepass", "other")
    refused = Learner(tmp_path, redis_server.address("clicks"), PBODL_REDIS_PASSWORD=SECRET)
    assert refused.wait() == 2 and "refuses the login" in refused.said() and SECRET not in refused.said()
    told = Learner(tmp_path, f"redis://:{SECRET}@127.0.0.1:{redis_server.port}/clicks")
    assert told.wait() == 2 and "holds a secret" in told.said() and SECRET not in told.said()


def test_a_secret_shows_nowhere(tmp_path: Path, redis_server: RedisServer) -> None:
    sink = RedisSink(redis_server.address("clicks"), 20)
    sink.send([*traffic(200), {"event": "clack"}])
    redis_server.client.config_set("requirepass", SECRET)
    learner = Learner(tmp_path, redis_server.address("clicks"), "--publish", str(tmp_path / "m"), PBODL_REDIS_PASSWORD=SECRET)
    learner.until(lambda: saved(tmp_path) > 0 and "pbodl_online_bad_total 1" in learner.metrics())
    arguments = Path(f"/proc/{learner.process.pid}/cmdline")
    shown = [learner.metrics(), arguments.read_text() if arguments.exists() else ""]
    redis_server.kill()
    learner.until(lambda: "waiting:" in learner.said())
    learner.stop(signal.SIGTERM)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "dead-letters.jsonl" and path.stat().st_size for path in files)
    shown += [learner.said(), *(path.read_bytes().decode("latin-1") for path in files)]
    assert not any(SECRET in text for text in shown)
