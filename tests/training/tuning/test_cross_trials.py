"""Crosses that `tune` proposes: those that pay are found, and the features are those that a reader makes of the same schema."""

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import pbodl
from pbodl.data.convert import from_data
from pbodl.training.config import check_config
from pbodl.training.tuning.cross_trials import for_schema, proposals, with_cross
from pbodl.training.tuning.tune import CROSS, progressive_log_loss, tune_log

SCHEMA = pbodl.Schema(
    label="click",
    fields=[
        pbodl.Field("user", group="user"), pbodl.Field("tags", group="user", kind="multi"), pbodl.Field("ad", group="ad"),
        pbodl.Field("site", group="context"),
    ],
)  # fmt: skip


def rows(n: int) -> list[dict]:
    # Whether it is a click depends on site and ad together: no effect of one alone, and no rank-one product.
    rng = np.random.default_rng(4)
    effect = rng.permuted(np.tile([1.6, -1.6], (8, 4)), axis=1)
    draws = rng.integers(0, 8, (n, 3))
    clicks = rng.random(n) < 1 / (1 + np.exp(1.0 - effect[draws[:, 1], draws[:, 2]]))
    return [
        {"user": int(u), "tags": ["a", "b"][: u % 3], "ad": int(a), "site": int(s), "click": int(c)}
        for (u, a, s), c in zip(draws, clicks, strict=True)
    ]


@pytest.fixture(scope="module")
def log() -> list[dict]:
    return rows(3000)


def config_of(kind: str):
    return check_config({"schema": msgspec.to_builtins(SCHEMA), "model": {"kind": kind}})


def test_the_pair_that_acts_together_is_proposed(log) -> None:
    batch = from_data(SCHEMA, log, True)
    assert proposals(SCHEMA, [batch.rows(0, 1000), batch.rows(1000, 3000)], 1) == [("ad", "site")]
    crossed = with_cross(config_of("adpredictor"), ("ad", "site")).schema
    assert ("ad", "site") not in proposals(crossed, [from_data(crossed, log, True)], 9)
    assert proposals(SCHEMA, [], 3) == []


def test_features_are_those_that_the_schema_makes_itself(log) -> None:
    crossed = with_cross(config_of("adpredictor"), ("ad", "site"))
    assert crossed.schema.fields[-1].cross == ("ad", "site") and crossed.schema.fields[-1].group == "ad"
    comp = for_schema(from_data(SCHEMA, log, True), SCHEMA, crossed.schema)
    ref = from_data(crossed.schema, log, True)
    for one, other in zip(comp, ref, strict=True):
        np.testing.assert_array_equal(one, other)


def test_tune_keeps_a_cross_that_pays_and_reports_on_unseen_rows(log, tmp_path) -> None:
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist(log), path)
    found = tune_log(config_of("adpredictor"), [str(path)], rows=2400, trials=2, crosses=1)
    best = found.trials[0]
    assert best.changed[CROSS] == "ad × site" and len(found.trials) == 3
    given = next(trial for trial in found.trials if trial.given)
    assert best.log_loss < given.log_loss - 0.01
    batch = from_data(best.config.schema, log[:2400], True)
    assert best.log_loss == pytest.approx(progressive_log_loss(best.config, [batch]), rel=1e-6)
    assert found.verdict is not None and found.verdict.rows == 600 and found.verdict.difference.log_loss_high < 0.0
