"""`pbodl up`: its trainer goes on exactly where it stopped, and all of it starts, serves and stops with one command."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.experiments.live import UpSettings, up
from pbodl.experiments.live_training import CHUNK, SERVED, LiveTraining, train_live
from pbodl.models.snapshot import load_snapshot
from pbodl.publishing.curves import read, sealed_line
from pbodl.serving.models.follower import PUBLISHED, Follower
from tests.patience import PATIENCE
from tests.ports import free_port
from tests.publishing.published import assert_same_bits
from tests.serving.services import state_of

ROWS = 40_000


def stop_after(chunks: int):
    """Says stop after so many chunks; never waits."""
    left = iter(range(chunks - 1))
    return lambda seconds: next(left, None) is None


def states(training: LiveTraining) -> dict[str, np.ndarray]:
    """All that the models and their figures have learned."""
    parts = {name: one.model for name, one in training.learners.items()} | {"best": training.best}
    parts |= {f"figures of {name}": one.figures for name, one in training.learners.items()}
    return {f"{part}.{name}": array for part, holder in parts.items() for name, array in holder.state().items()}


def test_stopped_and_resumed_is_never_stopped(tmp_path):
    train_live(tmp_path / "ref", ROWS, 1e9, stop_after(12))
    train_live(tmp_path / "comp", ROWS, 1e9, stop_after(5))
    train_live(tmp_path / "comp", None, 1e9, stop_after(7))
    ref, comp = (LiveTraining(tmp_path / name) for name in ("ref", "comp"))
    assert ref.rows == comp.rows == 12 * CHUNK
    assert ref.stream_time == comp.stream_time
    assert_same_bits(states(comp), states(ref))


def test_what_is_published_is_what_was_learned(tmp_path):
    train_live(tmp_path, ROWS, 1e9, stop_after(6))
    follower = Follower(tmp_path / PUBLISHED)
    follower.poll()
    assert follower.version is not None and follower.version.counters["rows_learned"] == 6 * CHUNK
    assert_same_bits(state_of(follower.version), load_snapshot(tmp_path).model.state())


def test_after_an_error_nothing_half_learned_is_saved(tmp_path, monkeypatch):
    train_live(tmp_path, ROWS, 1e9, stop_after(2))
    monkeypatch.setattr("pbodl.baselines.ftrl.FTRLProximal._learn", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_live(tmp_path, ROWS, 1e9, stop_after(2))
    training = LiveTraining(tmp_path)
    assert training.rows == 2 * CHUNK
    assert {one.model.rows_learned for one in training.learners.values()} == {2 * CHUNK}


def test_traffic_comes_to_an_end(tmp_path):
    train_live(tmp_path, 1234, 1e9, lambda seconds: False)
    assert LiveTraining(tmp_path).rows == 1234


def test_the_trainer_keeps_its_pace(tmp_path):
    waits = []
    train_live(tmp_path, 4 * CHUNK, 100.0, lambda seconds: waits.append(seconds) or False)
    # Nobody has waited, so that the trainer runs ahead by all the time that the rows should have taken, but for its own.
    assert waits == sorted(waits) and 0.7 * 4 * CHUNK / 100 < waits[-1] <= 4 * CHUNK / 100


def test_points_of_the_curve(tmp_path, monkeypatch):
    monkeypatch.setattr("pbodl.experiments.live_training.POINT_EVERY", 0.0)
    train_live(tmp_path, ROWS, 1e9, stop_after(3))
    points = read(tmp_path)
    assert [point["rows"] for point in points] == [CHUNK, 2 * CHUNK, 3 * CHUNK]
    assert [*points[-1]["models"]] == [SERVED, "FTRL", "AdPredictor"]
    figures = points[-1]["models"][SERVED]
    assert figures["window"]["rows"] == figures["progressive"]["rows"] == 3 * CHUNK and 0.4 < figures["window"]["auc"] < 0.9
    assert points[-1]["best"]["window"]["auc"] > figures["window"]["auc"]
    example = points[-1]["example"]
    assert {"C14", "device_id", "site_id", "time"} < set(example) and not {"click", "p_true", "hour"} & set(example)
    # A trainer that was killed after its last snapshot writes these points once more, not twice.
    line = json.dumps({"n": 4, "rows": 9 * CHUNK}).encode() + b"\n"
    (tmp_path / "curves.jsonl").open("ab").write(sealed_line(line))
    train_live(tmp_path, ROWS, 1e9, stop_after(1))
    assert [point["rows"] for point in read(tmp_path)] == [CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK]


def test_another_number_of_rows_is_refused(tmp_path):
    train_live(tmp_path, ROWS, 1e9, stop_after(1))
    with pytest.raises(InputError, match=f"begun with --rows {ROWS}"):
        LiveTraining(tmp_path, ROWS + 1)


def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"127\.0\.0\.1:{port}.*choose another --port"):
            up(UpSettings(str(tmp_path), port))
    assert not (tmp_path / "snapshots").exists()


def start(folder, *options: str) -> tuple[subprocess.Popen, int]:
    port = free_port()
    command = [sys.executable, "-m", "pbodl.cli", "up", "--out", str(folder), "--port", str(port), "--rows", str(ROWS), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True), port


def wait_until_told(process: subprocess.Popen, what: str) -> str:
    """The line that holds `what`; fails when the process ends before."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if what in line:
            return line
    raise AssertionError(f"{what!r} was never told: {''.join(lines)}")


def test_one_command_starts_serves_and_stops(tmp_path):
    process, port = start(tmp_path)
    try:
        line = wait_until_told(process, "curl ")
        body = line[line.index("-d '") + 4 : line.rindex("'")]
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/score", body.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            assert all(0 < ctr < 1 for ctr in json.load(response)["ctr"])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as response:
            assert b"PBODL live" in response.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
    assert load_snapshot(tmp_path).facts["rows"] > 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["trainer", "server"])
def test_if_a_part_dies_all_of_it_ends(tmp_path, victim):
    import psutil

    process, _ = start(tmp_path, "--rate", "500")
    try:
        wait_until_told(process, "curl ")
        children = [one for one in psutil.Process(process.pid).children() if "spawn_main" in " ".join(one.cmdline())]
        serving = {one.pid for one in children if any("spawn_main" in " ".join(below.cmdline()) for below in one.children())}
        dying = next(one for one in children if (one.pid in serving) == (victim == "server"))
        dying.kill()
        assert f"the {victim} ended" in wait_until_told(process, "ended with code")
        assert process.wait(PATIENCE) == 1
        deadline = time.monotonic() + PATIENCE
        while any(one.is_running() for one in children) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(one.is_running() for one in children)
    finally:
        process.kill()


@pytest.mark.slow
def test_nothing_is_left_when_it_is_killed(tmp_path):
    import psutil

    process, _ = start(tmp_path, "--rate", "500")
    wait_until_told(process, "curl ")
    below = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(below, timeout=PATIENCE)
    assert not alive
