"""Messages: sums, differences, shards, and their bytes."""

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.models.sharded_state import shard_of
from pbodl.parallel.message import Message, decode, encode, merge, split
from pbodl.parallel.shard import Shard
from pbodl.parallel.worker import Worker, plan
from tests.parallel.logs import fm, plain_log, rich_log


def messages(workers: int, rows: int = 60) -> list[Message]:
    """Messages of several workers that start from the same empty model."""
    model, batch = fm(), plain_log(workers * rows)
    shard, made = Shard(model), []
    for n in range(workers):
        task = plan(batch.rows(n * rows, (n + 1) * rows))
        made.append(Worker(model, f"w{n}").learn(task, [shard.pull(task.keys)], workers)[0])
    return made


def assert_equal(ref: Message, comp: Message) -> None:
    for name, a, b in zip(ref._fields, ref, comp, strict=True):
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype and np.array_equal(a, b), name
        elif name != "posterior":
            assert a == b, name
    assert (ref.posterior is None) == (comp.posterior is None)
    if ref.posterior is not None and comp.posterior is not None:
        assert all(np.array_equal(a, b) for a, b in zip(ref.posterior, comp.posterior, strict=True))


@pytest.mark.parametrize("workers", [1, 2], ids=["lone", "one of two"])
def test_bytes_and_back(workers):
    message = messages(workers)[0]
    assert (message.posterior is not None) == (workers == 1)
    assert_equal(message, decode(encode(message)))


def test_a_message_without_rows_travels():
    model = fm()
    none = {"keys": np.zeros(0, np.uint64), "values": np.zeros(0, np.float32), "fields": np.zeros(0, np.int32)}
    task = plan(plain_log(3)._replace(**none, indptr=np.zeros(4, np.int64)))
    message, _ = Worker(model, "w").learn(task, [Shard(model).pull(task.keys)], 2)
    assert_equal(message, decode(encode(message)))
    assert Shard(model).push(message)


def test_sixteen_bits_keep_three_digits_and_save_half():
    message = messages(2)[0]
    comp = decode(encode(message, half=True))
    for name in ("precision_delta", "precision_mean_delta", "dense_precision_delta", "dense_precision_mean_delta"):
        a, b = getattr(message, name), getattr(comp, name)
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-8 * np.abs(a).max())
    assert np.array_equal(comp.keys, message.keys)
    saved = len(encode(message)) - len(encode(message, half=True))
    assert saved > 0.5 * 2 * message.precision_delta.nbytes - 500  # the units' names


@pytest.mark.parametrize("content", [b"", b"nothing", encode(messages(2)[0])[:-7], encode(messages(2)[0])[:100]])
def test_other_bytes_are_refused(content):
    with pytest.raises(InputError, match="not a message"):
        decode(content)


def test_merged_is_pushed_one_after_the_other():
    made = messages(3)
    one_by_one, at_once = Shard(fm()), Shard(fm())
    for message in made:
        one_by_one.push(message)
    at_once.push(merge(made, "all", 1))
    a, b = one_by_one.model.state(), at_once.model.state()
    assert one_by_one.model.rows_learned == at_once.model.rows_learned == 180
    for name in ("embedding.keys", "embedding.count", "embedding.field"):
        assert np.array_equal(a[name], b[name]), name
    for name in ("embedding.mean", "embedding.variance", "linear.mean", "dense.0.mean", "dense.1.variance"):
        np.testing.assert_allclose(b[name], a[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_split_deals_out_every_row_once():
    message = messages(1)[0]
    parts = split(message, 3)
    assert sorted(np.concatenate([part.keys for part in parts]).tolist()) == sorted(message.keys.tolist())
    for shard, part in enumerate(parts):
        assert (shard_of(part.keys, 3) == shard).all()
        assert part.posterior is not None and len(part.posterior.mean) == len(part.keys) == len(part.precision_delta)
        assert part.rows == message.rows
        assert (len(part.dense_precision_delta) > 0) == (shard == 0) == (len(part.posterior.dense_mean) > 0)
    assert split(message, 1) == [message]


def test_keys_spread_evenly_over_shards():
    keys = rich_log(2000).keys
    sequential = np.arange(10_000, dtype=np.uint64)
    for some in (np.unique(keys), sequential, sequential << np.uint64(40)):
        counts = np.bincount(shard_of(some, 4), minlength=4)
        assert counts.min() > 0.15 * len(some), counts
