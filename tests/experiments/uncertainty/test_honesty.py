"""Figures about an uncertainty, on Gaussians whose truth is drawn."""

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from pbodl.experiments.uncertainty.honesty import Occurrences, coverage, latent, reliability
from pbodl.training.martingale import martingale

RNG = np.random.default_rng(5)
MEAN, DEVIATION = RNG.normal(-1.0, 0.5, 40_000), RNG.uniform(0.1, 1.0, 40_000)
NOISE = RNG.standard_normal(40_000)


def test_a_latent_is_the_probit_of_a_probability():
    p = np.array([0.0, 0.02, 0.5, 0.98, 1.0, 0.02])
    np.testing.assert_allclose(latent(p), norm.ppf(np.clip(p, 1e-9, 1 - 1e-9)), rtol=1e-9)


@pytest.mark.parametrize(
    ("doubt", "inside"), [(1.0, (0.5, 0.8, 0.95)), (4.0, (0.264, 0.478, 0.673)), (0.25, (0.823, 0.990, 0.9999))]
)
def test_intervals_hold_what_they_promise_only_where_the_deviation_is_right(doubt, inside):
    """A true error of √doubt deviations."""
    found = coverage(MEAN, DEVIATION, MEAN + np.sqrt(doubt) * DEVIATION * NOISE)
    np.testing.assert_allclose(list(found["inside"].values()), inside, atol=0.01)
    assert found["error"] / found["deviation"] == pytest.approx(np.sqrt(doubt), rel=0.03)


def test_the_rank_correlation_tells_whether_errors_are_where_the_deviation_is():
    error = np.abs(DEVIATION * NOISE)
    found = coverage(MEAN, DEVIATION, MEAN + error)["rank_correlation"]
    assert found == pytest.approx(np.corrcoef(rankdata(DEVIATION), rankdata(error))[0, 1], abs=1e-3)
    assert abs(coverage(MEAN, DEVIATION, MEAN + np.abs(NOISE))["rank_correlation"]) < 0.02
    assert coverage(MEAN, np.ones(len(MEAN)), MEAN + NOISE)["rank_correlation"] is None


def test_the_rank_correlation_of_errors_that_are_as_large_as_the_deviation_says_is_its_ceiling():
    found = coverage(MEAN, DEVIATION, MEAN + DEVIATION * NOISE)
    assert found["rank_correlation"] == pytest.approx(found["rank_ceiling"], abs=0.02) and found["rank_ceiling"] < 0.9


@pytest.mark.parametrize("doubt", [1.0, 2.0])
def test_an_exact_posterior_is_a_martingale_and_one_that_is_too_sure_is_not(doubt):
    """Weights ~ N(0, 1), seen with noise of variance 1 once and then five times; beliefs with variances divided by `doubt`."""
    weights = RNG.standard_normal(100_000)
    seen = weights[:, None] + RNG.standard_normal((100_000, 5))
    first, last = seen[:, 0] / 2, seen.sum(axis=1) / 6
    found = martingale(first, np.full(100_000, 0.5 / doubt), last, np.full(100_000, 1 / 6 / doubt))
    assert found["ratio"] == pytest.approx(doubt, rel=0.03)
    level = martingale(first, np.full(100_000, 0.5), last + 3.0, np.full(100_000, 1 / 6))
    assert level["ratio"] == pytest.approx(1.0, rel=0.03)
    assert martingale(first, np.ones(100_000), last, np.ones(100_000))["ratio"] is None


def test_a_reliability_curve_groups_rows_by_their_prediction():
    ctr = RNG.uniform(0.0, 1.0, 20_000)
    clicks = (RNG.random(20_000) < ctr**2).astype(np.float32)
    groups = reliability(ctr, clicks)
    assert len(groups) == 20 and sum(weight for weight, _, _ in groups) == 20_000
    for _, predicted, clicked in groups:
        assert clicked == pytest.approx(predicted**2, abs=0.06)
    assert len(reliability(ctr[:3], clicks[:3])) == 3


def test_occurrences_count_across_chunks_as_one_by_one():
    keys = RNG.integers(0, 9, 200).astype(np.uint64)
    counted: dict[int, int] = {}
    expected = []
    for key in keys.tolist():
        expected.append(counted.get(key, 0))
        counted[key] = expected[-1] + 1
    before = Occurrences()
    found = np.concatenate([before.before(keys[start : start + 33]) for start in range(0, 200, 33)])
    np.testing.assert_array_equal(found, expected)
