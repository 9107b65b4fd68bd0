"""Who takes part: our models where the schema allows them, other libraries where they are installed."""

import importlib
import sys

import msgspec
import pytest

from pbodl.errors import InputError
from pbodl.experiments.compare.compare_report import notes
from pbodl.experiments.compare.compare_run import CompareSettings, compare
from pbodl.experiments.compare.contestants import OTHERS, OURS, entries_for
from pbodl.training.config import check_config
from tests.click_log import PLAIN, click_log


def config_of(fields=PLAIN.fields, **model):
    return check_config({"schema": {"label": "click", "fields": [msgspec.to_builtins(field) for field in fields]}, "model": model})


def test_all_take_part_by_default():
    entries, refused = entries_for(config_of())
    assert [entry.slug for entry in entries] == [*OURS, *(entry.slug for entry in OTHERS)] and not refused
    assert [entry.slug for entry in entries_for(config_of(kind="ftrl", l1=1.0))[0]][:2] == ["configured", "pair-fm"]
    assert entries_for(config_of(kind="sparse-mlp"))[0][0].name == "sparse-mlp, as configured"


def test_a_model_that_cannot_learn_the_log_is_left_out_with_the_reason():
    entries, refused = entries_for(config_of(PLAIN.fields[1:2]))
    assert "MatchBox" in refused and "matchbox" not in [entry.slug for entry in entries]
    with pytest.raises(InputError, match="the model 'matchbox' cannot learn this log"):
        entries_for(config_of(PLAIN.fields[1:2]), ["matchbox"])


def test_unknown_models_are_named():
    with pytest.raises(InputError, match=r"unknown model 'ftlr' \(did you mean 'ftrl'\?\); models to compare: pair-fm"):
        entries_for(config_of(), ["ftlr"])


def test_a_missing_library_is_named_with_its_install_line(monkeypatch):
    for name in ("river", "vowpalwabbit", "lightgbm"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    result = compare(config_of(), click_log(60), CompareSettings(), ["ftrl", "river", "river-ftrl", "vw", "lightgbm"])
    assert [line["model"] for line in result["models"]] == ["ftrl"]
    assert notes(result) == [
        "not installed: River SGD, River FTRL; to add: pip install river",
        "not installed: Vowpal Wabbit; to add: pip install vowpalwabbit",
        "not installed: LightGBM (batch); to add: pip install lightgbm",
    ]
    with pytest.raises(InputError, match="none of the models to compare is installed; to add them: pip install river"):
        compare(config_of(), click_log(60), CompareSettings(), ["river"])


@pytest.mark.parametrize("entry", OTHERS, ids=lambda entry: entry.slug)
def test_the_default_is_on_the_grid(entry):
    assert entry.start.keys() == entry.grid.keys()
    assert all(entry.start[key] in axis for key, axis in entry.grid.items())
    assert importlib.util.find_spec(f"pbodl.experiments.compare.{entry.home}") is not None
