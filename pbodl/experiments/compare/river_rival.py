"""River's logistic regression: a row is a dict of its features, predicted and then learned, one by one."""

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from river import linear_model, optim

from pbodl.data.batch import Batch
from pbodl.data.running_scale import RunningScale
from pbodl.data.schema import Schema


class RiverLogistic:
    """Logistic regression by stochastic gradients (River's default), or by FTRL-Proximal."""

    def __init__(self, schema: Schema, optimiser: str, rate: float) -> None:
        self.schema = schema
        self._scale = RunningScale(schema)
        step = optim.SGD(rate) if optimiser == "sgd" else optim.FTRLProximal(alpha=rate)
        self._model = linear_model.LogisticRegression(step, intercept_lr=rate if optimiser == "sgd" else 0.01)

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        assert batch.clicks is not None
        model, predicted = self._model, np.zeros(len(batch))
        rows = zip(_rows(batch, self._scale.learn(batch)), (batch.clicks > 0).tolist(), batch.weights.tolist(), strict=True)
        for i, (features, click, weight) in enumerate(rows):
            predicted[i] = model.predict_proba_one(features)[True]
            model.learn_one(features, click, w=weight)
        return predicted

    def finish(self) -> None:
        pass

    def predict(self, batch: Batch) -> NDArray[np.float64]:
        rows = _rows(batch, self._scale.peek(batch))
        return np.array([self._model.predict_proba_one(features)[True] for features in rows])


def _rows(batch: Batch, values: NDArray[np.float32]) -> Iterator[dict[int, float]]:
    keys, numbers, edges = batch.keys.tolist(), values.tolist(), batch.indptr.tolist()
    for start, stop in itertools.pairwise(edges):
        yield dict(zip(keys[start:stop], numbers[start:stop], strict=True))
