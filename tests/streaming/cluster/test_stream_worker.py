"""Stream workers and shards, killed again and again: the rows that the shards learned are those of the events, each once."""

import numpy as np
import pytest

from pbodl.parallel.cluster.sharding import join
from pbodl.parallel.shard import Fenced
from pbodl.streaming.cluster.stream_worker import WorkerSettings
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from tests.streaming.cluster.local_cluster import LocalCluster, dealt
from tests.streaming.traffic import config, decoded, fingerprint, traffic

JOIN = StreamOptions("5m", "20m", 1500)
CONFIG = config(negative_rate=0.7)


def counts_of(parts, folder) -> dict[int, int]:
    """How often each feature occurs in the rows of all partitions: one process for each, without a cluster."""
    total: dict[int, int] = {}
    for number, events in enumerate(parts):
        one = StreamLearner.start(CONFIG, folder / f"one-{number}", JOIN, StreamPosition())
        one.take(decoded(events), StreamPosition())
        for key, count in zip(one.model.table.keys.tolist(), one.model.table.count.tolist(), strict=True):
            total[key] = total.get(key, 0) + count
    return total


def learned_counts(cluster: LocalCluster) -> dict[int, int]:
    model = join([host.shard for host in cluster.hosts])
    return dict(zip(model.table.keys.tolist(), model.table.count.tolist(), strict=True))


@pytest.mark.parametrize("workers, shards, risk", [(1, 1, 0.0), (2, 2, 0.0), (3, 2, 0.05), (2, 3, 0.1)])
def test_every_event_counts_once_whoever_dies(tmp_path, workers, shards, risk):
    parts = dealt(traffic(1500), 3)
    cluster = LocalCluster(CONFIG, JOIN, parts, tmp_path / "shards", WorkerSettings(workers, shards, 64), risk, seed=workers)
    cluster.run()
    assert learned_counts(cluster) == counts_of(parts, tmp_path)
    rows = {sum(entry.rows for name, entry in host.shard.ledger.items() if name.startswith("p")) for host in cluster.hosts}
    assert rows == {sum(lane.learner.rows for worker in cluster.workers for lane in worker.lanes)}
    if risk:
        assert min(cluster.killed.values()) > 3


def test_one_worker_and_one_shard_learn_as_one_process_does(tmp_path):
    events = traffic(1500)
    cluster = LocalCluster(CONFIG, JOIN, [events], tmp_path / "shards", WorkerSettings(1, 1, 64), seed=5)
    cluster.run()
    one = StreamLearner.start(CONFIG, tmp_path / "one", JOIN, StreamPosition())
    one.take(decoded(events), StreamPosition())
    assert fingerprint(cluster.hosts[0].shard.model) == fingerprint(one.model)


def test_a_worker_that_was_taken_for_dead_cannot_write(tmp_path):
    parts = dealt(traffic(600), 1)
    cluster = LocalCluster(CONFIG, JOIN, parts, tmp_path / "shards", WorkerSettings(1, 2, 64))
    zombie = cluster.workers[0]
    while (learned := zombie.begin(zombie.lanes[0])) is None:
        cluster.read(zombie.lanes[0])
    zombie.finish(learned)
    while (learned := zombie.begin(zombie.lanes[0])) is None:
        cluster.read(zombie.lanes[0])
    # It stops here, with a message in its hands, and its successor takes over.
    cluster.workers[0] = cluster.start(0)
    for shard in (0, 1):
        cluster.restart_shard(shard)  # the claim is in the journal
    with pytest.raises(Fenced, match="belongs to epoch 2 now; epoch 1 was taken for dead"):
        zombie.finish(learned)
    cluster.run()
    assert learned_counts(cluster) == counts_of(parts, tmp_path)


def test_figures_and_evidence_are_handed_out_once(tmp_path):
    parts = dealt(traffic(600), 1)
    cluster = LocalCluster(CONFIG, JOIN, parts, tmp_path / "shards", WorkerSettings(1, 1, 64))
    cluster.run()
    worker = cluster.workers[0]
    metrics, evidence = worker.take_evidence()
    counts = worker.lanes[0].learner.join.metrics()
    assert evidence.rows == counts["positives"] + counts["negatives"] - counts["unsampled"] or evidence.rows > 300
    assert 0 < metrics["sums"][0] <= counts["impressions"]
    metrics, evidence = worker.take_evidence()
    assert metrics["sums"][0] == evidence.rows == 0
    assert not np.any(evidence.sums)
