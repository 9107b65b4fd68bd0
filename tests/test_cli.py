"""The commands as a person meets them: exit codes, prose on stderr, one JSON object at the end of stdout.

They run inside this process, by `main`, which turns errors of the input into prose; signals have their tests with resuming.
"""

import gzip
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from pbodl.models.snapshot import load, snapshots
from pbodl.training.config import to_toml
from tests.click_log import click_log
from tests.command_line import Outcome, run_pbodl
from tests.training.logs import small_config, write_log

KEYS = {"rows", "seconds", "rows_per_second", "auc", "log_loss", "ne", "calibration", "days"}
LOG = Path("log.parquet")  # in the folder of the test
HEADER = "click,when,ad,price\n"
LINES = [f"{int(i % 5 == 0)},{1000 + i},ad{i % 7},{i}" for i in range(60)]


Command = Callable[..., Outcome]


@pytest.fixture
def pbodl(monkeypatch, tmp_path) -> Command:
    """Runs a command in a folder of its own, with a configuration in config.toml, and one for CSV in csv.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text(to_toml(small_config()), encoding="utf-8")
    schema = {"label": "click", "time": "when", "fields": [{"name": "ad", "group": "ad"}, {"name": "price", "kind": "number"}]}
    (tmp_path / "csv.toml").write_text(to_toml(small_config(schema=schema)), encoding="utf-8")
    return run_pbodl


@pytest.fixture
def trained(pbodl) -> Command:
    """The same, with a run in the folder `run`."""
    write_log(LOG, 300)
    assert pbodl("train", "log.parquet", "--config", "config.toml", "--out", "run").code == 0
    return pbodl


def write_csv(name: str, *lines: str) -> str:
    content = (HEADER + "".join(f"{line}\n" for line in lines)).encode()
    with open(name, "wb") as file:
        file.write(gzip.compress(content) if name.endswith(".gz") else content)
    return name


def test_train_and_evaluate_end_with_json(pbodl):
    write_log(LOG, 300)
    trained = pbodl("train", "log.parquet", "--config", "config.toml", "--out", "run", "--json")
    assert trained.code == 0
    assert trained.json.keys() >= KEYS
    assert (trained.json["rows"], trained.json["bad_rows"]) == (300, 0)
    assert "300 rows in" in trained.prose
    assert len(trained.out.splitlines()) == 1
    evaluated = pbodl("evaluate", "run", "log.parquet", "--by", "site", "--json")
    assert evaluated.code == 0
    assert evaluated.json.keys() >= KEYS
    assert sum(line["rows"] for line in evaluated.json["slices"]) == evaluated.json["rows"] == 300
    quiet = pbodl("evaluate", "run", "log.parquet")
    assert (quiet.code, quiet.out) == (0, "")


def test_predict_and_inspect(trained):
    predicted = trained("predict", "run", "log.parquet", "--out", "ctr.parquet", "--json")
    assert predicted.json == {"rows": 300, "out": "ctr.parquet"}
    assert pa.parquet.read_table("ctr.parquet").num_rows == 300
    assert trained("inspect", "run", "--json").code == 0
    assert trained("inspect", "run", "--feature", "ad=ad1", "--json").code == 0
    both = trained("inspect", "run", "--feature", "ad=ad1", "--explain", "row.json")
    assert (both.code, both.prose) == (2, "error: give one of --feature, --explain and --log")


def test_options_reach_the_model(pbodl):
    write_log(LOG, 50)
    options = ["--model", "sparse-mlp", "--set", "model.dim=5", "--negative-rate", "0.5", "--every", "1h"]
    assert pbodl("train", "log.parquet", "--config", "config.toml", "--out", "run", *options).code == 0
    model = load("run")
    assert (model.kind, model.spec.dim, model.negative_rate) == ("sparse-mlp", 5, 0.5)


def test_a_bad_row_stops(pbodl):
    write_csv("log.csv", *LINES[:40], "0,1040,ad1,cheap", *LINES[41:])
    stopped = pbodl("train", "log.csv", "--config", "csv.toml", "--out", "run")
    assert stopped.code == 2
    assert "error: log.csv, line 42: number field 'price' holds 'cheap'; it must be a finite number" in stopped.prose
    assert "--bad-rows skip" in stopped.prose
    assert "The 40 rows before it are saved in run: continue with --resume" in stopped.prose
    assert "Traceback" not in stopped.prose
    assert load("run").rows_learned == 40
    assert (pbodl("evaluate", "run", "log.csv").code, stopped.out) == (2, "")
    # Without such rows it goes on from there.
    done = pbodl("train", "log.csv", "--out", "run", "--resume", "--bad-rows", "skip", "--bad-rows-file", "bad.jsonl", "--json")
    assert (done.code, done.json["rows"], done.json["bad_rows"]) == (0, 59, 1)


def test_bad_rows_are_put_aside(pbodl):
    write_csv("log.csv", *LINES[:10], "7,1010,ad1,1", *LINES[10:30], "0,noon,ad1,1", *LINES[30:])
    skip = ["--bad-rows", "skip", "--bad-rows-file", "bad.jsonl"]
    done = pbodl("train", "log.csv", "--config", "csv.toml", "--out", "run", *skip, "--json")
    assert (done.code, done.json["rows"], done.json["bad_rows"]) == (0, 60, 2)
    records = [json.loads(line) for line in open("bad.jsonl", encoding="utf-8")]  # noqa: SIM115
    assert [(record["line"], record["raw"]) for record in records] == [(12, "7,1010,ad1,1"), (33, "0,noon,ad1,1")]
    assert "label 'click' holds '7'" in records[0]["reason"]


@pytest.mark.parametrize("name", ["log.csv.gz", "log.parquet"])
def test_damaged_files(pbodl, name):
    write_csv("good.csv", *LINES)
    write_csv("log.csv.gz", *LINES * 50)
    pa.parquet.write_table(pa.table({"click": [0, 1], "when": [1, 2], "ad": ["a", "b"], "price": [1.0, 2.0]}), "log.parquet")
    content = open(name, "rb").read()  # noqa: SIM115
    with open(name, "wb") as file:
        file.write(content[: len(content) * 2 // 3])
    for rows in ("stop", "skip"):
        damaged = pbodl("train", "good.csv", name, "--config", "csv.toml", "--out", f"run-{rows}", "--bad-rows", rows)
        assert damaged.code == 2
        assert name in damaged.prose
        assert "truncated" in damaged.prose or "cannot be read" in damaged.prose
        assert "Traceback" not in damaged.prose
        assert load(f"run-{rows}").rows_learned >= len(LINES)


def test_a_run_is_not_written_over(trained):
    again = trained("train", "log.parquet", "--config", "config.toml", "--out", "run")
    assert (again.code, again.prose) == (2, "error: run already holds a run; continue it with --resume, or choose another --out")


def test_stopped_by_a_signal(pbodl, monkeypatch):
    write_log(LOG, 300)
    with monkeypatch.context() as patch:
        patch.setattr("pbodl.training.session.TrainingBar.show", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        stopped = pbodl("train", "log.parquet", "--config", "config.toml", "--out", "run", "--json")
    assert (stopped.code, stopped.out) == (143, "")
    assert "stopped and saved; continue with the same command and --resume (run folder run)" in stopped.prose
    done = pbodl("train", "log.parquet", "--out", "run", "--resume", "--json")
    assert (done.code, done.json["rows"]) == (0, 300)


def test_a_damaged_snapshot_is_told(trained):
    rows = click_log(600)[300:]
    pa.parquet.write_table(pa.Table.from_pylist(rows), "more.parquet")
    assert trained("train", "log.parquet", "more.parquet", "--out", "run", "--resume").code == 0
    (snapshots("run")[-1] / "model.safetensors").write_bytes(b"")
    told = trained("evaluate", "run", "more.parquet")
    assert told.code == 0
    assert "warning: snapshot" in told.prose
    assert "using the snapshot before it, 000000000001" in told.prose
    assert load(snapshots("run")[0]).rows_learned == 300


def test_rollback(trained):
    alone = trained("rollback", "run")
    assert (alone.code, "going back needs at least two" in alone.prose) == (2, True)
    load("run").save("run")
    back = trained("rollback", "run")
    assert back.code == 0
    assert "000000000001 is the newest now" in back.prose


def test_fields_are_measured_on_a_log(trained):
    told = trained("inspect", "run", "--log", "log.parquet", "--rows", "200", "--report", "fields.html", "--json")
    assert told.code == 0, told.prose
    assert (told.json["rows"], len(told.json["fields"])) == (200, len(small_config().schema.fields))
    assert "it saves" in told.prose and "the charts are in fields.html" in told.prose
    assert "Drift of the values" in Path("fields.html").read_text(encoding="utf-8")
    assert "give one of" in trained("inspect", "run", "--log", "log.parquet", "--feature", "user=1").prose
    assert "give --log FILE" in trained("inspect", "run", "--report", "fields.html").prose


def test_one_run_can_be_rolled_back_and_asked_for_its_older_snapshot(pbodl):
    assert pbodl("data", "synth", "--rows", "9000", "--days", "2", "--out", "log.parquet").code == 0
    assert pbodl("train", "log.parquet", "--preset", "synthetic", "--set", "model.dim=2", "--out", "run").code == 0
    assert [load(path).rows_learned for path in snapshots("run")] == [8192, 9000]
    older = pbodl("predict", "run", "log.parquet", "--snapshot", "1", "--keep", "click, site_id", "--out", "p.csv")
    assert older.code == 0, older.prose
    assert pbodl("predict", "run", "log.parquet", "--snapshot", "7", "--out", "p.csv").prose.startswith(
        "error: run has no snapshot 7; it has: 1, 2"
    )
    assert pbodl("rollback", "run").code == 0
    assert pbodl("predict", "run", "log.parquet", "--keep", "click,site_id", "--out", "q.csv").code == 0
    assert Path("p.csv").read_text() == Path("q.csv").read_text()
    assert Path("p.csv").read_text().startswith('"click","site_id","ctr","std","latent_mean","latent_std"')
    assert pbodl("predict", "run", "log.parquet", "--keep", "click,std", "--out", "r.csv").code == 2
    assert pbodl("train", "log.parquet", "--out", "run", "--resume").code == 0
    assert load("run").rows_learned == 9000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "model.dims=3"], "[model] has an unknown key 'dims' (did you mean 'dim'?)"),
        (["--set", "training.halflife=7d"], "[training] has an unknown key 'halflife' (did you mean 'half_life'?)"),
        (["--set", "modle.dim=3"], "unknown key 'modle' (did you mean 'model'?)"),
        (["--model", "fm-mpl"], "unknown model kind 'fm-mpl' (did you mean 'fm-mlp'?)"),
        (["--set", "dim=3"], "is not of the form table.key=value"),
        (["--preset", "avazu"], "give --config or --preset, not both"),
        (["--bad-rows", "ignore"], "bad_rows is 'ignore'; allowed are 'stop' and 'skip'"),
        (["--negative-rate", "2"], "it must be above 0 and at most 1"),
        (["--resume"], "new holds no run to resume"),
    ],
)
def test_wrong_usage(pbodl, arguments, words):
    write_log(LOG, 5)
    wrong = pbodl("train", "log.parquet", "--config", "config.toml", "--out", "new", *arguments)
    assert (wrong.code, wrong.out) == (2, "")
    assert words in wrong.prose


def test_files_that_are_not_there(pbodl):
    for arguments in (
        ["train", "none.csv", "--config", "config.toml", "--out", "new"],
        ["train", "none.csv", "--out", "new"],
        ["train", "none.csv", "--config", "none.toml", "--out", "new"],
        ["train", "none.csv", "--preset", "avazoo", "--out", "new"],
        ["evaluate", "none", "none.csv"],
        ["predict", "none", "none.csv", "--out", "ctr.csv"],
        ["inspect", "none"],
        ["rollback", "none"],
    ):
        wrong = pbodl(*arguments)
        assert (wrong.code, wrong.out, wrong.prose[:6]) == (2, "", "error:"), arguments


def test_data_synth_and_inspect(pbodl):
    assert pbodl("data", "synth", "--rows", "500", "--days", "2", "--out", "world.csv").code == 0
    shown = pbodl("data", "inspect", "world.csv")
    assert shown.code == 0
    assert "[schema]" in shown.out
    with open("guessed.toml", "w", encoding="utf-8") as file:
        file.write(shown.out)
    small = ["--set", "model.dim=2", "--set", "model.hidden=[2]"]
    assert pbodl("train", "world.csv", "--config", "guessed.toml", "--out", "run", *small).code == 0
    guessed = pbodl("train", "world.csv", "--out", "other", *small)
    assert guessed.code == 0
    assert "the schema is guessed from world.csv" in guessed.prose


def test_an_experiment_on_uncertainty_makes_a_world_or_takes_a_log(pbodl):
    world = pbodl("experiment", "uncertainty", "--world", "3", "--rows", "20000", "--out", "a", "--json")
    assert world.code == 0 and world.json["rows"] == 20_000 and world.json["truth"] == "p_true"
    log = pbodl("experiment", "uncertainty", "a/world-3-20000.parquet", "--preset", "synthetic", "--out", "b", "--json")
    assert log.json["figures"] == world.json["figures"]
    for arguments in ([], ["log.parquet", "--world", "3"]):
        refused = pbodl("experiment", "uncertainty", *arguments, "--out", "c")
        assert refused.code == 2 and "one of the two" in refused.prose
