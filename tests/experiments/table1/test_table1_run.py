"""Table 1 on a small world: the protocol, the files, and going on after an interruption."""

import json

import msgspec
import numpy as np
import pytest

from pbodl.data.convert import from_data
from pbodl.data.log.log_reader import open_log
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.experiments.table1 import protocol
from pbodl.experiments.table1 import table1_run as module
from pbodl.experiments.table1.entries import TABLE_1
from pbodl.experiments.table1.protocol import LogRows, first_batches, run_model, survey
from pbodl.experiments.table1.table1_run import Table1Settings, table1
from pbodl.training.config import check_config

ENTRIES = [entry for entry in TABLE_1 if entry.name in ("AdPredictor", "FTRL", "MatchBox", "FM-MLP (paper)", "FM-MLP")]
SETTINGS = Table1Settings(test_days=1, seeds=2, tune_rows=1000, trials=2)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "world.parquet"
    world = World(rows=6000, days=4)
    world.write(path)
    return world, str(path)


def config_of(world, **model):
    return check_config({"schema": msgspec.to_builtins(world.schema), "model": model})


def test_the_last_days_are_for_testing(log):
    world, path = log
    found = survey([path], world.schema, 1)
    times = np.concatenate([from_data(world.schema, batch, True).times for batch in world.batches()])
    assert found.rows == 6000
    assert found.train_rows == (times < found.test_start).sum()
    assert 0 < found.train_rows < 6000 and (times.max() - found.test_start) < 86400
    with pytest.raises(InputError, match="leaves none to train on"):
        survey([path], world.schema, 4)


def test_the_model_is_frozen_on_the_test_days(log):
    world, path = log
    found = survey([path], world.schema, 1)
    config = config_of(world, kind="fm-mlp", dim=4, hidden=[4])
    outcome = run_model(config, found, LogRows(found, world.schema))
    batches = [from_data(world.schema, batch, True) for batch in world.batches()]
    model = config.build()
    ref = []
    for batch in batches:
        cut = int((batch.times < found.test_start).sum())
        model.learn(batch.rows(0, cut))
        ref.append(model.predict(batch.rows(cut, len(batch))).ctr)
    np.testing.assert_allclose(outcome.arrays["predicted"], np.concatenate(ref), rtol=1e-6)
    assert outcome.facts["test"]["rows"] == found.rows - found.train_rows
    assert outcome.facts["progressive"]["rows"] == found.rows


@pytest.mark.parametrize("most", [10**9, 0])
def test_the_log_is_parsed_once_if_it_fits_into_memory(log, monkeypatch, most):
    world, path = log
    found, opened = survey([path], world.schema, 1), []
    monkeypatch.setattr(protocol, "open_log", lambda *given: opened.append(given) or open_log(*given))
    rows = LogRows(found, world.schema, most)
    times = np.concatenate([from_data(world.schema, batch, True).times for batch in world.batches()])
    first = first_batches(rows, found, 1000)  # stops early
    np.testing.assert_array_equal(np.concatenate([batch.times for batch in first]), times[:1000])
    for _ in range(3):
        np.testing.assert_array_equal(np.concatenate([batch.times for batch in rows]), times)
    assert len(opened) == (2 if most else 4)


def test_a_table_is_made_and_nothing_is_run_twice(log, tmp_path, monkeypatch):
    world, path = log
    result = table1(config_of(world), [path], tmp_path, SETTINGS, ENTRIES)
    assert [model["name"] for model in result["models"]] == [entry.name for entry in ENTRIES]
    assert [len(model["runs"]) for model in result["models"]] == [1, 1, 2, 2, 2]
    printed = result["models"][3]["chosen"]["model"]
    assert printed["paper"] is True and not {"linear", "fm_variance", "prior", "adapt_prior"} & set(printed)
    assert set(result["models"][4]["against"]) == {"AdPredictor", "FTRL", "MatchBox"}
    text = (tmp_path / "table1.md").read_text()
    assert "0.7489" in text and "FM-MLP (paper)" in text and "log loss over MatchBox (95 %)" in text
    assert json.loads((tmp_path / "table1.json").read_text())["provenance"]["version"]
    assert (tmp_path / "report.html").read_text().count('"kind":"lines"') == 2

    monkeypatch.setattr(module, "run_model", lambda *_: pytest.fail("ran again"))
    monkeypatch.setattr(module, "tune", lambda *_: pytest.fail("tuned again"))
    assert table1(config_of(world), [path], tmp_path, SETTINGS, ENTRIES)["models"] == result["models"]


def test_an_interrupted_table_goes_on_with_what_is_missing(log, tmp_path):
    world, path = log
    ref = table1(config_of(world), [path], tmp_path, SETTINGS, ENTRIES[:2])
    (tmp_path / "models" / "ftrl-0.json").unlink()
    comp = table1(config_of(world), [path], tmp_path, SETTINGS, ENTRIES[:2])
    assert comp["models"][1]["auc"] == ref["models"][1]["auc"]
