"""Snapshots: written whole or not at all, checked when read, kept a few deep, and readable by later releases."""

import ast
import hashlib
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.models import snapshot
from pbodl.models.snapshot import load, load_snapshot, rollback, save, snapshots
from pbodl.training.config import check_config, read_config
from pbodl.training.session import train
from tests.click_log import PLAIN, click_log
from tests.contract import assert_same_state

LOG = click_log(60)
PACKAGE = Path(pbodl.__file__).parent
FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("run-*"))
UNSAFE = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def learned(rows: int = 60) -> pbodl.FMMLP:
    model = pbodl.FMMLP(PLAIN, dim=2, hidden=(3,))
    model.learn(LOG[:rows])
    return model


def names(run: Path) -> list[int]:
    return [int(path.name) for path in snapshots(run)]


def edit_manifest(path: Path, without: str = "", **changes) -> None:
    """Change a manifest, and its checksum with it."""
    manifest = json.loads((path / "manifest.json").read_text()) | changes
    manifest = {name: value for name, value in manifest.items() if name not in ("checksum", without)}
    content = json.dumps(manifest, sort_keys=True).encode()
    manifest["checksum"] = hashlib.blake2b(content, digest_size=16).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def run(tmp_path) -> Path:
    """Two snapshots, of 30 and of 60 rows."""
    for rows in (30, 60):
        save(learned(rows), tmp_path, {"rows": rows}, {"more": {"numbers": np.arange(rows)}})
    return tmp_path


def test_what_was_saved_comes_back(run):
    comp = load_snapshot(run)
    assert_same_state(comp.model, learned())
    assert (comp.model.schema, comp.model.spec, comp.facts) == (PLAIN, learned().spec, {"rows": 60})
    np.testing.assert_array_equal(comp.parts["more"]["numbers"], np.arange(60))
    assert comp.path == snapshots(run)[-1]
    # One snapshot's own folder will do as well.
    assert_same_state(load(snapshots(run)[0]), learned(30))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_arrays_of_any_kind_come_back(tmp_path, dtype):
    grid = np.arange(12).reshape(3, 4).astype(dtype)
    given = {"grid": grid, "turned": grid.T, "some": grid[:, ::2], "one": grid[1, 1].reshape(()), "none": grid[:0]}
    comp = load_snapshot(save(learned(1), tmp_path, {}, {"more": given})).parts["more"]
    assert comp.keys() == given.keys()
    for name, array in given.items():
        assert comp[name].dtype == array.dtype
        np.testing.assert_array_equal(comp[name], array, strict=True)


def test_the_last_few_are_kept(tmp_path):
    for _ in range(snapshot.KEPT + 2):
        save(learned(1), tmp_path)
    assert names(tmp_path) == [3, 4, 5]
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == [path.name for path in snapshots(tmp_path)]


def cut(path: Path) -> None:
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def flip(path: Path) -> None:
    content = bytearray((path / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "model.safetensors").write_bytes(content)


def empty_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("")


def other_facts(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["facts"]["rows"] += 1
    (path / "manifest.json").write_text(json.dumps(manifest))


def no_table(path: Path) -> None:
    (path / "manifest.json").write_text("[1]")


DAMAGE = {
    "cut": (cut, "model.safetensors does not match its checksum"),
    "a flipped bit": (flip, "model.safetensors does not match its checksum"),
    "a missing file": (lambda path: (path / "more.safetensors").unlink(), r"is damaged \(FileNotFoundError"),
    "an empty manifest": (empty_manifest, r"is damaged \(JSONDecodeError"),
    "no manifest": (lambda path: (path / "manifest.json").unlink(), r"is damaged \(FileNotFoundError"),
    "not a table": (no_table, r"is damaged \(TypeError"),
    "other facts": (other_facts, "manifest.json does not match its own checksum"),
    "no facts": (lambda path: edit_manifest(path, without="facts"), r"is damaged \(KeyError: 'facts'"),
    "a later format": (lambda path: edit_manifest(path, format=99), "its format is 99, and this release reads up to .: upgrade"),
    "an unknown kind": (lambda path: edit_manifest(path, kind="gbdt"), "its model is of kind 'gbdt'; this release knows: .*fm-mlp"),
    "another spec": (lambda path: edit_manifest(path, spec={"dim": 5}), "is refused: the state"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_one_is_refused_and_the_one_before_used(run, damage):
    spoil, words = DAMAGE[damage]
    first, newest = snapshots(run)
    spoil(newest)
    with pytest.warns(UserWarning, match=f"{newest.name} is (refused|damaged).*using the snapshot before it, {first.name}") as told:
        assert_same_state(load(run), learned(30))
    assert len(told) == 1
    with pytest.warns(UserWarning, match=words):
        load(run)
    # Going on from there takes a number of its own.
    save(learned(), run)
    assert names(run) == [1, 2, 3]
    assert_same_state(load(run), learned())


def test_when_none_is_sound(run):
    for path in snapshots(run):
        flip(path)
    with pytest.raises(InputError, match=r"no snapshot of .* is sound: .*000002 is refused.*000001 is refused"):
        load(run)
    with pytest.raises(InputError, match="does not match its checksum"):
        load(snapshots(run)[0])


def test_when_there_is_none(tmp_path):
    with pytest.raises(InputError, match="holds no snapshot; give the folder that"):
        load(tmp_path)


def test_half_written_ones_are_not_seen(run):
    # As a kill between two files leaves it: no manifest yet, and not in its place.
    beside = run / "snapshots" / ".writing-000000000003"
    shutil.copytree(snapshots(run)[-1], beside)
    (beside / "manifest.json").unlink()
    (beside / "leftover.safetensors").write_bytes(b"x")
    assert names(run) == [1, 2]
    assert_same_state(load(run), learned())
    path = save(learned(30), run)
    assert names(run) == [1, 2, 3]
    assert sorted(file.name for file in path.iterdir()) == ["manifest.json", "model.safetensors"]
    assert not beside.exists()


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_failure_while_writing_leaves_the_old_ones(run, monkeypatch, writes):
    done: list[Path] = []

    def fails(path, *pieces, write=snapshot.write_synced):
        if len(done) == writes:
            raise OSError("no space left on device")
        done.append(path)
        write(path, *pieces)

    monkeypatch.setattr(snapshot, "write_synced", fails)
    with pytest.raises(OSError, match="no space left"):
        save(learned(), run, parts={"more": {"numbers": np.arange(3)}})
    assert names(run) == [1, 2]
    assert load_snapshot(run).facts == {"rows": 60}


def test_rollback(run):
    aside, newest = rollback(run)
    assert (aside.name, newest.name) == ("rolled-back-000000000002", "000000000001")
    assert_same_state(load(run), learned(30))
    assert_same_state(load(aside), learned())
    with pytest.raises(InputError, match=r"has one snapshot; going back needs at least two"):
        rollback(run)
    save(learned(60), run)
    assert names(run) == [1, 2]
    rollback(run)
    assert_same_state(load(run), learned(30))


class Trap:
    """Unpickled, it would make itself known."""

    def __reduce__(self):
        return Path.touch, (Path("sprung"),)


def test_nothing_is_unpickled(run, monkeypatch):
    monkeypatch.chdir(run)
    newest = snapshots(run)[-1]
    content = pickle.dumps(Trap())
    (newest / "model.safetensors").write_bytes(content)
    written = {"bytes": len(content), "blake2b": snapshot._digest(content)}
    edit_manifest(newest, files={"model.safetensors": written})
    with pytest.raises(InputError, match=r"is refused: these .* bytes are not packed arrays"):
        load(newest)
    assert not Path("sprung").exists()


def test_no_module_can_unpickle():
    """But the one that reads machine code, which can do whatever a pickle can: only this user and root can write where it reads."""
    for path in set(PACKAGE.rglob("*.py")) - {PACKAGE / "_code_cache.py"}:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported = {alias.name.split(".")[0] for alias in node.names}
            else:
                imported = {str(node.module).split(".")[0]} if isinstance(node, ast.ImportFrom) else set()
            assert not imported & UNSAFE, f"{path} imports {imported & UNSAFE}"
        assert "allow_pickle" not in text, path


@pytest.mark.parametrize("release", FIXTURES, ids=lambda path: path.name)
def test_runs_of_earlier_releases_are_read(release, tmp_path, monkeypatch):
    rows = [json.loads(line) for line in (release / "log" / "day-1.jsonl").read_text(encoding="utf-8").splitlines()]
    ref = json.loads((release / "predictions.json").read_text(encoding="utf-8"))
    comp = load(release / "run").predict(rows)
    for name, column in comp._asdict().items():
        np.testing.assert_allclose(column, ref[name], rtol=1e-5, atol=1e-7, err_msg=name)
    # And they go on.
    shutil.copytree(release, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    shutil.copy("log/day-1.jsonl", "log/day-2.jsonl")
    config = check_config(read_config("run/config.toml"))
    figures = train(config, ["log/day-1.jsonl", "log/day-2.jsonl"], "run", resume=True)
    assert figures["rows"] == 2 * len(rows)


def test_there_are_runs_of_earlier_releases():
    assert FIXTURES
