"""The dense layer against naive sums, drawing, and differences of its own definition."""

import numpy as np
import pytest

from pbodl.kernels.layers.dense import (
    BLOCK,
    dense_backward,
    dense_forward,
    dense_forward_block,
    make_dense_scratch,
    pack_dense,
)
from tests.oracles import monte_carlo, naive
from tests.oracles.differences import derivative

F32 = np.float32
SIZES = [(0, 1), (1, 1), (5, 3), (16, 7), (17, 2), (33, 16)]


def layer(seed, n_in, n_out, padding=2):
    """Weights (padded with NaN) and inputs of moderate size."""
    rng = np.random.default_rng(seed)
    m_w, v_w = np.full((n_out + 1, n_in + 1 + padding), np.nan, F32), np.full((n_out + 1, n_in + 1 + padding), np.nan, F32)
    m_w[:n_out, : n_in + 1] = rng.normal(0.0, 1.0, (n_out, n_in + 1))
    v_w[:n_out, : n_in + 1] = rng.uniform(0.05, 1.0, (n_out, n_in + 1))
    return m_w, v_w, rng.normal(0.3, 1.0, n_in + 1).astype(F32), rng.uniform(0.0, 2.0, n_in + 1).astype(F32)


def comp_forward(given, n_in, n_out):
    m_a, v_a = np.empty(n_out, F32), np.empty(n_out, F32)
    dense_forward(*given, n_in, n_out, np.empty(n_in, F32), m_a, v_a)
    return m_a, v_a


def ref_forward(given, n_in, n_out):
    m_w, v_w, m_z, v_z = given
    inputs = [(float(m), float(v)) for m, v in zip(m_z[:n_in], v_z[:n_in], strict=True)]
    weights = [[(float(m_w[o, i]), float(v_w[o, i])) for i in range(n_in + 1)] for o in range(n_out)]
    return np.array(naive.dense(inputs, weights)).T


@pytest.mark.nojit
@pytest.mark.parametrize(("n_in", "n_out"), SIZES)
def test_forward_equals_naive(n_in, n_out):
    given = layer(1, n_in, n_out)
    comp = comp_forward(given, n_in, n_out)
    np.testing.assert_allclose(comp, ref_forward(given, n_in, n_out), rtol=3e-6, atol=1e-6)


@pytest.mark.nojit
@pytest.mark.parametrize(("n_in", "n_out"), SIZES)
def test_a_block_equals_its_samples(n_in, n_out):
    m_w, v_w, _, _ = layer(2, n_in, n_out)
    rng = np.random.default_rng(3)
    m_z, v_z = rng.normal(size=(n_in + 1, BLOCK)).astype(F32), rng.uniform(0.0, 2.0, (n_in + 1, BLOCK)).astype(F32)
    pairs = (n_out + 1) // 2
    means, variances = np.empty((pairs, n_in + 1, 2), F32), np.empty((pairs, n_in + 1, 4), F32)
    pack_dense(m_w, v_w, n_in, n_out, means, variances)
    a = np.full((2, pairs, 2 * BLOCK), np.nan, F32)
    dense_forward_block(means, variances, np.stack([m_z, v_z, m_z * m_z]), n_in, a)
    m_a, v_a = a.reshape(2, 2 * pairs, BLOCK)[:, :n_out]
    for s in (0, 1, BLOCK - 1):
        ref = ref_forward((m_w, v_w, m_z[:, s], v_z[:, s]), n_in, n_out)
        np.testing.assert_allclose((m_a[:, s], v_a[:, s]), ref, rtol=3e-6, atol=1e-6)


def test_erratum_e1_the_scale_is_the_fan_in():
    n_in, n_out = 6, 2
    m_w, v_w, m_z, v_z = layer(4, n_in, n_out, padding=0)
    w = monte_carlo.gaussians(m_w[:n_out].astype(float), v_w[:n_out].astype(float), seed=5)
    z = monte_carlo.gaussians(m_z.astype(float), v_z.astype(float), seed=6)
    z[:, n_in] = 1.0  # the bias input
    draws = np.einsum("soi,si->so", w, z) / np.sqrt(n_in + 1)  # the paper's definition of a_l
    m_a, v_a = (array.astype(float) for array in comp_forward((m_w, v_w, m_z, v_z), n_in, n_out))
    assert (np.array(monte_carlo.deviations(draws, m_a, v_a)) < monte_carlo.FAR).all()
    # The printed moments divide by the units of the layer's own output.
    printed = np.sqrt((n_in + 1) / (n_out + 1))
    of_mean, of_variance = monte_carlo.deviations(draws, m_a * printed, v_a * printed**2)
    assert (of_variance > 5 * monte_carlo.FAR).all() and of_mean.max() > 5 * monte_carlo.FAR


@pytest.mark.nojit
@pytest.mark.parametrize(("n_in", "n_out"), [(0, 1), (3, 2), (17, 1), (8, 3), (19, 2)])
def test_backward_equals_differences(n_in, n_out):
    m_w, v_w, m_z, v_z = layer(7, n_in, n_out)
    rng = np.random.default_rng(8)
    dm_a, dv_a = rng.normal(0.0, 0.2, n_out).astype(F32), rng.normal(0.0, 0.1, n_out).astype(F32)

    def objective(arrays):
        """A function of the outputs whose derivatives by them are dm_a and dv_a."""
        m_a, v_a = ref_forward(arrays, n_in, n_out)
        return float(dm_a.astype(float) @ m_a + dv_a.astype(float) @ v_a)

    start = [array.astype(np.float64) for array in (m_w, v_w, m_z, v_z)]

    def by(which, index):
        def moved(value):
            arrays = [array.copy() for array in start]
            arrays[which][index] = value
            return objective(arrays)

        return derivative(moved, start[which][index], 1e-2)

    dm_z, dv_z = np.full(n_in + 1, np.nan, F32), np.full(n_in + 1, np.nan, F32)
    rejected = dense_backward(
        m_w, v_w, m_z, v_z, v_z + m_z * m_z, n_in, n_out, dm_a, dv_a, F32(1.0), F32(0.0), dm_z, dv_z, make_dense_scratch(32)
    )
    assert rejected == 0
    for i in range(n_in):
        assert dm_z[i] == pytest.approx(by(2, i), rel=1e-5, abs=1e-6)
        assert dv_z[i] == pytest.approx(by(3, i), rel=1e-5, abs=1e-6)
    for o in range(n_out):
        for i in range(n_in + 1):
            old = start[0][o, i], start[1][o, i]
            ref = naive.adf(old, (by(0, (o, i)), by(1, (o, i))))
            assert m_w[o, i] == pytest.approx(ref[0], rel=1e-6, abs=1e-6)
            assert v_w[o, i] == pytest.approx(ref[1], rel=1e-5, abs=1e-6)
    for old, new in zip(start[:2], (m_w, v_w), strict=True):
        np.testing.assert_array_equal(np.isnan(old), np.isnan(new))  # the padding is neither read nor written


@pytest.mark.nojit
def test_rejected_weights_are_counted_and_stay():
    n_in, n_out = 3, 2
    m_w, v_w, m_z, v_z = layer(9, n_in, n_out, padding=0)
    before = m_w.copy(), v_w.copy()
    dm_z, dv_z = np.empty(n_in, F32), np.empty(n_in, F32)
    # The first unit's gradient is not a number, the second's would take more than all of the variance.
    dm_a, dv_a = np.array([np.nan, 0.0], F32), np.array([0.0, -1e6], F32)
    with np.errstate(all="ignore"):
        rejected = dense_backward(
            m_w, v_w, m_z, v_z, v_z + m_z * m_z, n_in, n_out, dm_a, dv_a, F32(1.0), F32(0.0), dm_z, dv_z, make_dense_scratch(32)
        )
    assert rejected == n_out * (n_in + 1)
    np.testing.assert_array_equal((m_w, v_w), before)
