"""Weights of which every thread has a copy: a base, and what the threads added to it."""

import numpy as np
import pytest

from pbodl.kernels.arguments import Features, NetworkWeights
from pbodl.kernels.thread_blocks import Copied, Shown, exchange_weights, gather, point_to_copies, spans, weigh
from pbodl.parallel.threads.frequent import frequent_rows
from pbodl.parallel.weights import to_vector
from tests.parallel.logs import fm, plain_log

COPIED = Copied(np.array([5, 2, 7], np.int32), np.array([0, 1, 2], np.int32), np.empty((0, 2), np.int32), np.int64(1))


def trained(seed: int):
    model = fm(hidden=(6, 3))
    model.learn(plain_log(200, seed))
    return model


def weights_of(model):
    return NetworkWeights(model.rows(), model.dense)


def shown(n, share=1.0):
    """As if nothing had been there."""
    return Shown(np.zeros(n), np.zeros(n), np.full(n, share), np.zeros((2, n)))


def naturals(model, before=None):
    """Precisions and precision-means of the dense weights and of the rows of COPIED; or what they gained since `before`."""
    both = spans(model.shape, model.rows(), COPIED)
    to = before or shown(both[-1].offsets[1])
    for span in both:
        exchange_weights(weights_of(model), model.shape, COPIED.rows, span, to, True)
    return to.added


def as_shown(precision, mean, share=1.0):
    return shown(len(mean), share)._replace(precision=precision, mean=mean)


@pytest.mark.nojit
def test_weights_are_their_natural_parameters():
    model = trained(0)
    precision, precision_mean = naturals(model)
    n_in = model.shape.sizes[0]
    np.testing.assert_array_equal(precision[: n_in + 1], 1.0 / model.dense.variance[0, 0, : n_in + 1].astype(np.float64))
    np.testing.assert_allclose(precision_mean[: n_in + 1] / precision[: n_in + 1], model.dense.mean[0, 0, : n_in + 1], rtol=1e-12)
    rows, dim = model.rows(), model.spec.dim
    last = np.append(rows.variance[COPIED.rows[-1]], rows.linear_variance[COPIED.rows[-1]]).astype(np.float64)
    np.testing.assert_array_equal(precision[-dim - 1 :], 1.0 / last)


@pytest.mark.nojit
@pytest.mark.parametrize("threads", [1, 3])
def test_base_and_what_was_added_are_the_product_of_all_messages(threads):
    base, ends = naturals(trained(0)), [naturals(trained(seed)) for seed in range(1, threads + 1)]
    seen = base[0], base[1] / base[0]
    added = [naturals(trained(seed), as_shown(*seen)) for seed in range(1, threads + 1)]
    precision, mean = np.empty_like(base)
    gather(np.stack([*added, base]), np.zeros(len(mean)), 0, len(mean), precision, mean)
    want = base + sum(end - base for end in ends)
    np.testing.assert_allclose(precision, want[0], rtol=1e-9)
    np.testing.assert_allclose(mean, want[1] / want[0], rtol=1e-9, atol=1e-12)


@pytest.mark.nojit
def test_half_of_a_step_moves_the_mean_half_as_far():
    base, end = naturals(trained(0)), naturals(trained(1))
    m0, m1 = base[1] / base[0], end[1] / end[0]
    added = naturals(trained(1), as_shown(base[0], m0, share=0.5))
    precision, mean = np.empty_like(base)
    gather(np.stack([added, base]), np.zeros(len(mean)), 0, len(mean), precision, mean)
    np.testing.assert_allclose(precision, end[0], rtol=1e-9)
    np.testing.assert_allclose(mean, m0 + 0.5 * (m1 - m0), rtol=1e-9, atol=1e-12)


@pytest.mark.nojit
def test_a_variance_stays_below_ten_times_the_priors_or_what_it_was():
    model = trained(0)
    rows = model.rows()
    n = spans(model.shape, rows, COPIED)[-1].offsets[1]
    least, share = np.empty((2, n))
    base = np.full((2, n), 1e3)
    base[0, 7] = 0.01
    weigh(base, weights_of(model), model.network, COPIED, 0.5, np.array([0.7, 0.8, 0.9]), least, share)
    precision, mean = np.empty((2, n))
    gather(np.stack([np.full((2, n), -1e6), base]), least, 0, n, precision, mean)
    variance = 1.0 / precision
    n_dense, dim = n - 3 * (rows.mean.shape[1] + 1), rows.mean.shape[1]
    assert variance[7] == pytest.approx(1000.0)
    priors = to_vector(model.dense.prior_variance, model.shape.sizes)
    np.testing.assert_allclose(np.delete(variance[:n_dense], 7), np.delete(10 * priors, 7), rtol=1e-6)
    of_rows = variance[n_dense:].reshape(3, dim + 1)
    np.testing.assert_allclose(of_rows[:, :dim], 10 * model.row_prior.variance[COPIED.fields], rtol=1e-6)
    np.testing.assert_allclose(of_rows[:, dim], 10 * model.row_prior.linear_variance[COPIED.fields], rtol=1e-6)
    assert (share[:n_dense] == 0.5).all()
    np.testing.assert_array_equal(share[n_dense:].reshape(3, dim + 1), np.repeat([[0.7], [0.8], [0.9]], dim + 1, axis=1))


@pytest.mark.nojit
def test_weights_come_back_from_their_natural_parameters():
    source, target = trained(0), trained(1)
    precision, precision_mean = naturals(source)
    for span in spans(target.shape, target.rows(), COPIED):
        to = as_shown(precision, precision_mean / precision)
        exchange_weights(weights_of(target), target.shape, COPIED.rows, span, to, False)
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
    point_to_copies(got, 30, 870, copied.slots, 10_000)
    place = {row: 10_000 + place for place, row in enumerate(copied.rows.tolist())}
    want = [place.get(row, row) if 30 <= at < 870 else row for at, row in enumerate(rows.tolist())]
    np.testing.assert_array_equal(got, want)
