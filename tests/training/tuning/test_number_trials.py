"""Edges that `tune` proposes for numbers: the ladder is climbed, and edges that pay are kept and judged on unseen rows."""

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import pbodl
from pbodl.data.convert import from_data
from pbodl.training.config import check_config
from pbodl.training.tuning.number_trials import NUMBERS, numbers_of, try_numbers, with_curves
from pbodl.training.tuning.tune import progressive_log_loss, tune_log

SCHEMA = pbodl.Schema(
    label="click",
    fields=[
        pbodl.Field("ad", group="ad"),
        pbodl.Field("price", group="ad", kind="number", edges=[3.0]),
        pbodl.Field("age", group="user", kind="number", transform="log"),
        pbodl.Field("visits", group="user", kind="number"),
        pbodl.Field("both", group="ad", cross=["ad", "visits"]),
    ],
)
N = 6000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Clicks go up and down with the price, four times between 0 and 1."""
    rng = np.random.default_rng(3)
    price = rng.uniform(0.0, 1.0, N)
    clicks = rng.random(N) < 1 / (1 + np.exp(-3.0 * np.sin(8 * np.pi * price)))
    return pa.table({
        "click": clicks.astype(int), "ad": rng.integers(0, 3, N), "price": price, "age": rng.uniform(18, 60, N),
        "visits": rng.integers(0, 9, N),
    })  # fmt: skip


def config_of(schema: pbodl.Schema):
    return check_config({"schema": msgspec.to_builtins(schema), "model": {"kind": "adpredictor", "prior_variance": 0.5}})


def test_only_numbers_in_buckets_or_on_curves_change_and_edges_are_quantiles(table):
    config = config_of(SCHEMA)
    assert [field.name for field in numbers_of(SCHEMA)] == ["price"]  # `visits` is part of a cross
    changed = with_curves(config, lambda schema: [from_data(schema, table, True)], 8).schema
    assert changed.fields[1].is_curve
    np.testing.assert_allclose(changed.fields[1].edges, np.quantile(table["price"].to_numpy(), np.arange(9) / 8), atol=2e-3)
    assert [field for place, field in enumerate(changed.fields) if place != 1] == [
        field for place, field in enumerate(SCHEMA.fields) if place != 1
    ]


@pytest.mark.parametrize(("best", "tried"), [(8, [16, 32, 8, 4]), (64, [16, 32, 64]), (16, [16, 32, 8])])
def test_the_climb_goes_on_where_it_helps_and_tries_nothing_twice(table, best, tried):
    config = config_of(SCHEMA)

    def loss(changed, batches):
        parts = len(changed.schema.fields[1].edges) - 1
        assert sum(map(len, batches)) == N
        return abs(np.log2(parts / best))

    found = try_numbers(config, 99.0, lambda schema: [from_data(schema, table, True)], 9, loss)
    assert [each.parts for each in found] == tried
    assert try_numbers(config, 99.0, lambda schema: pytest.fail("read"), 0, loss) == []
    without = config_of(msgspec.structs.replace(SCHEMA, fields=[SCHEMA.fields[0], SCHEMA.fields[2]]))
    assert try_numbers(without, 99.0, lambda schema: pytest.fail("read"), 9, loss) == []


def test_tune_keeps_edges_that_pay_and_reports_on_unseen_rows(table, tmp_path):
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(table, path)
    found = tune_log(config_of(SCHEMA), [str(path)], rows=4800, trials=1, crosses=0, numbers=2)
    assert len(found.trials) == 3
    best = found.trials[0]
    assert best.changed[NUMBERS] in ("curve of 16", "curve of 32")
    assert [trial.values[NUMBERS] for trial in found.trials if trial.given] == ["as given"]
    batch = from_data(best.config.schema, table.slice(0, 4800), True)
    assert best.log_loss == pytest.approx(progressive_log_loss(best.config, [batch]), rel=1e-6)
    assert found.verdict is not None and found.verdict.rows == 1200
    assert found.verdict.difference.log_loss_high < -0.05
