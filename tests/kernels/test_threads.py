"""Dense weights as a base and the threads' deltas."""

import numpy as np
import pytest

from pbodl.kernels.threads import add_delta, gather_dense
from tests.parallel.logs import fm, plain_log


def trained(seed: int):
    model = fm(hidden=(6, 3))
    model.learn(plain_log(200, seed))
    return model


@pytest.mark.nojit
@pytest.mark.parametrize("threads", [1, 3])
def test_base_and_deltas_are_the_product_of_all_messages(threads):
    base_model, ends = trained(0), [trained(seed) for seed in range(1, threads + 1)]
    m0, v0 = base_model.dense.mean.astype(float), base_model.dense.variance.astype(float)
    base = np.stack([1 / v0, m0 / v0])
    deltas = np.zeros((threads, *base.shape))
    for t, end in enumerate(ends):
        dense = base_model.dense
        add_delta(dense.mean, dense.variance, end.dense.mean, end.dense.variance, base_model.shape, 1.0, deltas[t])
    mean, variance = np.zeros_like(base_model.dense.mean), np.zeros_like(base_model.dense.variance)
    gather_dense(base, deltas, base_model.shape, np.float32(10.0), mean, variance)
    for layer, (n_in, n_out) in enumerate(((4, 6), (6, 3), (3, 1))):
        at = np.s_[layer, :n_out, : n_in + 1]
        precision = 1 / v0[at] + sum(1 / end.dense.variance[at].astype(float) - 1 / v0[at] for end in ends)
        products = [end.dense.mean[at] / end.dense.variance[at].astype(float) - m0[at] / v0[at] for end in ends]
        np.testing.assert_allclose(variance[at], 1 / precision, rtol=1e-4)
        np.testing.assert_allclose(mean[at], (m0[at] / v0[at] + sum(products)) / precision, rtol=1e-3, atol=1e-4)


@pytest.mark.nojit
def test_a_variance_stays_below_twice_the_priors():
    model = trained(0)
    base = np.stack([1 / model.dense.variance.astype(float)] * 2)
    deltas = np.full((1, *base.shape), -1e6)
    mean, variance = model.dense.mean.copy(), model.dense.variance.copy()
    gather_dense(base, deltas, model.shape, np.float32(0.05), mean, variance)
    assert variance[0, :6, :5].max() == pytest.approx(0.1)
