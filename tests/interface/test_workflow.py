"""The commands as functions: `pbodl.guess`, `train`, `evaluate` and `explain`."""

import threading

import numpy as np
import polars as pl
import pyarrow.parquet
import pytest

import pbodl
from pbodl import Field, InputError, Schema
from pbodl.data.synthetic import World
from tests.command_line import run_pbodl

WORLD = World(seed=3, days=2, rows=6000)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    WORLD.write(path, lambda more: None)
    return path


@pytest.fixture(scope="module")
def model(log):
    return pbodl.train(log, preset="synthetic", settings={"model.dim": 2})


def test_training_is_that_of_the_command(log, model, tmp_path):
    options = ["--preset", "synthetic", "--set", "model.dim=2", "--out", tmp_path / "run", "--json"]
    done = run_pbodl("train", log, *options)
    assert done.code == 0, done.output
    ref = pbodl.load(tmp_path / "run")
    for name, array in model.state().items():
        np.testing.assert_array_equal(array, ref.state()[name], err_msg=name)
    figures = done.json
    assert model.figures is not None and model.figures["log_loss"] == figures["log_loss"]
    assert model.run is None and ref.run == tmp_path / "run"


@pytest.mark.parametrize(
    "shape", [lambda table: table, lambda table: table.to_pandas(), pl.from_arrow, lambda table: table.to_pylist()]
)
def test_data_in_memory_is_a_log(log, model, shape):
    rows = shape(pyarrow.parquet.read_table(log))
    comp = pbodl.train(rows, preset="synthetic", settings={"model.dim": 2})
    np.testing.assert_array_equal(comp.predict(log_rows(log)).ctr, model.predict(log_rows(log)).ctr)
    assert pbodl.evaluate(comp, rows)["log_loss"] == pbodl.evaluate(model, log)["log_loss"]
    with pytest.warns(UserWarning):
        assert pbodl.guess(rows).label == "click"


def log_rows(log):
    return pyarrow.parquet.read_table(log).slice(0, 50)


def test_a_folder_holds_the_run_and_resumes(log, model, tmp_path):
    kept = pbodl.train(str(log), tmp_path / "run", preset="synthetic", settings={"model.dim": 2}, keep_names=True)
    assert kept.run == tmp_path / "run"
    np.testing.assert_array_equal(kept.state()["embedding.mean"], model.state()["embedding.mean"])
    again = pbodl.train(log, tmp_path / "run", resume=True)
    assert again.rows_learned == kept.rows_learned


def test_options_reach_the_model(log):
    schema = Schema(label="click", time="hour", time_format="%y%m%d%H", fields=[Field("site_id", group="context")])
    model = pbodl.train(log, schema=schema, model="ftrl", settings={"training.negative_rate": 0.5})
    assert (model.kind, model.negative_rate, len(model.schema.fields)) == ("ftrl", 0.5, 1)
    model = pbodl.train(log, config={"schema": {"label": "click", "fields": [{"name": "site_id"}]}, "model": {"dim": 3}})
    assert (model.kind, model.spec.dim) == ("pair-fm", 3)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"resume": True}, "resume and keep_names need a run folder"),
        ({"preset": "synthetic", "config": {}}, "give config or preset, not both"),
        ({"preset": "synthetic", "settings": {"dim": 3}}, "the setting 'dim' is not of the form table.key"),
        ({"preset": "synthetic", "settings": {"model.dimm": 3}}, "did you mean 'dim'"),
        ({"preset": "synthetic", "workers": 0}, "workers"),
    ],
)
def test_wrong_options_are_explained(log, options, told):
    with pytest.raises(InputError, match=told):
        pbodl.train(log, **options)


def test_guessing_gives_a_schema_that_trains(log):
    with pytest.warns(UserWarning):
        schema = pbodl.guess(log)
    assert schema.label == "click" and len(schema.fields) > 10
    assert pbodl.train(log, schema=schema, settings={"model.dim": 2}).rows_learned == 6000


def test_evaluation_is_that_of_the_command(log, model, tmp_path):
    model.save(tmp_path / "run")
    ref = run_pbodl("evaluate", tmp_path / "run", log, "--by", "site_category", "--json").json
    comp = pbodl.evaluate(model, log, by="site_category")
    assert {**ref, "seconds": 0, "rows_per_second": 0} == {**comp, "seconds": 0, "rows_per_second": 0}
    assert "by site_category" in repr(comp) and "log loss" in repr(comp)
    assert pbodl.evaluate(tmp_path / "run", log)["log_loss"] == comp["log_loss"]


def test_explanations_add_up(log, model):
    row = {field.name: "a" for field in model.schema.fields if field.derive is None} | {"time": 1413849600}
    found = pbodl.explain(model, row)
    assert found["ctr"] == pytest.approx(model.predict(row).ctr[0])
    assert found["ctr_std"] == pytest.approx(model.predict(row).std[0])
    assert f"± {100 * found['ctr_std']:.3f} %" in repr(found)
    assert "site_id=a" in repr(found)
    with pytest.raises(InputError, match="it must be a dict"):
        pbodl.explain(model, [row])


def test_training_works_outside_the_main_thread(log):
    found = []
    thread = threading.Thread(target=lambda: found.append(pbodl.train(log, preset="synthetic", settings={"model.dim": 2})))
    thread.start()
    thread.join()
    assert found and found[0].rows_learned == 6000
