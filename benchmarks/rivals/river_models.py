"""River's models: a row is a dict of its features, predicted and then learned, one by one."""

from collections.abc import Hashable, Iterator
from itertools import islice

import numpy as np
from river import facto, linear_model, optim
from river.base import Classifier

from benchmarks.split import Outcome, Split, log_loss
from benchmarks.stopwatch import Stopwatch
from benchmarks.workload import Workload


def logistic(split: Split, rate: float) -> Outcome:
    return _run(linear_model.LogisticRegression(optim.SGD(rate), intercept_lr=rate), split)


def ftrl(split: Split, alpha: float) -> Outcome:
    return _run(linear_model.LogisticRegression(optim.FTRLProximal(alpha=alpha)), split)


def fm(split: Split, train_rows: int, test_rows: int) -> Outcome:
    """Learns only the last training rows and scores only the first test rows: it takes milliseconds per row."""
    batch = split.train.batch
    last = split.train._replace(batch=batch.rows(max(len(batch) - train_rows, 0), len(batch)))
    return _run(facto.FMClassifier(n_factors=8, seed=0), split._replace(train=last), test_rows)


def _run(model: Classifier, split: Split, test_rows: int | None = None) -> Outcome:
    clicks = split.train.clicks > 0
    predicted = np.zeros(len(clicks))
    with Stopwatch() as watch:
        for i, (features, click) in enumerate(zip(_rows(split.train), clicks, strict=True)):
            predicted[i] = model.predict_proba_one(features).get(True, 0.5)
            model.learn_one(features, bool(click))
    tested = [model.predict_proba_one(features).get(True, 0.5) for features in islice(_rows(split.test), test_rows)]
    progressive = log_loss(predicted, split.train.clicks)
    return Outcome(len(clicks), watch.seconds, watch.cpu_seconds, progressive, np.array(tested, dtype=np.float32))


def _rows(workload: Workload) -> Iterator[dict[Hashable, float]]:
    keys = workload.keys()
    return (dict.fromkeys(row.tolist(), 1.0) for row in keys)
