"""Quotients and products of whole arrays of weights, and the guard of the product."""

import numpy as np
import pytest

from pbodl.kernels.guards import LEAST_SHARE, Guard
from pbodl.kernels.message_algebra import add_rows, product, quotient
from tests.oracles.densities import product_moments

F32 = np.float32
TRUSTING = Guard(0.0, np.inf)


def weights(seed: int, rows: int = 5, width: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, (rows, width)).astype(F32), rng.uniform(0.05, 0.5, (rows, width)).astype(F32)


def message(m0, v0, m1, v1, precision_share=1.0, mean_share=1.0):
    deltas = np.empty((2, *m0.shape), F32)
    ones = np.ones(len(m0))
    quotient(m0, v0, m1, v1, precision_share * ones, mean_share * ones, deltas[0], deltas[1])
    return deltas


@pytest.mark.nojit
def test_prior_times_message_is_the_posterior():
    (m0, v0), (m1, v1) = weights(0), weights(1)
    m, v = m0.copy(), v0.copy()
    guarded = product(m, v, np.arange(5, dtype=np.int32), np.full_like(m, 10.0), TRUSTING, 0, *message(m0, v0, m1, v1))
    assert guarded == 0
    np.testing.assert_allclose(m, m1, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(v, v1, rtol=1e-5)


@pytest.mark.nojit
def test_two_workers_messages_multiply_as_densities_do():
    m0, v0 = np.array([[0.5]], F32), np.array([[0.4]], F32)
    posteriors = [(0.7, 0.3), (0.2, 0.25)]
    m, v = m0.copy(), v0.copy()
    likelihoods = []
    for mean, variance in posteriors:
        deltas = message(m0, v0, np.array([[mean]], F32), np.array([[variance]], F32))
        product(m, v, np.zeros(1, np.int32), np.ones_like(m), TRUSTING, 0, *deltas)
        precision = 1 / variance - 1 / 0.4
        likelihoods.append(((mean / variance - 0.5 / 0.4) / precision, 1 / precision))
    ref = product_moments((0.5, 0.4), *likelihoods)
    assert (m.item(), v.item()) == pytest.approx(ref, rel=1e-5)


@pytest.mark.nojit
def test_a_share_of_the_mean_leaves_the_precision_whole():
    (m0, v0), (m1, v1) = weights(0), weights(1)
    m, v = m0.copy(), v0.copy()
    product(m, v, np.arange(5, dtype=np.int32), np.full_like(m, 10.0), TRUSTING, 0, *message(m0, v0, m1, v1, mean_share=0.25))
    np.testing.assert_allclose(v, v1, rtol=1e-5)
    np.testing.assert_allclose(m, m0 + 0.25 * (m1 - m0), rtol=1e-4, atol=1e-5)


@pytest.mark.nojit
def test_the_order_of_messages_makes_no_difference():
    m0, v0 = weights(0)
    surer = [(m, F32(0.1) * v) for m, v in map(weights, (1, 2, 3))]
    messages = [message(m0, v0, *posterior) for posterior in surer]
    results = []
    for order in ([0, 1, 2], [2, 0, 1]):
        m, v = m0.copy(), v0.copy()
        for n in order:
            product(m, v, np.arange(5, dtype=np.int32), np.full_like(m, 10.0), TRUSTING, 0, *messages[n])
        results.append((m, v))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-5)


@pytest.mark.nojit
def test_the_guard_keeps_a_share_of_the_priors_precision():
    m, v = np.array([[1.0, 1.0]], F32), np.array([[0.1, 0.1]], F32)
    deltas = np.array([[[-100.0, 5.0]], [[-100.0, 5.0]]], F32)
    guarded = product(m, v, np.zeros(1, np.int32), np.full_like(m, 0.2), TRUSTING, 0, *deltas)
    assert guarded == 1
    assert v[0, 0] == pytest.approx(0.2 / LEAST_SHARE)
    assert v[0, 1] == pytest.approx(1 / 15)


@pytest.mark.nojit
def test_the_guard_keeps_a_share_of_a_weights_own_precision():
    m, v = np.array([[1.0]], F32), np.array([[0.01]], F32)
    deltas = np.array([[[-90.0]], [[-90.0 + 5.0]]], F32)
    assert product(m, v, np.zeros(1, np.int32), np.full_like(m, 10.0), Guard(0.5, 10.0), 0, *deltas) == 1
    assert (m.item(), v.item()) == pytest.approx((1.0 + 5.0 / 50.0, 0.02))


@pytest.mark.nojit
def test_the_guard_limits_the_step_of_a_mean():
    m, v = np.array([[1.0]], F32), np.array([[0.04]], F32)
    deltas = np.array([[[0.0]], [[-1000.0]]], F32)
    assert product(m, v, np.zeros(1, np.int32), np.full_like(m, 1.0), Guard(0.5, 4.0), 0, *deltas) == 1
    assert (m.item(), v.item()) == pytest.approx((1.0 - 4.0 * 0.2, 0.04))


@pytest.mark.nojit
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_the_guard_rejects_what_is_not_finite(bad):
    m, v = np.array([[1.0, 1.0]], F32), np.array([[0.1, 0.1]], F32)
    deltas = np.array([[[1.0, bad]], [[bad, 1.0]]], F32)
    with np.errstate(all="ignore"):
        assert product(m, v, np.zeros(1, np.int32), np.full_like(m, 0.2), TRUSTING, 0, *deltas) > 0
    assert np.isfinite(m).all() and np.isfinite(v).all() and (v > 0).all()


@pytest.mark.nojit
def test_rows_that_are_not_there_are_left_out():
    m, v = weights(0)
    before = m.copy(), v.copy()
    product(m, v, np.array([-1, 2], np.int32), np.ones((2, 3), F32), TRUSTING, 0, np.ones((2, 3), F32), np.ones((2, 3), F32))
    changed = (m != before[0]).any(axis=1)
    assert changed.tolist() == [False, False, True, False, False]


@pytest.mark.nojit
def test_rows_add_up():
    target = np.zeros((3, 2))
    add_rows(np.array([2, 0, 2], np.int32), np.arange(6, dtype=F32).reshape(3, 2), target)
    assert target.tolist() == [[2, 3], [0, 0], [4, 6]]
