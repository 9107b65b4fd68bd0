"""Keys that change no prediction, and half-lives longer than the log, cost no trial."""

import numpy as np
import pytest

from pbodl.data.convert import from_data
from pbodl.training.config import check_config
from pbodl.training.tuning.effects import useful
from pbodl.training.tuning.grids import grid_of


def log(names, groups, kind, rows=400, days=0.0, **training):
    """A configuration for fields of these groups, and rows that span some days."""
    fields = [{"name": name, "group": group} for name, group in zip(names, groups, strict=True)]
    schema = {"label": "click", "fields": fields} | ({"time": "time"} if days else {})
    config = check_config({"schema": schema, "model": {"kind": kind}, "training": training})
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, (rows, len(names)))
    lines = [
        {"click": int(rng.random() < 0.3), "time": 1.4e9 + days * 86400 * i / (rows - 1), **dict(zip(names, row, strict=True))}
        for i, row in enumerate(values.astype(str))
    ]
    return config, [from_data(config.schema, lines[start : start + 100], True) for start in range(0, rows, 100)]


def keys(*arguments, **options):
    config, batches = log(*arguments, **options)
    return set(useful(config, grid_of(config), batches))


def test_pairs_of_groups_matter_where_there_are_groups():
    assert "model.pairs" in keys("abc", ("user", "ad", "ad"), "fm-mlp")
    assert "model.pairs" not in keys("abc", ("user", "ad", "context"), "fm-mlp"), "each field is a group"
    assert "model.pairs" not in keys("abc", ("ad", "ad", "ad"), "fm-mlp")


def test_vectors_matter_where_fields_meet():
    vectors = {"model.dim", "model.pair_weight", "model.prior.embedding", "model.prior.dense"}
    assert vectors <= keys("ab", ("user", "ad"), "pair-fm")
    assert keys("a", ("ad",), "pair-fm") == {"model.prior.linear", "model.prior.bias"}
    assert not {"model.dim", "model.prior.embedding"} & keys("a", ("ad",), "fm-mlp")


@pytest.mark.parametrize(("days", "values"), [(0.5, None), (1.0, [None, "1d"]), (8.0, [None, "7d", "3d", "1d"])])
def test_half_lives_fit_into_the_log(days, values):
    config, batches = log("ab", ("user", "ad"), "adpredictor", days=days)
    assert useful(config, grid_of(config), batches).get("training.half_life") == values


def test_a_given_half_life_stays():
    config, batches = log("ab", ("user", "ad"), "adpredictor", days=2.0, half_life="30d")
    assert useful(config, grid_of(config), batches)["training.half_life"] == [None, "30d", "1d"]


def test_half_lives_in_rows():
    config, batches = log("ab", ("user", "ad"), "adpredictor")
    assert "training.half_life" not in useful(config, grid_of(config), batches)
