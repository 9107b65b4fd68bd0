"""The noise of weights: standard normal, independent, and a pure function of seed, draw, key and dimension."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from pbodl.data.hashing import wrapping
from pbodl.kernels.draws import NORMAL, draw_seed, fill_noise, noise_at, stir

U64 = np.uint64


def noise(keys, dimensions, seed=0, draw=0):
    """The noise of every key in every dimension, by `fill_noise`."""
    found = np.empty((len(keys), dimensions), np.float32)
    with wrapping():
        stirred, room = stir(U64(draw_seed(U64(seed), U64(draw))), dimensions)
        for row, key in zip(found, keys, strict=True):
            fill_noise(U64(key), stirred, room)
            row[:] = room[:dimensions]
    return found


def test_the_quantiles_are_those_of_the_normal_distribution():
    assert NORMAL.mean(dtype=np.float64) == pytest.approx(0.0, abs=1e-9)
    assert np.mean(NORMAL.astype(np.float64) ** 2) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(NORMAL, norm.ppf((np.arange(4096) + 0.5) / 4096), rtol=2e-3)


@pytest.mark.nojit
def test_both_ways_give_the_same_noise():
    with wrapping():
        seed = U64(draw_seed(U64(3), U64(1)))
        ref = [[noise_at(seed, U64(key), U64(d)) for d in range(7)] for key in (5, 2**63 + 9)]
    np.testing.assert_array_equal(noise((5, 2**63 + 9), 7, 3, 1), ref)


@pytest.mark.nojit
def test_the_noise_never_changes():
    # Draws kept by a key must survive an upgrade: these numbers stay.
    golden = [[0.625083, -0.706055, 0.935971, -0.121796, 0.011323], [0.181241, 1.470991, -0.36509, -0.852885, 2.087588]]
    np.testing.assert_allclose(noise((1, 2), 5, seed=7, draw=2), golden, atol=1e-5)


def test_noise_is_standard_normal_and_independent():
    some = noise(np.arange(20_000), 9)
    assert kstest(some.ravel(), "norm").pvalue > 1e-4
    others = [noise(np.arange(20_000), 9, seed, draw) for seed, draw in ((1, 0), (0, 1), (1, 1))]
    columns = np.concatenate([some, *others], axis=1)
    correlated = np.corrcoef(columns.T) - np.eye(columns.shape[1])
    assert np.abs(correlated).max() < 5 / np.sqrt(20_000)
    assert abs(np.corrcoef(some[:-1, 0], some[1:, 0])[0, 1]) < 5 / np.sqrt(20_000)


def test_moments_to_the_fourth_order_and_tails():
    some = noise(np.arange(100_000), 9, seed=3).astype(np.float64).ravel()
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        error = np.sqrt(np.mean(norm_moments(2 * power) - moment**2) / len(some))
        assert np.mean(some**power) == pytest.approx(moment, abs=5 * error + 0.02 * (power == 4))
    for beyond in (1.0, 2.0, 3.0, 3.5):
        for side in (some, -some):
            expected = len(some) * norm.sf(beyond)
            assert abs((side > beyond).sum() - expected) < 5 * np.sqrt(expected) + 0.1 * expected


def norm_moments(power):
    """E[x^power] of the standard normal, for an even power."""
    return float(np.prod(np.arange(power - 1, 0, -2)))


def test_neither_values_nor_squares_depend_on_each_other():
    keys = np.concatenate([np.arange(30_000), (np.arange(30_000).astype(U64) << U64(40)) + U64(7)])
    some = noise(keys, 13, seed=5).astype(np.float64)
    limit = 5 / np.sqrt(len(some) - 1)
    for columns in (some, some**2, np.abs(some) > 2.0):
        across = np.corrcoef(np.asarray(columns, np.float64).T) - np.eye(13)  # dimensions, of the same hash and of others
        assert np.abs(across).max() < limit
        for d in (0, 1, 5, 12):  # keys that follow each other
            assert abs(np.corrcoef(columns[:-1, d], columns[1:, d])[0, 1]) < limit
