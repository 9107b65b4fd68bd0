"""Table 2 on a small world: hours, comparisons, files, and the keys of [training] that the models share."""

import json

import msgspec
import numpy as np
import pytest

from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.experiments.table1 import table1_run
from pbodl.experiments.table1.entries import TABLE_1
from pbodl.experiments.table2.table2_run import TABLE_2, Table2Settings, period_difference, period_losses, table2
from pbodl.training.config import check_config

ENTRIES = [entry for entry in TABLE_2 if entry.name in ("AdPredictor", "MatchBox", "FM-MLP")]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "world.parquet"
    world = World(rows=6000, days=3)
    world.write(path)
    return world, str(path)


def config_of(world, **training):
    return check_config({"schema": msgspec.to_builtins(world.schema), "training": training})


def test_models_are_compared_hour_by_hour(log, tmp_path, monkeypatch):
    world, path = log
    settings = Table2Settings(every="6h")
    result = table2(config_of(world), [path], tmp_path, settings, ENTRIES)
    assert [model["name"] for model in result["models"]] == [entry.name for entry in ENTRIES]
    for model in result["models"]:
        lines = model["runs"][0]["progressive"]["days"]
        assert model["periods"] == len(lines) == 12
        assert sum(line["rows"] for line in lines) == 6000
        starts = [line["start"] for line in lines]
        assert np.diff(starts).tolist() == [6 * 3600.0] * 11
    assert sum(model["best_periods"] for model in result["models"]) == 12
    # Weighted by rows, the differences of all hours are that of the whole stream.
    whole = [model["runs"][0]["progressive"]["log_loss"] for model in result["models"]]
    assert result["models"][2]["against_periods"]["mean"] == pytest.approx(whole[2] - whole[1], abs=1e-9)
    assert "against_periods" not in result["models"][1]
    text = (tmp_path / "table2.md").read_text()
    assert "0.1198" in text and "every 6h" in text and "of 12" in text
    assert json.loads((tmp_path / "table2.json").read_text())["provenance"]["every"] == "6h"
    assert (tmp_path / "report.html").read_text().count('"kind":"lines"') == 2
    monkeypatch.setattr(table1_run, "run_model", lambda *_: pytest.fail("ran again"))
    assert table2(config_of(world), [path], tmp_path, settings, ENTRIES)["models"] == result["models"]


def test_the_interval_is_that_of_the_mean_over_hours():
    rng = np.random.default_rng(3)
    other, rows = rng.uniform(0.3, 0.5, 400), rng.integers(50, 200, 400).astype(float)
    one = other + rng.normal(-0.01, 0.02, 400)
    found = period_difference(one, other, rows)
    assert found.mean == pytest.approx(np.average(one - other, weights=rows))
    error = np.sqrt((rows**2 * (one - other - found.mean) ** 2).sum()) / rows.sum()  # of a ratio of sums
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.1)
    assert found.low < found.mean < found.high
    assert found.better == np.mean(one < other)


def test_only_hours_that_all_models_have_are_compared():
    def lines(starts):
        return [{"start": float(n), "rows": 10 + n, "log_loss": n / 10 if n != 2 else None} for n in starts]

    losses, rows = period_losses([lines([0, 1, 2, 3]), lines([1, 2, 3, 4])])
    assert losses.tolist() == [[0.1, 0.3], [0.1, 0.3]] and rows.tolist() == [11.0, 13.0]


def test_the_keys_of_the_papers_notes_reach_the_models_that_can_use_them(log):
    world, _ = log
    config = config_of(world, negative_rate=0.5, sets=2, passes=3, power="paper")
    ftrl, fm = (table1_run.start_of(entry, config, "1h").training for entry in TABLE_1 if entry.name in ("FTRL", "FM-MLP"))
    assert (fm.passes, fm.sets, fm.power, fm.negative_rate, fm.every) == (3, 2, "paper", 0.5, "1h")
    assert (ftrl.passes, ftrl.sets, ftrl.power, ftrl.negative_rate) == (1, 2, "paper", 0.5)
    config = config_of(world, passes=2, power="paper")
    ftrl = next(table1_run.start_of(entry, config).training for entry in TABLE_1 if entry.name == "FTRL")
    assert (ftrl.passes, ftrl.power) == (1, "once")


def test_a_period_in_rows_is_refused(log, tmp_path):
    world, path = log
    with pytest.raises(InputError, match="--every is '100k rows'; it must be a span of time"):
        table2(config_of(world), [path], tmp_path / "new", Table2Settings(every="100k rows"), ENTRIES)
    assert not (tmp_path / "new").exists()
