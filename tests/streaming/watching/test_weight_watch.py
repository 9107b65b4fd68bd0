"""Top movers: the features whose weights have changed most since the day began."""

import numpy as np

import pbodl
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.streaming.watching.weight_watch import DAY, WeightWatch

SCHEMA = Schema(label="click", fields=[Field("user"), Field("ad", group="ad")])


def test_the_features_that_change_most_are_told():
    model = pbodl.PairFM(SCHEMA, dim=2)
    rows = [{"user": i % 9, "ad": i % 7, "click": 0} for i in range(630)]
    model.learn(rows)
    watch = WeightWatch(model, every=0.0)
    assert watch.top(10 * DAY) == []
    before = {
        int(key): float(weight) for key, weight in zip(model.table.keys, model.table.column("linear_mean")[:, 0], strict=True)
    }
    model.table.evict(np.arange(len(model.table), dtype=float), 2)  # rows move
    model.learn([{"user": i % 9, "ad": 3, "click": 1} for i in range(50)])
    found = watch.top(10.5 * DAY)
    assert (found[0]["field"], int(found[0]["key"], 16)) == ("ad", hash_value("ad", 3)) and len(found) <= 10
    row = model.table.find(np.array([hash_value("ad", 3)], np.uint64))[0]
    assert found[0]["now"] == float(model.table.column("linear_mean")[row, 0]) and found[0]["count"] == int(model.table.count[row])
    assert found[0]["before"] == before[hash_value("ad", 3)]
    changes = [abs(one["now"] - one["before"]) for one in found]
    assert changes == sorted(changes, reverse=True)
    assert watch.top(11.1 * DAY) == []  # a new day begins


def test_an_empty_model_has_no_movers():
    watch = WeightWatch(pbodl.PairFM(SCHEMA, linear=False), every=0.0)
    assert watch.top(None) == watch.top(None) == []
