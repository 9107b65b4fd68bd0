"""Grids: every kind of model has one, of keys that it has; the values at hand are on it."""

import tomllib

import msgspec
import pytest

from pbodl.baselines import AdPredictor
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.training.config import check_config, to_toml
from pbodl.training.tuning.grids import GRIDS, current_value, grid_of, with_values
from tests.click_log import PLAIN
from tests.training.logs import small_config

PLAIN_SCHEMA = {"label": "click", "fields": [msgspec.to_builtins(field) for field in PLAIN.fields]}


def test_every_kind_has_a_grid_of_its_own_keys():
    kinds = {kind for kind, model in Model.kinds.items() if model.__module__.startswith("pbodl.")}
    assert kinds == set(GRIDS), "say in pbodl/training/tuning/grids.py what may be tuned of each kind"
    for kind in kinds:
        fields = Model.kinds[kind].Spec.__struct_fields__
        for key in GRIDS[kind]:
            table, name = key.split(".")[:2]
            assert name in fields, f"{kind} has no {key}"
            assert table == ("training" if name == "half_life" else "model")


def test_the_grid_holds_the_given_values():
    config = small_config(training={"half_life": "5d"}, dim=5, prior={"dense": 0.07})
    grid = grid_of(config)
    assert grid["training.half_life"] == [None, "30d", "14d", "7d", "5d", "3d", "1d"]
    assert grid["model.dim"] == [4, 5, 8, 16, 32]
    assert 0.07 in grid["model.prior.dense"]
    assert "model.prior.linear" not in grid_of(small_config(linear=False))


def test_a_given_value_replaces_its_like():
    axis = grid_of(small_config(prior={"embedding": 0.0501}))["model.prior.embedding"]
    assert 0.0501 in axis and 0.05 not in axis and {0.025, 0.1} <= set(axis)


def test_half_lives_in_rows():
    for training in ({}, {"half_life": "1M rows"}):
        grid = grid_of(small_config(PLAIN_SCHEMA, training))
        assert all(value is None or value.endswith("rows") for value in grid["training.half_life"])


def test_with_values():
    config = small_config(training={"half_life": "7d", "every": "6h"}, prior={"linear": 0.5})
    changed = with_values(config, {"training.half_life": None, "model.prior.dense": 0.2, "model.dim": 7})
    assert changed.training.half_life is None
    assert changed.training.every == "6h"
    assert changed.model["prior"] == {"linear": 0.5, "dense": 0.2}
    assert changed.model["dim"] == 7
    assert config.model["prior"] == {"linear": 0.5}
    assert check_config(tomllib.loads(to_toml(changed))) == changed


def test_a_kind_without_a_grid(monkeypatch):
    monkeypatch.delitem(GRIDS, AdPredictor.kind)
    with pytest.raises(InputError, match="a 'adpredictor' model has nothing to tune; kinds that can be tuned: deep-probit"):
        grid_of(small_config(kind="adpredictor"))


@pytest.mark.parametrize("kind", ["fm-batch", "dnn-batch"])
def test_batch_models_must_be_retrained(kind):
    with pytest.raises(InputError, match=r"set model\.retrain_every"):
        grid_of(small_config(kind=kind))
    config = small_config(kind=kind, retrain_every="1h")
    assert current_value(config, "model.learning_rate") in grid_of(config)["model.learning_rate"]


def test_what_the_paper_fixes_is_not_tuned():
    config = check_config({"schema": msgspec.to_builtins(PLAIN), "model": {"kind": "fm-mlp", "paper": True}})
    grid = grid_of(config)
    assert {"model.dim", "model.hidden", "training.half_life"} == set(grid)
    changed = with_values(config, {key: axis[0] for key, axis in grid.items()})
    assert changed.build().spec.prior == config.build().spec.prior and not changed.build().spec.linear
