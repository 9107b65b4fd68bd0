"""The martingale watch, on a model whose moves are prescribed."""

import numpy as np
import pytest

from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.models.contract import Prediction
from pbodl.training.martingale import MEMORY, MartingaleWatch

SCHEMA = Schema(label="click", fields=[Field("ad")])
ROWS = from_data(SCHEMA, [{"ad": i, "click": 0} for i in range(100)], labelled=True)


class Prescribed:
    def __init__(self) -> None:
        self.rows_learned, self.asked = 0, 0
        self.mean, self.variance = np.zeros(10), np.ones(10)

    def predict(self, batch):
        self.asked += 1
        assert len(batch) == 10
        return Prediction(np.full(10, 0.5), self.mean.copy(), self.variance.copy())


def test_the_ratio_is_change_over_fall():
    model = Prescribed()
    watch = MartingaleWatch(model, kept=10, later=1000)
    watch.before(ROWS)
    assert watch.ratio is None
    model.rows_learned = 999
    watch.before(ROWS)
    assert model.asked == 1 and watch.ratio is None
    model.rows_learned, step = 1000, np.where(np.arange(10) % 2, 0.3, -0.3)
    model.mean, model.variance = step + 5.0, np.full(10, 0.7)  # the shared change of 5 is a level, and does not count
    watch.before(ROWS)
    assert watch.ratio == pytest.approx(0.09 / 0.3)
    watch.before(ROWS)
    model.rows_learned = 2000
    model.mean, model.variance = 3 * step, np.full(10, 0.5)
    watch.before(ROWS)
    change, fall = 0.09 + MEMORY * (0.36 - 0.09), 0.3 + MEMORY * (0.2 - 0.3)
    assert watch.ratio == pytest.approx(change / fall)
