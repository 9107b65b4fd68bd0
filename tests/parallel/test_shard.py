"""The server's shard: it creates nothing on a pull, and applies every message exactly once."""

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.parallel.message import Message
from pbodl.parallel.shard import Shard
from pbodl.parallel.worker import Worker, plan
from tests.click_log import PLAIN, RICH
from tests.parallel.logs import differing, fm, plain_log, rich_log


def next_message(shard: Shard, worker: Worker, batch, workers: int = 2) -> Message:
    task = plan(batch)
    return worker.learn(task, [shard.pull(task.keys)], workers)[0]


def test_a_pull_creates_nothing():
    shard = Shard(fm())
    shard.model.learn(plain_log(50))
    before = shard.state()
    unseen = np.arange(1000, dtype=np.uint64)
    pulled = shard.pull(np.concatenate([shard.model.table.keys[:3], unseen]))
    assert pulled.places.tolist() == [0, 1, 2]
    assert len(pulled.weights.mean) == 3
    assert all(np.array_equal(before[name], array) for name, array in shard.state().items())


def test_a_repeat_is_dropped_and_counted():
    shard = Shard(fm())
    worker = Worker(shard.model, "w")
    message = next_message(shard, worker, plain_log(50))
    assert shard.push(message)
    before = shard.model.state()
    assert not shard.push(message)
    assert not shard.push(message)
    assert all(np.array_equal(before[name], array) for name, array in shard.model.state().items())
    assert (shard.ledger["w"].repeats, shard.ledger["w"].sequence, shard.ledger["w"].rows) == (2, 1, 50)


def test_a_message_before_its_predecessor_is_refused():
    shard = Shard(fm())
    worker = Worker(shard.model, "w")
    first, second = (next_message(shard, worker, plain_log(50, seed)) for seed in (0, 1))
    with pytest.raises(InputError, match="message 2 of 'w' came when 0 was the last one applied"):
        shard.push(second)
    assert shard.model.rows_learned == 0
    assert shard.push(first) and shard.push(second)


def test_sources_do_not_get_in_each_others_way():
    shard = Shard(fm())
    a, b = Worker(shard.model, "a"), Worker(shard.model, "b")
    made = [next_message(shard, worker, plain_log(20, seed)) for worker, seed in ((a, 0), (b, 1), (a, 2))]
    assert all(shard.push(message) for message in made)
    assert {name: entry.sequence for name, entry in shard.ledger.items()} == {"a": 2, "b": 1}


def test_a_snapshot_has_the_ledger_inside():
    shard = Shard(fm())
    worker = Worker(shard.model, "w")
    made = [next_message(shard, worker, plain_log(50, seed)) for seed in range(3)]
    shard.push(made[0])
    shard.push(made[1])
    restored = Shard(fm())
    restored.load_state(shard.state())
    # What was acknowledged before the snapshot and is sent again is recognised; what came after it is applied.
    assert [restored.push(message) for message in made] == [False, False, True]
    shard.push(made[2])
    assert differing(shard.model, restored.model) == []
    assert restored.predictive_variance == shard.predictive_variance
    assert restored.ledger["w"].precision == shard.ledger["w"].precision


def test_a_models_state_is_not_a_shards():
    with pytest.raises(InputError, match="that of a model, not of a server's shard"):
        Shard(fm()).load_state(fm().state())


def test_a_damaged_ledger_is_refused():
    shard = Shard(fm())
    state = shard.state() | {"server.ledger": np.frombuffer(b"{]", np.uint8)}
    with pytest.raises(InputError, match="ledger is damaged"):
        shard.load_state(state)


def test_a_message_of_another_model_is_refused():
    shard = Shard(fm())
    other = pbodl.FMMLP(PLAIN, dim=7, hidden=(8,))
    message = next_message(Shard(other), Worker(other, "w"), plain_log(10))
    with pytest.raises(InputError, match="give the worker the configuration of the server"):
        shard.push(message)


def test_messages_made_side_by_side_add_up_whatever_their_order():
    batch, results = plain_log(150), []
    for order in ([0, 1, 2], [2, 1, 0]):
        shard = Shard(fm())
        made = [next_message(shard, Worker(shard.model, f"w{n}"), batch.rows(50 * n, 50 * n + 50), 3) for n in range(3)]
        for n in order:
            shard.push(made[n])
        index = np.argsort(shard.model.table.keys)
        results.append((shard.model.table.column("mean")[index], shard.model.table.column("variance")[index], shard.guarded))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-4)
    assert results[0][2] == 0


def test_a_stale_posterior_is_not_taken_for_the_truth():
    shard = Shard(fm())
    batch = plain_log(100)
    lone, other = Worker(shard.model, "lone"), Worker(shard.model, "other")
    task = plan(batch.rows(0, 50))
    pulled = shard.pull(task.keys)
    shard.push(next_message(shard, other, batch.rows(50, 100)))
    message, _ = lone.learn(task, [pulled])
    assert message.posterior is not None and shard.push(message)
    assert shard.model.rows_learned == 100
    shared = np.isin(shard.model.table.keys, batch.rows(50, 100).keys) & np.isin(shard.model.table.keys, task.keys)
    count = shard.model.table.count[shared]
    ref = [int((batch.keys == key).sum()) for key in shard.model.table.keys[shared]]
    assert count.tolist() == ref
    both, alone = (model.table.column("linear_variance") for model in (shard.model, lone.local))
    assert (both[shared] < alone[lone.local.table.find(shard.model.table.keys[shared])]).all()


def test_time_to_live_and_capacity_are_the_servers():
    make = lambda: pbodl.FMMLP(RICH, dim=2, hidden=(), time_to_live="30m", capacity=60)  # noqa: E731
    shard = Shard(make())
    worker = Worker(shard.model, "w")
    for start in range(0, 400, 40):
        shard.push(next_message(shard, worker, rich_log(400).rows(start, start + 40)))
    metrics = shard.model.metrics()
    assert metrics["features"] <= 60 and metrics["expired"] > 0


def test_a_message_that_is_not_finite_does_no_harm():
    shard = Shard(fm())
    worker = Worker(shard.model, "w")
    shard.push(next_message(shard, worker, plain_log(50)))
    message = next_message(shard, worker, plain_log(50, 1))
    bad = np.full_like(message.precision_delta, np.nan)
    shard.push(message._replace(precision_delta=bad, precision_mean_delta=bad, variance=float("nan")))
    state = shard.model.state()
    assert all(np.isfinite(array).all() for array in state.values() if array.dtype.kind == "f")
    assert shard.guarded == bad.size and np.isfinite(shard.predictive_variance)
