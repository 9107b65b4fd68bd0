"""Vowpal Wabbit's online logistic regression, linear or with all pairs of features (`-q ::`)."""

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.running_scale import RunningScale
from pbodl.data.schema import Schema

NAMES = np.uint64(0x7FFFFFFF)  # a feature's name that is a number stands for its own hash, below 2^31


class VowpalWabbit:
    """Vowpal Wabbit's default learner with logistic loss."""

    def __init__(self, schema: Schema, pairs: bool, rate: float) -> None:
        from vowpalwabbit import Workspace  # optional

        self.schema = schema
        self._scale = RunningScale(schema)
        how = "-b 24 -q ::" if pairs else "-b 22"
        self._vw = Workspace(f"--loss_function logistic --link logistic {how} -l {rate} --quiet --no_stdin")

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        assert batch.clicks is not None
        labels = np.where(batch.clicks > 0, 1, -1).tolist()
        predicted = np.zeros(len(batch))
        rows = zip(_lines(batch, self._scale.learn(batch)), labels, batch.weights.tolist(), strict=True)
        for i, (line, label, weight) in enumerate(rows):
            example = self._vw.example(f"{label} {weight} {line}")
            self._vw.learn(example)
            predicted[i] = example.get_simplelabel_prediction()  # made before the update
            self._vw.finish_example(example)
        return predicted

    def finish(self) -> None:
        pass

    def predict(self, batch: Batch) -> NDArray[np.float64]:
        return np.array([self._vw.predict(line) for line in _lines(batch, self._scale.peek(batch))], np.float64)


def _lines(batch: Batch, values: NDArray[np.float32]) -> Iterator[str]:
    """The rows in Vowpal Wabbit's text format, without labels."""
    texts = [
        str(name) if value == 1.0 else f"{name}:{value}"
        for name, value in zip((batch.keys & NAMES).tolist(), values.tolist(), strict=True)
    ]
    edges = batch.indptr.tolist()
    for start, stop in itertools.pairwise(edges):
        yield f"| {' '.join(texts[start:stop])}"
