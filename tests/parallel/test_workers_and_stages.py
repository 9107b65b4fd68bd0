"""Stages and predictions of weight 0, learned by several workers: one is the model itself, threads and clusters are as good."""

import numpy as np
import pytest

import pbodl
from pbodl.kernels.row_powers import learn_to_powers
from pbodl.models.adaptation import FIRST
from pbodl.models.learning import Learning
from pbodl.parallel.message import decode, encode, merge, split
from pbodl.parallel.shard import Shard
from pbodl.parallel.simulated import Cluster
from pbodl.parallel.threads.learning_threads import learn_with_threads
from pbodl.parallel.worker import Worker, plan
from tests.click_log import PLAIN, RICH
from tests.parallel.logs import by_key, differing, fm, log_loss, market_log, rich_log
from tests.stages import in_stages

MODELS = {
    "fm": lambda: pbodl.FMMLP(RICH, dim=4, hidden=(8,)),
    "pairs, forgetting": lambda: pbodl.PairFM(RICH, dim=3, half_life="2h"),
    "concat, forgetting by rows": lambda: pbodl.DeepProbit(RICH, dim=2, hidden=(8,), half_life="100 rows", decay_mean=True),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("rows", [50, 7])
def test_one_worker_is_the_model_itself_bit_for_bit(make, rows):
    batch = in_stages(rich_log(150)).batch
    ref, cluster = make(), Cluster(make(), workers=1, rows=rows)
    ctr = ref.learn(batch)
    np.testing.assert_array_equal(cluster.learn(batch), ctr)
    comp = cluster.model()
    assert differing(ref, comp) == []
    assert comp.rows_learned == 150


def test_the_ledger_counts_samples_and_the_model_impressions():
    batch = in_stages(rich_log(100)).batch
    shard = Shard(pbodl.FMMLP(RICH, dim=2, hidden=(4,)))
    worker = Worker(shard.model, "w")
    task = plan(batch)
    message, _ = worker.learn(task, [shard.pull(task.keys)], workers=2)
    assert (message.rows, message.counted) == (len(batch), 100)
    for part in (decode(encode(message)), decode(encode(message, half=True)), merge([message], "all", 1), split(message, 3)[1]):
        assert (part.rows, part.counted) == (len(batch), 100)
    shard.push(message)
    assert shard.ledger["w"].rows == len(batch) and shard.model.rows_learned == 100
    log = rich_log(100)
    learned = message.counts[[task.keys.tolist().index(key) for key in np.unique(log.keys).tolist()]]
    np.testing.assert_array_equal(learned, np.unique(log.keys, return_counts=True)[1])


def test_several_workers_are_nearly_as_good_as_one():
    log, later = market_log(FIRST + 4000), market_log(FIRST + 6000)
    later = later.rows(FIRST + 4000, FIRST + 6000)
    batch = in_stages(log).batch
    ref, cluster = fm(), Cluster(fm(), workers=4, rows=128, shards=2)
    ref.learn(batch)
    cluster.learn(batch)
    comp = cluster.model()
    assert comp.rows_learned == ref.rows_learned == len(log)
    assert not np.array_equal(comp.row_prior.linear_variance, fm().row_prior.linear_variance)  # it adapts at the log's moments
    assert log_loss(later, comp.predict(later).ctr) < log_loss(later, ref.predict(later).ctr) + 0.01
    np.testing.assert_array_equal(by_key(comp)["embedding.count"], by_key(ref)["embedding.count"])


def test_a_worker_among_others_leaves_predictions_alone():
    batch = rich_log(60)
    batch = batch._replace(weights=np.zeros(60, np.float32))
    shard = Shard(pbodl.PairFM(RICH, dim=2))
    shard.model.learn(rich_log(200, seed=1))
    before, task = shard.model.state(), plan(batch)
    message, ctr = Worker(shard.model, "w").learn(task, [shard.pull(task.keys)], workers=3)
    np.testing.assert_allclose(ctr, shard.model.predict(batch).ctr, rtol=1e-4)
    assert message.counted == 0 and not message.counts.any() and not message.scale.any()
    assert not message.precision_delta.any() and not message.dense_precision_delta.any()
    shard.push(message)
    new = ~np.isin(shard.model.table.keys, before["embedding.keys"])
    assert new.any() and not shard.model.table.count[new].any()  # predicted, and never learned from
    for name in ("dense.0.mean", "dense.0.variance", "scale.moments", "counters"):
        np.testing.assert_array_equal(shard.model.state()[name], before[name])


def test_powers_of_one_learn_stages_as_the_ordinary_kernel():
    class ToThePowerOne(Learning):
        def learn(self, weights, network, samples, outputs):
            learn_to_powers(np.ones(len(weights.rows.count), np.float32), weights, network, samples, outputs)

    batch = in_stages(market_log(200)).batch
    ref, comp = fm(), fm()
    comp.learn_with(ToThePowerOne())
    np.testing.assert_allclose(comp.learn(batch), ref.learn(batch), rtol=1e-5)
    for name in ("embedding.mean", "embedding.variance", "linear.mean", "embedding.count", "dense.1.total"):
        np.testing.assert_allclose(comp.state()[name], ref.state()[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_threads_that_take_turns_and_add_are_the_model_itself_bit_for_bit():
    batch = in_stages(market_log(5000)).batch
    ref, comp = (pbodl.PairFM(PLAIN, dim=4) for _ in range(2))
    learn_with_threads(comp, 2, "add", in_turns=True)
    np.testing.assert_array_equal(comp.learn(batch), ref.learn(batch))
    assert differing(ref, comp) == []
    assert comp.learning.seen == comp.rows_learned == 5000
