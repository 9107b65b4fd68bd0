"""Logs as people have them, through the commands: look, train, evaluate, predict, and a model that ranks."""

import csv
import json
import random
import tomllib

import numpy as np
import pytest

from pbodl.models.snapshot import load
from pbodl.serving.scoring.predictor import Predictor
from tests.command_line import run_pbodl

NAMES = ["clicked", "user", "thing", "visits", "words", "when"]


def rows(n=600):
    rng = random.Random(3)
    for i in range(n):
        thing = rng.randrange(20)
        words = "|".join(rng.sample(["cars", "music", "games"], 2))
        click = "yes" if rng.random() < 0.05 + 0.4 * (thing % 2) else "no"
        yield [click, f"u{rng.randrange(40)}", f"t{thing}", int(rng.paretovariate(0.7)), words, 1_735_689_600 + 300 * i]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("log.tsv", "w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(rows())
    return tmp_path


def ranking(run_folder="run"):
    """The best of two candidates, and the model."""
    model = load(run_folder)
    predictor = Predictor.of(model)
    names = predictor.encoder.own_columns
    thing = next(name for name in names if name in ("thing", "c3"))
    return np.argmax(predictor.score({}, {}, [{thing: "t2"}, {thing: "t3"}]).ctr), model


def test_a_file_without_names_from_guess_to_ranking(folder):
    code, out, err, _ = run_pbodl("data", "inspect", "log.tsv")
    assert (code, "the columns are called c1 to c6" in " ".join(err.split())) == (0, True)
    # People know which column is the ad.
    (folder / "config.toml").write_text(out.replace('group = "ad"', 'group = "user"').replace(
        'name = "c3"  # 20 values\ngroup = "context"', 'name = "c3"\ngroup = "ad"'))  # fmt: skip
    assert run_pbodl("train", "log.tsv", "--config", "config.toml", "--out", "run").code == 0
    best, model = ranking()
    assert best == 1
    kinds = {field.name: field.kind for field in model.schema.fields}
    assert kinds == {"hour_of_day": "category", "c2": "category", "c3": "category", "c4": "number", "c5": "multi"}
    assert run_pbodl("evaluate", "run", "log.tsv", "--by", "c3").code == 0
    assert run_pbodl("predict", "run", "log.tsv", "--out", "ctr.csv").code == 0


def test_names_on_the_command_line(folder):
    columns = ("--columns", ",".join(NAMES))
    code, out, err, _ = run_pbodl("train", "log.tsv", "--out", "run", *columns, "--delimiter", "tab", "--json")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["rows"] == 600
    _, model = ranking()
    assert (model.schema.label, model.schema.time, model.schema.columns) == ("clicked", "when", tuple(NAMES))
    assert "ad" in model.schema.groups
    # Another file, with names and commas, and in another order.
    with open("later.csv", "w", newline="") as file:
        csv.writer(file).writerows([NAMES[::-1], *(row[::-1] for row in rows(50))])
    code, out, err, _ = run_pbodl("evaluate", "run", "later.csv", "--json", "--delimiter", ",")
    assert (code, json.loads(out.splitlines()[-1])["rows"]) == (0, 50), err


def test_refusals(folder):
    code, _, err, _ = run_pbodl("train", "log.tsv", "--out", "run", "--columns", "a,b,c,d")
    assert (code, "has 6 values, but 4 columns are named" in " ".join(err.split())) == (2, True)
    code, _, err, _ = run_pbodl("data", "inspect", "log.tsv", "--delimiter", "xyz")
    assert (code, "the delimiter is 'xyz'" in err) == (2, True)
    assert not (folder / "run").exists()


def test_training_without_a_configuration_says_what_it_guessed_and_keeps_it(folder):
    columns = [*NAMES, "dwell"]
    with open("log.csv", "w", newline="") as file:
        csv.writer(file).writerows([columns, *([*row, 3.5 + n % 9 if row[0] == "yes" else 0] for n, row in enumerate(rows()))])
    code, _, err, _ = run_pbodl("train", "log.csv", "--out", "run")
    said = " ".join(err.split())
    assert code == 0, err
    for words in (
        "the schema is guessed from log.csv", "label: clicked, 0.24", "time: when", "user: user", "ad: thing",
        "context: hour_of_day, visits (number), words (multi)",
        "'dwell' is left out: it has one and the same value wherever there is no click",
    ):  # fmt: skip
        assert words in said, err
    written = tomllib.loads((folder / "run" / "config.toml").read_text())["schema"]
    assert (written["label"], written["time"]) == ("clicked", "when")
    assert [field["name"] for field in written["fields"]] == ["hour_of_day", "user", "thing", "visits", "words"]
    # What was written trains the same model.
    assert run_pbodl("train", "log.csv", "--config", "run/config.toml", "--out", "again").code == 0
    assert load("again").schema == load("run").schema
    assert run_pbodl("train", "log.csv", "--out", "kept", "--keep", "dwell").code == 0
    assert "dwell" in [field.name for field in load("kept").schema.fields]


def test_the_label_on_the_command_line(folder):
    with open("log.csv", "w", newline="") as file:
        csv.writer(file).writerows([[*NAMES, "conversion"], *([*row, int(n % 9 == 0)] for n, row in enumerate(rows()))])
    code, _, err, _ = run_pbodl("train", "log.csv", "--out", "run")
    assert (code, "'clicked' and 'conversion' may each be the label; say which with --label clicked" in " ".join(err.split())) == (
        2,
        True,
    )
    assert run_pbodl("data", "inspect", "log.csv").code == 2
    code, out, _, _ = run_pbodl("data", "inspect", "log.csv", "--label", "conversion")
    assert code == 0 and tomllib.loads(out)["schema"]["label"] == "conversion"
    (folder / "config.toml").write_text(out)
    assert run_pbodl("train", "log.csv", "--out", "run", "--label", "conversion").code == 0
    code, _, err, _ = run_pbodl("train", "log.csv", "--out", "other", "--config", "config.toml", "--label", "clicked")
    assert (code, "the configuration has the label 'conversion'; change it there" in " ".join(err.split())) == (2, True)
    code, _, err, _ = run_pbodl("train", "log.csv", "--out", "other", "--config", "config.toml", "--keep", "nothing")
    assert (code, "no field of the configuration" in " ".join(err.split())) == (2, True)
