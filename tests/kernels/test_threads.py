"""Weights of which every thread has a copy: a base and the threads' deltas."""

import numpy as np
import pytest

from pbodl.kernels.embedding import Features
from pbodl.kernels.threads import Copied, add_delta, exchange_weights, gather, point_to_copies, spans, weigh
from pbodl.parallel.frequent import frequent_rows
from tests.parallel.logs import fm, plain_log

COPIED = Copied(np.array([5, 2, 7], np.int32), np.array([0, 1, 2], np.int32), np.empty((0, 2), np.int32), np.int64(1))


def trained(seed: int):
    model = fm(hidden=(6, 3))
    model.learn(plain_log(200, seed))
    return model


def as_vectors(model):
    """Means and variances of the dense weights and of the rows of COPIED."""
    both = spans(model.shape, model.rows(), COPIED)
    mean, variance = np.full((2, both[-1].places[1]), np.nan)
    for span in both:
        exchange_weights(model.dense, model.shape, model.rows(), COPIED.rows, span, mean, variance, True)
    return mean, variance


@pytest.mark.nojit
@pytest.mark.parametrize("threads", [1, 3])
def test_base_and_deltas_are_the_product_of_all_messages(threads):
    (m0, v0), ends = as_vectors(trained(0)), [as_vectors(trained(seed)) for seed in range(1, threads + 1)]
    base, deltas = np.stack([1 / v0, m0 / v0]), np.zeros((threads, 2, len(m0)))
    for t, (m1, v1) in enumerate(ends):
        add_delta(1 / v0, m0, m1, v1, np.ones(len(m0)), 0, len(m0), deltas[t])
    precision, mean, variance = np.empty((3, len(m0)))
    gather(base, deltas, np.zeros(len(m0)), 0, len(m0), precision, mean, variance)
    want = 1 / v0 + sum(1 / v1 - 1 / v0 for _, v1 in ends)
    np.testing.assert_allclose(variance, 1 / want, rtol=1e-9)
    np.testing.assert_allclose(precision, want, rtol=1e-9)
    np.testing.assert_allclose(mean, (m0 / v0 + sum(m1 / v1 - m0 / v0 for m1, v1 in ends)) / want, rtol=1e-9, atol=1e-12)


@pytest.mark.nojit
def test_half_of_a_step_moves_the_mean_half_as_far():
    (m0, v0), (m1, v1) = as_vectors(trained(0)), as_vectors(trained(1))
    delta = np.zeros((1, 2, len(m0)))
    add_delta(1 / v0, m0, m1, v1, np.full(len(m0), 0.5), 0, len(m0), delta[0])
    precision, mean, variance = np.empty((3, len(m0)))
    gather(np.stack([1 / v0, m0 / v0]), delta, np.zeros(len(m0)), 0, len(m0), precision, mean, variance)
    np.testing.assert_allclose(variance, v1, rtol=1e-9)
    np.testing.assert_allclose(mean, m0 + 0.5 * (m1 - m0), rtol=1e-9, atol=1e-12)


@pytest.mark.nojit
def test_a_variance_stays_below_ten_times_the_priors_or_what_it_was():
    model = trained(0)
    rows = model.rows()
    n = spans(model.shape, rows, COPIED)[-1].places[1]
    least, share = np.empty((2, n))
    base = np.full((2, n), 1e3)
    base[0, 7] = 0.01
    weigh(base, model.dense, model.shape, rows, COPIED, model.row_prior, 0.5, np.array([0.7, 0.8, 0.9]), least, share)
    precision, mean, variance = np.empty((3, n))
    gather(base, np.full((1, 2, n), -1e6), least, 0, n, precision, mean, variance)
    n_dense, dim = n - 3 * (rows.mean.shape[1] + 1), rows.mean.shape[1]
    assert variance[7] == pytest.approx(1000.0)
    np.testing.assert_allclose(np.delete(variance[:n_dense], 7), 10 * model.dense.prior_variance, rtol=1e-6)
    of_rows = variance[n_dense:].reshape(3, dim + 1)
    np.testing.assert_allclose(of_rows[:, :dim], 10 * model.row_prior.variance[COPIED.fields], rtol=1e-6)
    np.testing.assert_allclose(of_rows[:, dim], 10 * model.row_prior.linear_variance[COPIED.fields], rtol=1e-6)
    assert (share[:n_dense] == 0.5).all()
    np.testing.assert_array_equal(share[n_dense:].reshape(3, dim + 1), np.repeat([[0.7], [0.8], [0.9]], dim + 1, axis=1))


@pytest.mark.nojit
def test_weights_come_back_from_the_vectors_they_went_to():
    source, target = trained(0), trained(1)
    mean, variance = as_vectors(source)
    for span in spans(target.shape, target.rows(), COPIED):
        exchange_weights(target.dense, target.shape, target.rows(), COPIED.rows, span, mean, variance, False)
    for comp, ref in zip(as_vectors(target), (mean, variance), strict=True):
        np.testing.assert_array_equal(comp, ref)
    for name in ("mean", "linear_variance"):
        np.testing.assert_array_equal(target.table.column(name)[COPIED.rows], source.table.column(name)[COPIED.rows])
    others = np.setdiff1d(np.arange(min(target.table.size, source.table.size)), COPIED.rows)
    np.testing.assert_array_equal(target.table.column("mean")[others], trained(1).table.column("mean")[others])
    for layer, (n_in, n_out) in enumerate(source.layers()):
        np.testing.assert_array_equal(target.dense.mean[layer, :n_out, : n_in + 1], source.dense.mean[layer, :n_out, : n_in + 1])


@pytest.mark.nojit
def test_only_entries_of_copied_rows_point_to_the_copies():
    n = np.random.default_rng(0).integers(0, 3000, 900).astype(np.int32)
    rows = np.where(np.arange(900) % 3 == 0, n % 5, n)
    features = Features(np.arange(0, 901, 3), rows, rows.astype(np.uint64), np.ones(900, np.float32), np.zeros(900, np.int32))
    copied = frequent_rows(features).copied
    assert {0, 1, 2, 3, 4} <= set(copied.rows.tolist())
    got = rows.copy()
    point_to_copies(got, 30, 870, copied.places, 10_000)
    place = {row: 10_000 + place for place, row in enumerate(copied.rows.tolist())}
    want = [place.get(row, row) if 30 <= at < 870 else row for at, row in enumerate(rows.tolist())]
    np.testing.assert_array_equal(got, want)
