"""LightGBM in batch: boosted trees over label-encoded categories.

The number of trees is found by early stopping on the last training day; then all training days are learned with it. Values
seen fewer than RARE times in training are merged into one, or trees would memorise addresses.
"""

import lightgbm
import numpy as np
from numpy.typing import NDArray

from benchmarks.split import DAY, Outcome, Split
from benchmarks.stopwatch import Stopwatch
from benchmarks.workload import FIELDS

RARE = 10
MOST_TREES = 500
SETTINGS = {"objective": "binary", "metric": "binary_logloss", "learning_rate": 0.1, "num_threads": 1, "seed": 0, "verbose": -1}


def run(split: Split, leaves: int) -> Outcome:
    rows, times = len(split.train.batch), split.train.batch.times
    encoded, clicks = _encoded(split.places, rows, split.features), split.train.clicks
    settings = SETTINGS | {"num_leaves": leaves}
    early = int(np.searchsorted(times, times[-1] // DAY * DAY))
    with Stopwatch() as watch:
        first = _dataset(encoded[:early], clicks[:early])
        valid = lightgbm.Dataset(encoded[early:rows], clicks[early:], reference=first)
        stopping = lightgbm.early_stopping(20, verbose=False)
        trial = lightgbm.train(settings, first, MOST_TREES, valid_sets=[valid], callbacks=[stopping])
        model = lightgbm.train(settings, _dataset(encoded[:rows], clicks), trial.best_iteration)
    predicted = np.asarray(model.predict(encoded[rows:], num_threads=1), dtype=np.float32)
    return Outcome(rows, watch.seconds, watch.cpu_seconds, None, predicted)


def _dataset(encoded: NDArray[np.int32], clicks: NDArray[np.float32]) -> lightgbm.Dataset:
    return lightgbm.Dataset(encoded, clicks, categorical_feature=list(range(FIELDS)), free_raw_data=True)


def _encoded(places: NDArray[np.int64], rows: int, features: int) -> NDArray[np.int32]:
    """Labels from 1 up within each field, 0 for what is rare in the training rows."""
    common = np.bincount(places[:rows].reshape(-1), minlength=features) >= RARE
    encoded = np.zeros(places.shape, dtype=np.int32)
    for field in range(places.shape[1]):
        column = places[:, field]
        labels = np.zeros(features, dtype=np.int32)
        known = np.unique(column[common[column]])
        labels[known] = np.arange(1, len(known) + 1)
        encoded[:, field] = labels[column]
    return encoded
