"""A copy of the model in shards, kept up to date by their changes, is that model."""

import numpy as np

from pbodl.parallel.cluster.shard_changes import ShardChanges, decode_changes
from pbodl.parallel.cluster_prior import take_prior
from pbodl.parallel.simulated import Cluster
from pbodl.streaming.cluster.merged_model import MergedModel
from tests.parallel.logs import by_key, fm, plain_log


def test_it_follows_the_shards_by_changes_and_by_whole_states():
    cluster = Cluster(fm(), workers=2, shards=2)
    askers, merged = [ShardChanges(shard) for shard in cluster.shards], MergedModel(cluster.shards[0].model)
    kinds, start = [], 0
    for number, rows in enumerate((300, 400, 500, 600), 1):
        cluster.learn(plain_log(2000).rows(start, start + rows))
        start += rows
        if number == 3:  # all rows change
            evidence = [shard.evidence() for shard in cluster.shards]
            cluster.push(take_prior(cluster.shards[0].model, evidence, 1))
        request = str(number).encode(), b"0"
        answers = [asker.since(*request) for asker in askers]
        assert answers == [asker.since(*request) for asker in askers]  # asked again after a lost answer
        states = [decode_changes(answer) for answer in answers]
        kinds.append({full for _, full in states})
        (merged.replace if states[0][1] else merged.change)([state for state, _ in states])
        ref, comp = by_key(cluster.model()), by_key(merged.model)
        assert [name for name in ref if not np.array_equal(ref[name], comp[name])] == []
        assert merged.model.metrics() == cluster.model().metrics()
    assert kinds == [{True}, {False}, {True}, {False}]


def test_a_shard_that_was_restarted_sends_everything():
    cluster = Cluster(fm(), workers=1)
    cluster.learn(plain_log(300))
    assert decode_changes(ShardChanges(cluster.shards[0]).since(b"7", b"0"))[1]
