"""The paired bootstrap: right differences, and intervals that hold what they promise."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from pbodl.experiments.paired import paired_difference


def two_models(seed, noise, n=4000):
    rng = np.random.default_rng(seed)
    z = rng.normal(-1.5, 1.0, n)
    clicks = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(np.uint8)
    good, bad = (1 / (1 + np.exp(-(z + rng.normal(0, s, n)))) for s in (0.3, noise))
    return good.astype(np.float32), bad.astype(np.float32), clicks


def test_differences_are_those_of_scikit_learn():
    good, bad, clicks = two_models(0, 1.0)
    comp = paired_difference(good, bad, clicks, replicates=20)
    assert comp.auc == pytest.approx(roc_auc_score(clicks, good) - roc_auc_score(clicks, bad), abs=1e-9)
    assert comp.log_loss == pytest.approx(log_loss(clicks, good) - log_loss(clicks, bad), abs=1e-6)
    assert comp.auc_low < comp.auc < comp.auc_high


def test_a_clear_difference_excludes_zero_and_none_does_not():
    good, bad, clicks = two_models(1, 1.0)
    assert paired_difference(good, bad, clicks).auc_low > 0
    same = paired_difference(good, good, clicks, replicates=20)
    assert same.auc == same.auc_low == same.auc_high == 0.0


def test_intervals_cover_zero_for_equals():
    covered = 0
    for seed in range(40):
        good, as_good, clicks = two_models(seed, 0.3, n=1500)
        comp = paired_difference(good, as_good, clicks, replicates=100)
        covered += comp.auc_low <= 0 <= comp.auc_high
    assert 33 <= covered <= 40
