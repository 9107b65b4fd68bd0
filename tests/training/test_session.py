"""A training session: what it refuses, what it leaves behind when the log is bad, sampling of negatives, and memory."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import pbodl
from pbodl.data.convert import from_data
from pbodl.data.sampling import kept_rows
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.models.snapshot import load, load_snapshot, snapshots
from pbodl.training.config import check_config, to_toml
from pbodl.training.run import Run
from pbodl.training.session import train
from tests.click_log import RICH, click_log
from tests.contract import assert_same_state
from tests.training.logs import small_config, write_log

ROWS = 400


@pytest.fixture
def log(tmp_path) -> str:
    return write_log(tmp_path / "log.parquet", ROWS)


def test_what_a_session_leaves_in_its_folder(log, tmp_path):
    run = tmp_path / "run"
    summary = train(small_config(), [log], run)
    assert sorted(path.name for path in run.iterdir()) == [".lock", "config.toml", "metrics.jsonl", "report.html", "snapshots"]
    assert len(snapshots(run)) == 1
    ref = pbodl.FMMLP(RICH, dim=3, hidden=(4,))
    ref.learn(click_log(ROWS))
    assert_same_state(load(run), ref)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["rows"] for line in lines if line["kind"] == "period") == summary["rows"] == ROWS
    assert sum(line["rows"] for line in lines if line["kind"] == "point") == ROWS


@pytest.mark.parametrize(("text", "rows"), [("one line", 10_000), ("two\nlines", 6_000), ("one line", 3_000)])
def test_a_small_log_has_a_snapshot_to_go_back_to(tmp_path, text, rows):
    """It has at least half of the rows, unless the log is a single chunk."""
    path = tmp_path / "log.csv"
    path.write_text("click,ad,words\n" + "".join(f'{n % 3 // 2},{n % 5},"{text}"\n' for n in range(rows)), newline="")
    schema = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad"), pbodl.Field("words")])
    train(check_config({"schema": msgspec.to_builtins(schema), "model": {"kind": "ftrl"}}), [str(path)], tmp_path / "run")
    learned = [load_snapshot(snapshot).facts["rows"] for snapshot in snapshots(tmp_path / "run")]
    assert learned[-1] == rows
    assert (len(learned) == 1) if rows < 4096 else (rows / 2 <= learned[-2] < rows)


def test_a_folder_with_a_run_is_not_written_over(log, tmp_path):
    bad = tmp_path / "bad.jsonl"
    run = tmp_path / "run"
    train(small_config(), [log], run)
    bad.write_text("what the run has put aside\n")
    with pytest.raises(InputError, match="already holds a run; continue it with --resume, or choose another --out"):
        train(small_config(), [log], run, bad_rows="skip", bad_rows_file=str(bad))
    assert bad.read_text() == "what the run has put aside\n"


@pytest.mark.parametrize(
    "changed",
    [
        small_config(dim=2),
        small_config(kind="sparse-mlp"),
        small_config(training={"negative_rate": 0.5}),
        small_config(schema={"label": "click", "fields": [{"name": "ad"}]}),
    ],
    ids=["spec", "kind", "negative rate", "schema"],
)
def test_resuming_with_another_configuration(log, tmp_path, changed):
    train(small_config(), [log], tmp_path / "run")
    with pytest.raises(InputError, match="resume it with the configuration it began with"):
        train(changed, [log], tmp_path / "run", resume=True)


def test_resuming_what_is_no_run(log, tmp_path):
    with pytest.raises(InputError, match="holds no run to resume; leave --resume out to start one"):
        train(small_config(), [log], tmp_path / "run", resume=True)
    pbodl.FMMLP(RICH, dim=3, hidden=(4,)).save(tmp_path / "run")
    with pytest.raises(InputError, match="holds a model that `pbodl train` did not write"):
        train(small_config(), [log], tmp_path / "run", resume=True)


def test_the_rows_before_a_bad_one_are_saved(tmp_path):
    rows = click_log(ROWS)
    path = tmp_path / "log.parquet"
    pa.parquet.write_table(pa.Table.from_pylist([*rows[:300], rows[300] | {"click": 7}, *rows[301:]]), path)
    run = tmp_path / "run"
    with pytest.raises(InputError, match=r"row 301: label 'click' holds 7; .*The 300 rows before it are saved in .*--resume"):
        train(small_config(), [str(path)], run)
    ref = pbodl.FMMLP(RICH, dim=3, hidden=(4,))
    ref.learn(rows[:300])
    assert_same_state(load(run), ref)
    # Put right, it goes on with that row.
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    train(small_config(), [str(path)], run, resume=True)
    ref.learn(rows[300:])
    assert_same_state(load(run), ref)


def test_a_log_without_good_rows(tmp_path):
    path = tmp_path / "log.parquet"
    pa.parquet.write_table(pa.Table.from_pylist([row | {"click": 7} for row in click_log(3)]), path)
    with pytest.raises(InputError, match="the log has no good rows; 3 were bad"):
        train(small_config(), [str(path)], tmp_path / "run", bad_rows="skip")
    with pytest.raises(InputError, match="row 1: label 'click' holds 7"):
        train(small_config(), [str(path)], tmp_path / "run")
    assert not snapshots(tmp_path / "run")


def test_sampling_of_negatives(tmp_path):
    n, rate = 6000, 0.4
    log = write_log(tmp_path / "log.parquet", n)
    config = small_config(training={"negative_rate": rate})
    summary = train(config, [log], tmp_path / "run")
    # The rows kept are a function of seed and position, in whatever pieces they come.
    rows = click_log(n)
    clicks = np.array([row["click"] for row in rows], dtype=np.float32)
    kept = np.flatnonzero(kept_rows(clicks, 0, 0, rate))
    assert set(np.flatnonzero(clicks)) < set(kept.tolist())
    ref = pbodl.FMMLP(RICH, dim=3, hidden=(4,), negative_rate=rate)
    predicted = ref.learn([rows[i] for i in kept])
    assert_same_state(load(tmp_path / "run"), ref)
    assert summary["counters"]["rows_learned"] == len(kept)
    # The figures are those of the whole stream: each kept negative stands for 1/rate of them.
    weights = np.where(clicks[kept] > 0, 1.0, 1.0 / rate)
    losses = -np.log(np.where(clicks[kept] > 0, predicted, 1.0 - predicted))
    assert summary["rows"] == n
    assert summary["log_loss"] == pytest.approx(np.average(losses, weights=weights))
    assert summary["ctr"] == pytest.approx(clicks.mean(), rel=0.05)
    assert summary["calibration"] == pytest.approx(1.0, abs=0.1)
    # And so are the predictions of a model that was read back, which remembers its rate.
    model = load(tmp_path / "run")
    assert model.negative_rate == rate
    assert model.predict(from_data(RICH, rows, labelled=True)).ctr.mean() == pytest.approx(clicks.mean(), rel=0.1)


def test_an_automatic_rate_is_remembered(tmp_path):
    rows = [row | {"click": int(i % 50 == 0)} for i, row in enumerate(click_log(2000))]
    for part, path in enumerate(("a.parquet", "b.parquet")):
        pa.parquet.write_table(pa.Table.from_pylist(rows[part * 1000 : (part + 1) * 1000]), tmp_path / path)
    config = small_config(training={"negative_rate": "auto"})
    paths = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    summary = train(config, paths, tmp_path / "ref")
    assert summary["negative_rate"] == pytest.approx(0.02 / 0.98 / 0.1)
    train(config, paths[:1], tmp_path / "run")
    assert train(config, paths, tmp_path / "run", resume=True)["negative_rate"] == summary["negative_rate"]
    assert_same_state(load(tmp_path / "run"), load(tmp_path / "ref"))


def test_a_batch_model_ends_fitted(log, tmp_path, monkeypatch):
    pytest.importorskip("jax")
    run = tmp_path / "run"
    config = small_config(kind="fm-batch", dim=2, max_epochs=1, training={"snapshot_every": 0})
    # Killed before it could fit: all rows are there, and it is fitted when it goes on.
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "_fit", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        train(config, [log], run)
    assert load_snapshot(run).facts["rows"] == ROWS
    assert load(run).metrics()["fits"] == 0
    for _ in range(2):  # the second time there is nothing left to do
        summary = train(config, [log], run, resume=True)
        assert summary["counters"]["fits"] == load(run).metrics()["fits"] == 1
    ref = pbodl.BatchFM(RICH, dim=2, max_epochs=1)
    ref.learn(click_log(ROWS))
    ref.fit()
    assert_same_state(load(run), ref)
    assert np.ptp(load(run).predict(click_log(20)).ctr) > 0


PEAK = """
import sys
from pathlib import Path
from pbodl.training.config import check_config, read_config
from pbodl.training.session import train
summary = train(check_config(read_config(sys.argv[1])), [sys.argv[2]], sys.argv[3])
status = Path("/proc/self/status").read_text()
print(summary["counters"]["evicted"], next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from Linux's /proc")
def test_memory_does_not_grow_with_the_log(tmp_path):
    peaks = {}
    few, many = 500_000, 2_000_000  # fewer would not fill the reading ahead, which is part of the peak
    for rows in (few, many):
        world = World(seed=0, days=10, rows=rows)
        world.write(tmp_path / "log.parquet")
        schema = {"label": "click", "time": "time", "fields": [{"name": field.name} for field in world.schema.fields]}
        config = small_config(schema=schema, capacity=20_000)
        (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
        command = [sys.executable, "-c", PEAK, tmp_path / "config.toml", tmp_path / "log.parquet", tmp_path / f"run-{rows}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        evicted, peaks[rows] = map(int, done.stdout.split())
        assert evicted > 0
    assert peaks[many] < 1.15 * peaks[few], f"peaks in kB by rows: {peaks}"
