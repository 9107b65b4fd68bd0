"""A minute of SIGKILL on three nodes: any worker, any shard, any node but the one that reads."""

import itertools
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import pbodl
from pbodl.data.batch import Batch
from pbodl.data.convert import from_data
from pbodl.data.synthetic import World
from pbodl.parallel.cluster.on_ray import RaySettings, ray_for
from pbodl.training.config import check_config
from pbodl.training.presets import PRESETS
from pbodl.training.run import Run
from pbodl.training.stream_metrics import StreamMetrics
from tests.parallel.chaos import Chaos, journalled, kill_one

SECONDS, EVERY = 60, 4
CHUNK, MOST_ROWS, TEST_ROWS = 10_000, 8_000_000, 100_000  # the log is longer than a minute, and leaves rows to test on
WARM = 20  # chunks learned before, so that the ramp is behind, and all slots have work
QUICK = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3, "health_check_timeout_ms": 5000}


@pytest.fixture
def nodes():
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listen on 127.0.0.1
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "_system_config": QUICK}
    cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)  # its hooks want the main thread
    for _ in range(2):
        cluster.add_node(num_cpus=2)
    yield cluster
    cluster.shutdown()


def kill_node(cluster, chance: random.Random) -> bool:
    """SIGKILL for a node's raylet and all that it started; another node takes its place."""
    node = chance.choice(sorted(cluster.worker_nodes, key=lambda node: node.unique_id))
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in [raylet, *raylet.children(recursive=True)]:
        process.send_signal(signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(num_cpus=2)
    return True


def chunks(world: World):
    for part in world.batches(CHUNK):
        yield from_data(world.schema, part, labelled=True)


def learned(run_folder: Path, address: str, rows: int | None) -> tuple[Run, dict, int, int]:
    """A run over `rows` rows on the cluster, or as many as go into a minute."""
    config = check_config(PRESETS["synthetic"]())
    world, seen, features = World(rows=MOST_ROWS), 0, 0
    log = chunks(world)
    warm = list(itertools.islice(log, WARM))
    run = Run.start(config, run_folder, warm[0])
    for batch in warm:
        run.model.learn(batch)
        features += len(batch.keys)
    with ray_for(RaySettings(workers=4, shards=2, rows=256, address=address))(run) as learner:
        began = time.monotonic()
        for batch in log:
            learner.learn(batch)
            seen, features = seen + len(batch), features + len(batch.keys)
            if seen == rows if rows else time.monotonic() - began > SECONDS:
                break
        learner.gather()
        return run, learner.summary(), seen, features


def auc(model: pbodl.FMMLP, batch: Batch) -> float:
    metrics = StreamMetrics()
    metrics.add(model.predict(batch).ctr, batch.clicks)
    return metrics.figures().auc


@pytest.mark.slow
def test_a_minute_of_chaos(nodes, tmp_path):
    chance = random.Random(int(os.environ.get("CHAOS_SEED", "0")))
    struck: list[tuple[float, str]] = []

    def ready(number: int) -> bool:
        if not journalled(tmp_path / "run"):
            return False
        return not struck or (time.monotonic() - struck[-1][0] > EVERY and time.monotonic() - struck[0][0] < SECONDS)

    def strike(number: int) -> bool:
        kind = ("ShardActor", "WorkerActor", "node", "WorkerActor")[number % 4]
        hit = kill_node(nodes, chance) if kind == "node" else kill_one(kind, chance)
        if hit:
            struck.append((time.monotonic(), kind))
        return hit

    with Chaos(ready, strike):
        run, summary, seen, features = learned(tmp_path / "run", nodes.address, None)
    ref, _, ref_rows, _ = learned(tmp_path / "ref", nodes.address, seen)
    used = WARM + seen // CHUNK
    test = itertools.islice(chunks(World(rows=MOST_ROWS)), used, used + TEST_ROWS // CHUNK)
    figures = np.mean([[auc(one.model, batch) for one in (run, ref)] for batch in test], axis=0)
    kinds = [kind for _, kind in struck]
    print(f"struck: {kinds}; rows {seen:,}; AUC {figures[0]:.5f}, without faults {figures[1]:.5f}; {summary}")
    assert len(kinds) >= 8 and {"ShardActor", "WorkerActor", "node"} <= set(kinds)
    ledger = summary["ledger"]
    assert (ledger["lost"], ledger["twice"], ledger["rows"]) == (0, 0, seen) and ref_rows == seen
    assert run.model.rows_learned == WARM * CHUNK + seen
    assert int(run.model.table.count.sum(dtype=np.int64)) == features
    assert abs(figures[0] - figures[1]) < 0.002
