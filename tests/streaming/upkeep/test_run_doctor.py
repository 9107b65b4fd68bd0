"""`pbodl doctor`: a sound run, and one thing wrong after the other."""

import shutil
import time
from pathlib import Path

import pytest

from pbodl.errors import InputError
from pbodl.models.snapshot import load, snapshots
from pbodl.publishing.curves import Curves
from pbodl.publishing.model_folder import ModelFolder
from pbodl.publishing.parts_manifest import write_parts
from pbodl.publishing.publisher import Publisher
from pbodl.publishing.watch_file import write_watch
from pbodl.streaming.upkeep import run_doctor
from pbodl.streaming.upkeep.run_doctor import PROBLEM, examine
from tests.command_line import run_pbodl
from tests.streaming.traffic import traffic
from tests.streaming.upkeep.test_run_migration import stopped


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a learner, with two snapshots, a publication, figures and what is watched."""
    run = tmp_path_factory.mktemp("doctor") / "run"
    learner = stopped(run, traffic(600))
    learner.save()
    publisher = Publisher(learner.model, run / "published")
    publisher.publish()
    publisher.close()
    figures = {"rows": 50_000.0, "ctr": 0.2, "calibration": 1.02}
    Curves(run).append({"time": time.time(), "rows": 1, "models": {"pair-fm": {"window": figures}}})
    write_watch(run, {"fields": [{"field": "ad", "drift": 0.02, "missing": 0.0, "new": 0.01}], "martingale": 1.1})
    return run


@pytest.fixture
def run(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_doctor, "writer_of", lambda run: "pbodl online")
    shutil.copytree(sound, tmp_path / "run")
    return tmp_path / "run"


def problems(run: Path, published: str | None = None) -> dict[str, str]:
    return {finding.about: finding.told for finding in examine(run, published) if finding.kind == PROBLEM}


def test_a_sound_run_has_no_problem(run):
    assert problems(run) == {}


def test_a_stopped_learner_is_told_by_the_command(sound):
    done = run_pbodl("doctor", sound, "--json")
    found = done.json
    assert done.code == 1 and found["problems"] == 1
    assert found["findings"][0]["about"] == "learner" and "no learner runs" in found["findings"][0]["told"]


def test_damaged_snapshots(run):
    path = snapshots(run)[-1] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert "does not match its checksum" in problems(run)["snapshots"]
    (snapshots(run)[0] / "manifest.json").write_text("{}")
    assert "no snapshot of" in problems(run)["snapshots"]


def test_a_learner_that_hangs(run, monkeypatch):
    later = time.time() + 3600.0
    monkeypatch.setattr(run_doctor.time, "time", lambda: later)
    found = problems(run)
    assert "no figures for 60 minutes" in found["learner"] and "60 minutes old" in found["snapshots"]
    assert "60 minutes old, although a learner runs" in found["publications"]


def test_alarms_events_capacity_guards(run, monkeypatch):
    newest = run_doctor.load_snapshot(run)
    online = {**newest.facts["online"], "counts": [1000, 50, 3], "silent_since": 86400.0}
    online["watchdog"] = {**online["watchdog"], "held": "the CTR of the learned rows is 0.9"}
    counters = {**newest.counters, "evicted": 10**6, "rejected_linear": 400}
    changed = newest._replace(facts={**newest.facts, "online": online}, counters=counters)
    monkeypatch.setattr(run_doctor, "load_snapshot", lambda path: changed)
    monkeypatch.setattr(type(newest.model.spec), "capacity", 5, raising=False)
    found = problems(run)
    assert "publishing is held: the CTR" in found["alarms"] and "50 of 1,050 events" in found["events"]
    assert "no click has come since 1970-01-02" in found["clicks"]
    assert "dropped for want of room" in found["capacity"] and "rejected 400 updates" in found["guards"]


def test_level_and_drift(run):
    figures = {"rows": 50_000.0, "ctr": 0.2, "calibration": 1.4}
    Curves(run).append({"time": time.time(), "rows": 2, "models": {"pair-fm": {"window": figures}}})
    fields = [
        {"field": "ad", "drift": 0.4, "missing": 0.5, "new": 0.0},
        {"field": "user", "drift": 0.1, "missing": 0.0, "new": 0.9},
    ]
    write_watch(run, {"fields": fields, "martingale": 5.0})
    assert "1.40 times the clicks" in problems(run)["level"] and "'ad' have drifted" in problems(run)["drift"]
    notes = [finding.told for finding in examine(run) if finding.kind != PROBLEM]
    assert any("90% of the values of the field 'user' are new" in told for told in notes)
    assert any("5.0 times as much" in told for told in notes)
    # Few clicks: chance alone can do that.
    figures |= {"rows": 100.0, "calibration": 1.4}
    Curves(run).append({"time": time.time(), "rows": 3, "models": {"pair-fm": {"window": figures}}})
    assert "level" not in problems(run)


def test_publications_leftovers_disk_and_migrations(run, monkeypatch):
    full = next((run / "published").glob("*.full"))
    full.write_bytes(full.read_bytes()[:-1] + b"x")
    assert "cannot be served" in problems(run)["publications"]
    full.unlink()
    assert "nothing is published" in problems(run, str(run / "published"))["publications"]
    (run / "snapshots" / "rolled-back-000000000009").mkdir()
    (run / "curves.jsonl.damaged").touch()
    assert sum(finding.about == "leftovers" for finding in examine(run)) == 2
    (run / "migrate.refused").write_text("it cannot be narrowed")
    assert "was refused: it cannot be narrowed" in problems(run)["migration"]
    monkeypatch.setattr(run_doctor.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 10))
    assert "of the disk are free" in problems(run)["disk"]


def test_all_parts_of_a_folder_are_looked_at(run):
    for path in (run / "published").glob("*.full"):
        path.unlink()
    folder, model = ModelFolder(run / "published"), load(run)
    publishers = [Publisher(model, folder.part(number, 2), alone=False) for number in range(2)]
    for publisher in publishers:
        publisher.publish()
    write_parts(folder, 1, [publisher.lineage for publisher in publishers], time.time(), {})
    assert "publications" not in problems(run)
    broken = run / "published" / "part-1-of-2" / "000000000001.full"
    broken.write_bytes(broken.read_bytes()[:-1] + b"x")
    assert "part-1-of-2 cannot be served" in problems(run)["publications"]
    manifest = run / "published" / "000000000001.parts"
    manifest.write_bytes(manifest.read_bytes().replace(b"1", b"2", 1))
    assert "the newest manifest" in problems(run)["publications"]


def test_no_run_is_bad_input(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="pbodl online --out"):
            examine(path)
