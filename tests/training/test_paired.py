"""The paired bootstrap: right differences, and intervals that hold what they promise."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from pbodl.training.paired import paired_difference, plain_difference, resampled


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


def test_a_replicate_is_the_figure_of_its_rows():
    """Blocks drawn several times count as often as rows that are written several times."""
    good, bad, clicks = two_models(2, 1.0, n=60)
    good[:20] = np.round(good[:20], 1)  # ties
    comp = resampled([good, bad], clicks, replicates=5, seed=3)
    drawn = np.random.default_rng(3).poisson(1.0, (5, 60))
    for counts, figures in zip(drawn, comp[1:], strict=True):
        for predicted, (auc, loss) in zip((good, bad), figures, strict=True):
            rows, labels = np.repeat(predicted, counts), np.repeat(clicks, counts)
            assert auc == pytest.approx(roc_auc_score(labels, rows), abs=1e-9)
            assert loss == pytest.approx(log_loss(labels, rows.astype(np.float64)), abs=1e-6)


def test_a_row_may_stand_for_several():
    good, bad, clicks = two_models(4, 1.0, n=300)
    weights = np.where(clicks, 1, 3)
    ref = resampled([np.repeat(good, weights), np.repeat(bad, weights)], np.repeat(clicks, weights), replicates=0)
    np.testing.assert_allclose(resampled([good, bad], clicks, replicates=0, weights=weights), ref, rtol=1e-9)


def test_neighbours_that_are_alike_widen_the_interval():
    """Rows that come in runs of equals tell less than as many different ones."""
    good, bad, clicks = two_models(5, 0.5, n=1000)
    single = paired_difference(good, bad, clicks)
    runs = paired_difference(*(np.repeat(column, 20) for column in (good, bad, clicks)))
    assert runs.log_loss == pytest.approx(single.log_loss)
    ratio = (runs.log_loss_high - runs.log_loss_low) / (single.log_loss_high - single.log_loss_low)
    assert ratio == pytest.approx(1.0, abs=0.3)


def test_one_class_alone_has_a_log_loss_and_no_auc():
    found = plain_difference(paired_difference(np.full(5, 0.2), np.full(5, 0.1), np.zeros(5)))
    assert found["auc"] is None and found["auc_low"] is None
    assert found["log_loss"] == pytest.approx(np.log(0.9 / 0.8))
