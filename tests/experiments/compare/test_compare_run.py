"""A comparison on small logs: the figures are those of the models, and the files hold them."""

import msgspec
import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.experiments.compare import compare_run
from pbodl.experiments.compare.compare_report import write_comparison
from pbodl.experiments.compare.compare_run import CompareSettings, compare
from pbodl.training.config import check_config
from tests.click_log import PLAIN, RICH, click_log
from tests.training.logs import chunks, write_log

ROWS = 600
FAST = ["adpredictor", "ftrl", "pair-fm", "fm-mlp", "ffm-mlp", "matchbox"]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(compare_run, "CHUNK", 100)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_log(tmp_path_factory.mktemp("log") / "log.parquet", ROWS)


def config_of(schema=RICH, **tables):
    return check_config({"schema": msgspec.to_builtins(schema), **tables})


@pytest.mark.parametrize("schema", [RICH, PLAIN], ids=["with times", "without"])
def test_the_figures_are_those_of_the_models(path, schema):
    result = compare(config_of(schema), [path], CompareSettings(last=0.25), FAST)
    assert [line["model"] for line in result["models"]] == FAST
    assert result["reference"] == "AdPredictor" and result["provenance"]["learned"] == 450
    batches = [chunk.batch for chunk in chunks(click_log(ROWS), schema, size=150)]
    for line in result["models"][:3]:
        model = config_of(schema, model={"kind": line["model"]}).build()
        before = np.concatenate([model.learn(batch) for batch in batches[:3]])
        for part, predicted, clicks in (
            ("progressive", before, np.concatenate([batch.clicks for batch in batches[:3]])),
            ("frozen", model.predict(batches[3]).ctr, batches[3].clicks),
        ):
            loss = -np.log(np.where(clicks > 0, predicted, 1 - predicted)).mean()
            assert line[part]["log_loss"] == pytest.approx(loss, abs=1e-5)
            assert line[part]["calibration"] == pytest.approx(predicted.mean() / clicks.mean(), abs=1e-5)
    first, second = result["models"][:2]
    assert first["against"] == {"progressive": None, "frozen": None}
    for part in ("progressive", "frozen"):
        found = second["against"][part]
        assert found["log_loss"] == pytest.approx(second[part]["log_loss"] - first[part]["log_loss"])
        assert found["log_loss_low"] < found["log_loss"] < found["log_loss_high"]


def test_settings_are_tuned_on_rows_that_are_not_frozen(path, monkeypatch):
    seen = []
    tune = compare_run.tune
    monkeypatch.setattr(compare_run, "tune", lambda config, batches, *rest: seen.append(batches) or tune(config, batches, *rest))
    result = compare(config_of(), [path], CompareSettings(trials=4, tune_rows=10_000), ["adpredictor"])
    assert sum(len(batch) for batch in seen[0]) == result["provenance"]["learned"] == 540
    assert "prior_variance" in result["models"][0]["settings"]


def test_a_configuration_of_ones_own_comes_first(path):
    config = config_of(model={"kind": "ftrl", "alpha": 0.2})
    result = compare(config, [path], CompareSettings(rows=200), ["configured", "ftrl"])
    own, default = result["models"]
    assert result["reference"] == own["name"] == "FTRL, as configured" and own["settings"] == {"alpha": 0.2}
    assert own["frozen"] != default["frozen"] and default["settings"] == {}
    assert result["provenance"]["rows"] == 200 and result["provenance"]["learned"] == 180


def test_a_short_log_is_refused(path):
    with pytest.raises(InputError, match=r"the log has 9 row\(s\); a comparison needs at least 10"):
        compare(config_of(), [path], CompareSettings(rows=9), ["ftrl"])


def test_one_class_alone_has_no_auc(tmp_path):
    rows = [{**row, "click": 0} for row in click_log(50)]
    result = compare(config_of(PLAIN), rows, CompareSettings(), ["adpredictor", "ftrl"])
    assert result["models"][1]["frozen"]["auc"] is None and result["models"][1]["frozen"]["calibration"] is None
    write_comparison(tmp_path, result)
    assert "NaN" not in (tmp_path / "compare.json").read_text()
