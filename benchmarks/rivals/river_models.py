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
    with Stopwatch() as watch:
        before = _learned(model, split.places[start : split.learned], split.clicks[start : split.learned])
    tested, clicks = split.places[split.learned :][:test_rows], split.clicks[split.learned :][:test_rows]
    predicted = np.array([model.predict_proba_one(_features(places)).get(True, 0.5) for places in tested], np.float32)
    return Outcome(len(before), watch.seconds, watch.cpu_seconds, before, predicted, _learned(model, tested, clicks))


def _learned(model: Classifier, rows: NDArray[np.int64], clicks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Learn the rows one by one; returns what was predicted before."""
    before = np.zeros(len(rows), np.float32)
    for i, (places, click) in enumerate(zip(rows, clicks > 0, strict=True)):
        features = _features(places)
        before[i] = model.predict_proba_one(features).get(True, 0.5)
        model.learn_one(features, bool(click))
    return before


def _features(places: NDArray[np.int64]) -> dict[Hashable, float]:
    return dict.fromkeys(places.tolist(), 1.0)
