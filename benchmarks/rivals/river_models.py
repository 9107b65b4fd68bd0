"""River's models: a row is a dict of its features, predicted and then learned, one by one."""

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray
from river import facto, linear_model, optim
from river.base import Classifier

from benchmarks.split import Outcome, Split
from benchmarks.stopwatch import Stopwatch


def logistic(split: Split, rate: float) -> Outcome:
    return _run(linear_model.LogisticRegression(optim.SGD(rate), intercept_lr=rate), split)


def ftrl(split: Split, alpha: float) -> Outcome:
    return _run(linear_model.LogisticRegression(optim.FTRLProximal(alpha=alpha)), split)


def fm(split: Split, train_rows: int, test_rows: int) -> Outcome:
    """Learns only the last rows and scores only the first test rows: it takes milliseconds per row."""
    return _run(facto.FMClassifier(n_factors=8, seed=0), split, max(split.learned - train_rows, 0), test_rows)


def _run(model: Classifier, split: Split, start: int = 0, test_rows: int | None = None) -> Outcome:
    before, rows = np.zeros(split.learned - start, np.float32), split.places[start : split.learned]
    with Stopwatch() as watch:
        for i, (places, click) in enumerate(zip(rows, split.clicks[start : split.learned] > 0, strict=True)):
            features = _features(places)
            before[i] = model.predict_proba_one(features).get(True, 0.5)
            model.learn_one(features, bool(click))
    tested = split.places[split.learned :][:test_rows]
    predicted = [model.predict_proba_one(_features(places)).get(True, 0.5) for places in tested]
    return Outcome(len(before), watch.seconds, watch.cpu_seconds, before, np.array(predicted, dtype=np.float32))


def _features(places: NDArray[np.int64]) -> dict[Hashable, float]:
    return dict.fromkeys(places.tolist(), 1.0)
