"""Going on after an end that nobody announced: the same bits as if there had been none."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pbodl.errors import InputError
from pbodl.models import snapshot
from pbodl.models.deep_probit import FMMLP
from pbodl.models.snapshot import load_snapshot, snapshots
from pbodl.training import run as online
from pbodl.training.config import Config, to_toml
from pbodl.training.session import Interrupted, train
from tests.click_log import click_log
from tests.training.logs import small_config

PIECES, MANY = 16, 120  # files of the log, and of the one for the slow test; a chunk ends with its file
PIECE = 50  # rows of a file
LIMIT = 300.0  # seconds that a process may take: for a compiler on a busy machine, no measure of speed


class Log:
    """A log of many small files with a bad row now and then, and a run over it that was never stopped."""

    def __init__(self, folder: Path, pieces: int = PIECES) -> None:
        self.folder, self.pieces = folder, pieces
        rows = click_log(pieces * PIECE, seed=3)
        for row in rows[::97]:
            row["click"] = 7
        (folder / "log").mkdir()
        for piece in range(pieces):
            table = pa.Table.from_pylist(rows[piece * PIECE : (piece + 1) * PIECE])
            pa.parquet.write_table(table, folder / "log" / f"{piece:03d}.parquet")
        # After every chunk a snapshot: a kill then often meets one that is being written.
        training = {"snapshot_every": 0, "negative_rate": 0.6, "half_life": "12h", "every": "6h"}
        self.config: Config = small_config(training=training, capacity=60)
        (folder / "config.toml").write_text(to_toml(self.config), encoding="utf-8")
        self.ref = folder / "ref"
        self.train(self.ref)

    def train(self, run: Path, resume: bool = False) -> dict:
        bad = str(run.with_suffix(".jsonl"))
        paths = [str(self.folder / "log")]
        return train(self.config, paths, run, resume=resume, bad_rows="skip", bad_rows_file=bad, keep_names=True)

    def start(self, run: Path) -> subprocess.Popen:
        """A process that trains into the folder, or goes on there."""
        command = [sys.executable, "-m", "pbodl.cli", "train", str(self.folder / "log"), "--out", str(run), "--keep-names"]
        command += ["--config", str(self.folder / "config.toml")]
        command += ["--bad-rows", "skip", "--bad-rows-file", str(run.with_suffix(".jsonl"))]
        command += ["--resume"] if snapshots(run) else []
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def assert_same(self, run: Path) -> None:
        """All that the run has learned and counted is, byte for byte, as in the one that was never stopped."""
        comp, ref = snapshots(run)[-1], snapshots(self.ref)[-1]
        assert sorted(file.name for file in comp.iterdir()) == ["manifest.json", "metrics.safetensors", "model.safetensors"]
        for file in ref.iterdir():
            assert (comp / file.name).read_bytes() == file.read_bytes(), file.name
        assert (run / "metrics.jsonl").read_bytes() == (self.ref / "metrics.jsonl").read_bytes()
        assert bad_rows(run) == bad_rows(self.ref)
        assert pa.parquet.read_table(run / "names.parquet") == pa.parquet.read_table(self.ref / "names.parquet")


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Log:
    return Log(tmp_path_factory.mktemp("resume"))


def bad_rows(run: Path) -> list[dict]:
    """What the file of bad rows says, but for the folder of the log."""
    lines = run.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    return [record | {"file": Path(record["file"]).name} for record in map(json.loads, lines)]


def newest(run: Path) -> int:
    return max([int(path.name) for path in snapshots(run)], default=0)


def wait_for(process: subprocess.Popen, run: Path, number: int) -> None:
    """Until the snapshot of that number is there, or the process has ended."""
    deadline = time.monotonic() + LIMIT
    while newest(run) < number and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def killed_run(log: Log, kills: int, seed: int) -> Path:
    """A run that was killed again and again, at random places of the log, and then went on to its end."""
    rng = np.random.default_rng(seed)
    run = log.folder / f"killed-{seed}"
    most = log.pieces // (kills + 1)
    for _ in range(kills):
        process = log.start(run)
        wait_for(process, run, newest(run) + int(rng.integers(1, max(most, 2))))
        time.sleep(rng.uniform(0.0, 0.02))
        process.kill()
        _, err = process.communicate(timeout=LIMIT)
        assert process.returncode == -signal.SIGKILL, err
    process = log.start(run)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    return run


def test_killed_twice(log):
    log.assert_same(killed_run(log, kills=2, seed=1))


@pytest.mark.slow
def test_killed_twenty_times(tmp_path):
    log = Log(tmp_path, MANY)
    log.assert_same(killed_run(log, kills=20, seed=2))


def test_killed_before_the_first_snapshot(log):
    # As such a kill leaves it: a configuration, perhaps half of it, and a snapshot that was being written.
    run = log.folder / "early"
    (run / "snapshots" / ".writing-000000000001").mkdir(parents=True)
    (run / "config.toml").write_text("[sch")
    log.train(run)
    log.assert_same(run)


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


@pytest.mark.parametrize("place", ["before the snapshot", "after the snapshot"])
@pytest.mark.parametrize("chunk", [1, PIECES])
def test_killed_around_a_snapshot(log, tmp_path, monkeypatch, place, chunk):
    run = tmp_path / "run"
    saves = []

    def save(*arguments):
        saves.append(arguments)
        if len(saves) > chunk or (len(saves) == chunk and place == "before the snapshot"):
            raise Killed
        snapshot.save(*arguments)
        if len(saves) == chunk:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(online, "save", save)
        log.train(run)
    log.train(run, resume=bool(snapshots(run)))
    log.assert_same(run)


@pytest.mark.parametrize(("number", "chunk"), [(signal.SIGINT, 1), (signal.SIGTERM, 7), (signal.SIGINT, PIECES)])
def test_stopped_by_a_signal(log, tmp_path, monkeypatch, number, chunk):
    run = tmp_path / "run"
    chunks = []

    def show(*_):
        chunks.append(1)
        if len(chunks) == chunk:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch, pytest.raises(Interrupted) as stop:
        patch.setattr("pbodl.training.session.TrainingBar.show", show)
        log.train(run)
    assert stop.value.code == 128 + number
    assert signal.getsignal(number) is before
    assert len(chunks) == chunk
    assert load_snapshot(run).facts["position"]["source"] == chunk - 1
    assert (run / "report.html").exists()
    log.train(run, resume=True)
    log.assert_same(run)


def test_a_process_that_gets_a_signal(log):
    run, number = log.folder / "signal", signal.SIGINT
    process = log.start(run)
    wait_for(process, run, 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + number, err
    assert "stopped and saved; continue with the same command and --resume" in " ".join(err.split())
    assert "Traceback" not in err
    log.train(run, resume=True)
    log.assert_same(run)


def test_a_finished_run_goes_on_with_new_files(log, tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    run = tmp_path / "run"
    files = sorted((log.folder / "log").iterdir())
    for part in (files[:5], files[5:]):
        for file in part:
            shutil.copy(file, folder)
        bad = str(run.with_suffix(".jsonl"))
        train(log.config, [str(folder)], run, resume=run.exists(), bad_rows="skip", bad_rows_file=bad, keep_names=True)
    log.assert_same(run)


def test_the_newest_snapshot_is_damaged(log, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(log.ref, run)
    shutil.copy(log.ref.with_suffix(".jsonl"), run.with_suffix(".jsonl"))
    (snapshots(run)[-1] / "model.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="does not match its checksum.*using the snapshot before it"):
        log.train(run, resume=True)
    log.assert_same(run)


def test_nothing_left_to_learn(log, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(log.ref, run)
    shutil.copy(log.ref.with_suffix(".jsonl"), run.with_suffix(".jsonl"))
    ref = json.loads((log.ref / "metrics.jsonl").read_text().splitlines()[-1])
    summary = log.train(run, resume=True)
    assert summary["days"][-1] == {name: value for name, value in ref.items() if name != "kind"}
    assert [path.name for path in snapshots(run)] == [path.name for path in snapshots(log.ref)]
    log.assert_same(run)


def test_half_a_chunk_is_not_saved(log, tmp_path, monkeypatch):
    run, learn = tmp_path / "run", FMMLP._learn

    def fails_in_the_middle(model, batch):
        if model.rows_learned > 5 * PIECE:
            learn(model, batch.rows(0, len(batch) // 2))
            raise MemoryError
        return learn(model, batch)

    monkeypatch.setattr(FMMLP, "_learn", fails_in_the_middle)
    with pytest.raises(MemoryError):
        log.train(run)
    monkeypatch.undo()
    log.train(run, resume=True)
    log.assert_same(run)


def test_another_period_is_refused(log, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(log.ref, run)
    config = small_config(training={"snapshot_every": 0, "negative_rate": 0.6, "half_life": "12h", "every": "1h"}, capacity=60)
    with pytest.raises(InputError, match="trained with another `every`"):
        train(config, [str(log.folder / "log")], run, resume=True)
