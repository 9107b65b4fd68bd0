"""The worker: its message telescopes, and its local copy is the server's."""

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.parallel.shard import Shard
from pbodl.parallel.worker import Worker, plan
from tests.click_log import RICH
from tests.parallel.logs import fm, plain_log, rich_log


def test_a_plan_has_every_feature_once_in_order_of_arrival():
    batch = rich_log(50)
    task = plan(batch, shards=3)
    _, first = np.unique(batch.keys, return_index=True)
    assert task.keys.tolist() == batch.keys[np.sort(first)].tolist()
    assert task.counts.tolist() == [int((batch.keys == key).sum()) for key in task.keys]
    assert task.fields.tolist() == [int(batch.fields[batch.keys == key][0]) for key in task.keys]
    assert np.sort(np.concatenate(task.at)).tolist() == list(range(len(task.keys)))


def test_the_message_is_the_sum_over_samples_of_algorithm_1():
    # erratum E5, in float64 as the paper writes it: a difference of natural parameters for every sample and weight.
    batch, model = plain_log(80), fm()
    task = plan(batch)
    message, _ = Worker(model, "w", merge="add").learn(task, [Shard(model).pull(task.keys)], workers=2)
    copy = fm()
    copy.learn(batch.rows(0, 1))  # so that the first sample's rows exist; taken back below by starting at the prior
    copy = fm()
    index = {int(key): n for n, key in enumerate(task.keys)}
    total = np.zeros((2, len(task.keys), 5))
    for sample in range(len(batch)):
        one = batch.rows(sample, sample + 1)
        before = prior_of(copy, one.keys)
        copy.learn(one)
        rows = copy.table.find(one.keys)
        for place, (key, row) in enumerate(zip(one.keys.tolist(), rows, strict=True)):
            m0, v0 = before[0][place], before[1][place]
            m1 = np.r_[copy.table.column("mean")[row], copy.table.column("linear_mean")[row]].astype(float)
            v1 = np.r_[copy.table.column("variance")[row], copy.table.column("linear_variance")[row]].astype(float)
            total[0, index[key]] += 1 / v1 - 1 / v0
            total[1, index[key]] += m1 / v1 - m0 / v0
    np.testing.assert_allclose(message.precision_delta, total[0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(message.precision_mean_delta, total[1], rtol=1e-3, atol=1e-4)


def prior_of(model, keys):
    """Means and variances of features, embedding and linear weight, whether they have rows or not."""
    pulled = Shard(model).pull(keys)
    task_keys = plan(plain_log(1)._replace(keys=keys)).keys
    assert len(task_keys) == len(keys)
    worker = Worker(model, "reader")
    task = plan(plain_log(1)._replace(keys=keys, fields=np.arange(len(keys), dtype=np.int32)))
    worker._load(task, [pulled])
    column = worker.local.table.column
    mean = np.hstack([column("mean"), column("linear_mean")]).astype(float)
    return mean, np.hstack([column("variance"), column("linear_variance")]).astype(float)


def test_learning_leaves_the_server_alone():
    model, batch = fm(), plain_log(100)
    model.learn(batch)
    before = model.state()
    task = plan(batch)
    Worker(model, "w").learn(task, [Shard(model).pull(task.keys)], 2)
    assert all(np.array_equal(before[name], array) for name, array in model.state().items())


def test_with_others_the_copy_is_brought_up_to_the_servers_clock_and_does_not_decay_further():
    # Two workers, each with half of the same minute: together they must not forget twice.
    make = lambda: pbodl.FMMLP(RICH, dim=2, hidden=(), half_life="1h")  # noqa: E731
    batch = rich_log(200)
    shard = Shard(make())
    first = plan(batch.rows(0, 100))
    shard.push(Worker(shard.model, "w0").learn(first, [shard.pull(first.keys)])[0])
    later = batch.rows(100, 110)
    later = later._replace(times=later.times + 36_000.0, weights=np.full(10, 1e-6, np.float32))
    task = plan(later)
    pulled = shard.pull(task.keys)
    for n in range(2):
        shard.push(Worker(shard.model, f"v{n}").learn(task, [pulled], 2)[0])
    at = shard.model.table.find(task.keys)
    prior = shard.model.row_prior.variance[task.fields.astype(int), 0]
    kept = 0.5**10
    before = pulled.weights.variance[:, 0]
    at_known = at[pulled.places]
    ref = 1.0 / (1.0 / prior[pulled.places] + kept * (1.0 / before - 1.0 / prior[pulled.places]))
    np.testing.assert_allclose(shard.model.table.column("variance")[at_known, 0], ref, rtol=1e-2)


def test_sequences_count_up_and_carry_the_source():
    model, batch = fm(), plain_log(40)
    shard, worker = Shard(model), Worker(model, "node-7")
    for sequence in (1, 2):
        task = plan(batch)
        message, _ = worker.learn(task, [shard.pull(task.keys)])
        assert (message.source, message.sequence, message.rows) == ("node-7", sequence, 40)


def test_an_unknown_rule_is_refused():
    with pytest.raises(InputError, match="merge is 'sum'; it must be one of: shared, add"):
        Worker(fm(), "w", merge="sum")
