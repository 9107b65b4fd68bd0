"""The cluster on Ray: nothing is lost and nothing counts twice, whatever is killed."""

import random
import socket

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import pbodl
from pbodl.data.log.log_reader import open_log
from pbodl.errors import InputError
from pbodl.models.snapshot import rollback, snapshots
from pbodl.parallel.cluster.on_ray import RaySettings, ray_for
from pbodl.parallel.cluster.ray_actors import connected
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
    return check_config(
        {
            "schema": msgspec.to_builtins(schema),
            "model": {"kind": "fm-mlp", "dim": 4, "hidden": [8]},
        }
    )


def entries(log: str) -> int:
    """Features of all rows: each must have been counted once."""
    with open_log(log, PLAIN) as reader:
        return sum(len(chunk.batch.keys) for chunk in reader)


def test_a_shard_and_a_worker_are_killed_and_every_row_counts_once(log, tmp_path):
    config, chance = settings_of(PLAIN), random.Random(0)
    ref = train(config, [log], tmp_path / "ref")
    run = tmp_path / "run"
    victims = ("ShardActor", "WorkerActor")

    def strike(number: int) -> bool:
        return kill_one(victims[number], chance)

    def ready(number: int) -> bool:
        return number < len(victims) and journalled(run) > 150_000 * (1 + number)

    # One cluster for both trainings: its start takes longer than they do.
    with connected(None):
        engine = ray_for(RaySettings(workers=2, shards=2, rows=128))
        with Chaos(ready, strike) as chaos:
            summary = train(config, [log], run, engine=engine)
        assert chaos.strikes == len(victims)
        ledger = summary["ledger"]
        assert (ledger["sound"], ledger["lost"], ledger["twice"], ledger["rows"]) == (True, 0, 0, ROWS)
        assert sum(line["rows"] for line in ledger["lines"]) == ROWS
        model = pbodl.load(run)
        assert model.rows_learned == ROWS
        assert int(model.table.count.sum(dtype=np.int64)) == entries(log)
        assert summary["counters"] == model.metrics()
        assert abs(summary["log_loss"] - ref["log_loss"]) < 0.01
        assert not (run / "shards").exists()
        newest = snapshots(run)[-1]
        assert sorted(path.name for path in newest.glob("shard-*")) == ["shard-0.safetensors", "shard-1.safetensors"]

        # From the snapshot before, half of the log, another number of shards continues.
        rollback(run)
        assert 0 < pbodl.load(run).rows_learned < ROWS
        summary = train(config, [log], run, resume=True, engine=ray_for(RaySettings(workers=1, shards=3, rows=128)))
        assert summary["ledger"]["sound"]
        model = pbodl.load(run)
        assert (model.rows_learned, int(model.table.count.sum(dtype=np.int64))) == (ROWS, entries(log))
        assert len(list(snapshots(run)[-1].glob("shard-*"))) == 3


@pytest.mark.parametrize(
    "options, said",
    [
        ({"shards": 0}, "shards is 0"),
        ({"workers": 0}, "workers is 0"),
        ({"rows": 70_000}, "rows of a minibatch is 70000"),
    ],
)
def test_settings_out_of_range_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        ray_for(RaySettings(**options))


def test_an_address_where_nobody_is_is_said_at_once(log, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InputError, match=f"there is no Ray cluster at {address}"):
            train(settings_of(PLAIN), [log], tmp_path / "run", engine=ray_for(RaySettings(address=address)))


def test_models_of_one_process_are_refused(log, tmp_path):
    config = check_config({"schema": msgspec.to_builtins(PLAIN), "model": {"kind": "ftrl"}})
    with pytest.raises(InputError, match="a 'ftrl' model learns in one process only"):
        train(config, [log], tmp_path / "run", engine=ray_for(RaySettings()))
