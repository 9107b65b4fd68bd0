"""Dealing a model out to shards, and joining them."""

import numpy as np
import pytest

from pbodl.models.sharded_state import shard_of
from pbodl.parallel.cluster.sharding import deal, join
from tests.parallel.logs import by_key, fm, plain_log


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_dealt_and_joined_is_the_same_model(shards):
    model = fm(capacity=40)
    model.learn(plain_log(2000))
    assert model.metrics()["evicted"] > 0
    comp = join(deal(model, shards))
    a, b = by_key(model), by_key(comp)
    assert [name for name in a if not np.array_equal(a[name], b[name])] == []
    assert comp.metrics() == model.metrics()


def test_every_shard_holds_its_own_keys():
    model = fm()
    model.learn(plain_log(500))
    for shard in deal(model, 3):
        assert (shard_of(shard.model.table.keys, 3) == shard.number).all()
