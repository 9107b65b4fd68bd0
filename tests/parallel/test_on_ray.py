"""The cluster on Ray: nothing is lost and nothing counts twice, whatever is killed."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import pbodl
from pbodl.data.readers import open_log
from pbodl.parallel.on_ray import Settings, ray_for
from pbodl.training.config import check_config
from pbodl.training.session import train
from tests.click_log import PLAIN
from tests.oracles.worlds import Market
from tests.parallel.chaos import Chaos, journalled, kill_one

ROWS = 24_000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    columns, _ = Market(0).draw(ROWS)
    pa.parquet.write_table(pa.table(columns), path)
    return str(path)


def settings_of(schema: pbodl.Schema):
    import msgspec

    return check_config({
        "schema": msgspec.to_builtins(schema),
        "model": {"kind": "fm-mlp", "dim": 4, "hidden": [8]},
    })


def entries(log: str) -> int:
    """Features of all rows: each must have been counted once."""
    with open_log(log, PLAIN) as reader:
        return sum(len(chunk.batch.keys) for chunk in reader)


def test_a_shard_and_a_worker_are_killed_and_every_row_counts_once(log, tmp_path):
    config, chance = settings_of(PLAIN), random.Random(0)
    ref = train(config, [log], tmp_path / "ref")
    run = tmp_path / "run"
    victims = ("ShardActor", "LaneActor", "ShardActor", "LaneActor")

    def strike(number: int) -> bool:
        return kill_one(victims[number], chance)

    def ready(number: int) -> bool:
        return number < len(victims) and journalled(run) > 150_000 * (1 + number)

    engine = ray_for(Settings(workers=2, shards=2, rows=128))
    with Chaos(ready, strike) as chaos:
        summary = train(config, [log], run, engine=engine)
    assert chaos.strikes == len(victims)
    ledger = summary["ledger"]
    assert (ledger["sound"], ledger["lost"], ledger["twice"], ledger["rows"]) == (True, 0, 0, ROWS)
    assert sum(line["rows"] for line in ledger["lines"]) == ROWS
    model = pbodl.load(run)
    assert model.rows_learned == ROWS
    assert int(model.table.count.sum(dtype=np.int64)) == entries(log)
    assert abs(summary["log_loss"] - ref["log_loss"]) < 0.01
    assert not (run / "shards").exists()
