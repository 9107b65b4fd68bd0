"""`pbodl up --engine ray --source kafka`: it says what is missing, its traffic continues, and all of it runs with one command."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pbodl.errors import InputError
from pbodl.experiments.cluster.cluster_live import check_up
from pbodl.experiments.cluster.event_traffic import counted, send_traffic
from pbodl.models.snapshot import snapshots
from tests.command_line import run_pbodl
from tests.patience import PATIENCE, until
from tests.streaming.kafka_broker import needs_kafka

ROWS = 3000


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def send(self, events: Any) -> None:
        self.events += events

    def close(self) -> None:
        pass


def stop_after(steps: int):
    left = iter(range(steps))
    return lambda seconds: next(left, None) is None


def test_traffic_that_was_stopped_continues_with_the_next_event(tmp_path):
    ref, comp = Kept(), Kept()
    (tmp_path / "ref").mkdir()
    assert send_traffic(tmp_path / "ref", ROWS, 1e5, ref, lambda seconds: False)
    assert sum(event["event"] == "impression" for event in ref.events) == ROWS
    assert any(event["event"] == "click" for event in ref.events)
    assert counted(tmp_path) == (0, None)
    assert not send_traffic(tmp_path, ROWS, 2500.0, comp, stop_after(3))
    assert len(comp.events) == 1500
    assert counted(tmp_path) == (1500, ROWS)
    assert send_traffic(tmp_path, None, 1e5, comp, lambda seconds: False)
    assert comp.events == ref.events


def test_what_is_missing_is_told_with_the_line_to_type(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="give kafka, or the address of a topic"):
        check_up("redis://127.0.0.1/events")
    find = importlib.util.find_spec
    for library in ("ray", "confluent_kafka"):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, gone=library: None if name == gone else find(name))
        with pytest.raises(InputError, match=f"needs {library}, which is not installed; run: pip install .*{library[:3]}"):
            check_up("kafka")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "found")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"needs Java 17.*run: apt-get install default-jre-headless"):
        check_up("kafka")
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/java")
    monkeypatch.setenv("PBODL_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=r"there is no Kafka broker in .*run: make kafka"):
        check_up("kafka")
    check_up("kafka://127.0.0.1:9092/events")  # a broker of one's own needs neither


@pytest.mark.parametrize("given", [["--engine", "ray"], ["--source", "kafka"], ["--engine", "spark", "--source", "kafka"]])
def test_engine_and_source_belong_together(given):
    refused = run_pbodl("up", *given)
    assert refused.code == 2 and "give --engine ray and --source kafka together" in refused.prose


class TestWithABroker:
    pytestmark = needs_kafka

    @pytest.mark.slow
    def test_all_of_it(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        command = [sys.executable, "-m", "pbodl.cli", "up", "--engine", "ray", "--source", "kafka", "--rows", str(ROWS)]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*command, "--rate", "2000", "--port", "0", "--out", str(tmp_path / "run")], stdout=file, stderr=file,
                env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
            )  # fmt: skip
        try:
            until(lambda: "opens in" in log.read_text() or process.poll() is not None, "starting")
            url = re.findall(r"(http://127\.0\.0\.1:\d+) opens", log.read_text())[0]

            def told(path: str) -> dict[str, Any]:
                assert process.poll() is None, log.read_text()
                try:
                    with urllib.request.urlopen(url + path, timeout=PATIENCE) as response:
                        return json.load(response)  # type: ignore[no-any-return]
                except (urllib.error.URLError, ConnectionError):
                    return {}

            until(lambda: told("/v1/model").get("rows_learned", 0) > 500, "learning")
            until(lambda: bool(told("/v1/curves").get("points")), "showing curves")
            assert "kafka://127.0.0.1:" in log.read_text()
        finally:
            process.send_signal(signal.SIGINT)
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert code == 0, log.read_text()
        assert snapshots(tmp_path / "run")
        assert list((tmp_path / "run" / "published").glob("*.parts"))
        assert {path.name for path in (tmp_path / "run" / "published").glob("part-*")} == {"part-0-of-2", "part-1-of-2"}
