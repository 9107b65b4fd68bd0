"""Concat, sum and FM against enumerated covariances and drawing; the printed FM variance is shown wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbodl.kernels.layers import interaction
from pbodl.kernels.layers.interaction import EXACT, PAPER
from tests.oracles import monte_carlo, naive
from tests.oracles.differences import derivative
from tests.oracles.naive import Feature, Network

F32 = np.float32
MODES = {"exact": EXACT, "paper": PAPER}
FIELDS = [0, 2, 2, 1]  # two features in field 2; fields 3 and 4 stay empty
N_FIELDS = 5


def vectors(seed, n, dim, mean=0.5):
    rng = np.random.default_rng(seed)
    return rng.normal(mean, 1.0, (n, 1, dim)).astype(F32), rng.uniform(0.05, 1.0, (n, 1, dim)).astype(F32)


def comp_forward(op, m_x, v_x, mode="exact", fields=FIELDS):
    """z_0's moments, and the sums that FM keeps."""
    n, _, dim = m_x.shape
    m_z, v_z = np.zeros(dim * N_FIELDS, F32), np.zeros(dim * N_FIELDS, F32)
    sums = np.full((3, dim), np.nan, F32)
    if op == "concat":
        interaction.concat_forward(m_x, v_x, n, np.array([9, *fields], np.int32), 1, m_z, v_z)
        return m_z, v_z, sums
    if op == "sum":
        interaction.sum_forward(m_x, v_x, n, m_z, v_z)
    else:
        interaction.fm_forward(m_x, v_x, np.arange(n), n, 0, MODES[mode], False, sums, m_z, v_z)
    return m_z[:dim], v_z[:dim], sums


def ref_forward(op, m_x, v_x, mode="exact", fields=FIELDS):
    n, _, dim = m_x.shape
    values = {(i, 0, k): (float(m_x[i, 0, k]), float(v_x[i, 0, k])) for i in range(n) for k in range(dim)}
    sample = [Feature(i, 1.0, fields[i % len(fields)]) for i in range(n)]
    return np.array(naive.operation(Network(op, dim, (), False, (0,) * N_FIELDS, mode), sample, values)).T


def comp_backward(op, m_x, v_x, dm_z, dv_z, mode, sums):
    n = len(m_x)
    dm_x, dv_x = np.full(m_x.shape, np.nan, F32), np.full(m_x.shape, np.nan, F32)
    if op == "concat":
        interaction.concat_backward(n, np.array([9, *FIELDS], np.int32), 1, dm_z, dv_z, dm_x, dv_x)
    elif op == "sum":
        interaction.sum_backward(n, dm_z, dv_z, dm_x, dv_x)
    else:
        interaction.fm_backward(m_x, v_x, np.arange(n), np.arange(n), n, 0, MODES[mode], sums, dm_z, dv_z, dm_x, dv_x)
    return dm_x, dv_x


OPS = [("concat", "exact"), ("sum", "exact"), ("fm", "exact"), ("fm", "paper")]


@pytest.mark.nojit
@pytest.mark.parametrize("dim", [1, 3, 16, 17])
@pytest.mark.parametrize(("op", "mode"), OPS)
def test_forward_equals_naive(op, mode, dim):
    m_x, v_x = vectors(1, 4, dim)
    m_z, v_z, _ = comp_forward(op, m_x, v_x, mode)
    np.testing.assert_allclose((m_z, v_z), ref_forward(op, m_x, v_x, mode), rtol=2e-6, atol=1e-6)


@pytest.mark.nojit
@pytest.mark.parametrize(("op", "mode"), OPS)
def test_backward_equals_differences(op, mode):
    m_x, v_x = vectors(2, 4, 2)
    m_z, _, sums = comp_forward(op, m_x, v_x, mode)
    rng = np.random.default_rng(3)
    dm_z, dv_z = rng.normal(size=len(m_z)).astype(F32), rng.normal(size=len(m_z)).astype(F32)
    comp = comp_backward(op, m_x, v_x, dm_z, dv_z, mode, sums)
    start = [m_x.astype(np.float64), v_x.astype(np.float64)]
    for which in (0, 1):
        for index in np.ndindex(*m_x.shape):

            def moved(value, which=which, index=index):
                arrays = [array.copy() for array in start]
                arrays[which][index] = value
                return float(np.sum(np.array([dm_z, dv_z], np.float64) * ref_forward(op, arrays[0], arrays[1], mode)))

            assert comp[which][index] == pytest.approx(derivative(moved, start[which][index], 1e-2), rel=1e-5, abs=2e-5)


def test_erratum_e3_the_exact_fm_variance_is_right_and_the_printed_one_is_not():
    m_x, v_x = vectors(4, 6, 4)
    z = monte_carlo.gaussians(m_x.astype(float), v_x.astype(float), seed=5)
    draws = monte_carlo.pair_sums(z[:, :, 0])
    exact, printed = (comp_forward("fm", m_x, v_x, mode)[:2] for mode in ("exact", "paper"))
    assert (np.array(monte_carlo.deviations(draws, *exact)) < monte_carlo.FAR).all()
    of_mean, of_variance = monte_carlo.deviations(draws, *printed)
    assert (of_mean < monte_carlo.FAR).all()
    assert (of_variance > 5 * monte_carlo.FAR).all()


@pytest.mark.parametrize("op", ["concat", "sum"])
def test_sums_by_drawing(op):
    m_x, v_x = vectors(6, 4, 2)
    z = monte_carlo.gaussians(m_x.astype(float), v_x.astype(float), seed=7)[:, :, 0]
    m_z, v_z, _ = comp_forward(op, m_x, v_x)
    if op == "concat":
        columns = [sum(z[:, i] for i in range(4) if FIELDS[i] == f) for f in (0, 1, 2)]
        draws, m_z, v_z = np.concatenate(columns, axis=1), m_z[:6], v_z[:6]
    else:
        draws = z.sum(axis=1)
    assert (np.array(monte_carlo.deviations(draws, m_z, v_z)) < monte_carlo.FAR).all()


@pytest.mark.nojit
@pytest.mark.parametrize("mode", ["exact", "paper"])
def test_fm_of_none_or_one_feature_is_nothing(mode):
    for n in (0, 1):
        m_x, v_x = vectors(8, n, 3, mean=3.0)
        m_z, v_z, sums = comp_forward("fm", m_x, v_x, mode)
        assert not m_z.any() and not v_z.any()
        dm_x, dv_x = comp_backward("fm", m_x, v_x, np.ones(3, F32), np.ones(3, F32), mode, sums)
        assert not dm_x.any() and not dv_x.any()


@pytest.mark.nojit
@pytest.mark.parametrize("mode", ["exact", "paper"])
@pytest.mark.parametrize("variance", [1e-12, 1e-9, 1e-6, 1e-3, 1.0, 1e3])
def test_fm_variance_keeps_its_digits_however_sure_the_weights(mode, variance):
    m_x, v_x = vectors(9, 12, 3)
    v_x *= F32(variance)
    m, v = m_x[:, 0].astype(np.float64), v_x[:, 0].astype(np.float64)
    if mode == "exact":
        ref = (v * (m.sum(0) - m) ** 2).sum(0) + 0.5 * (v.sum(0) ** 2 - (v**2).sum(0))
    else:  # as printed, multiplied out: float64 would lose digits in the printed form as well
        ref = (v * ((m**2).sum(0) - m**2)).sum(0) + 0.5 * (v.sum(0) ** 2 - (v**2).sum(0))
    _, v_z, _ = comp_forward("fm", m_x, v_x, mode)
    np.testing.assert_allclose(v_z, ref, rtol=2e-5)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(["exact", "paper"]))
def test_fm_variance_is_never_negative(data, mode):
    n = data.draw(st.integers(1, 6))
    numbers = st.lists(st.floats(-100.0, 100.0, width=32), min_size=n, max_size=n)
    exponents = st.lists(st.floats(-12.0, 4.0), min_size=n, max_size=n)
    m_x = np.array(data.draw(numbers), F32).reshape(n, 1, 1)
    v_x = (10.0 ** np.array(data.draw(exponents))).astype(F32).reshape(n, 1, 1)
    m_z, v_z, _ = comp_forward("fm", m_x, v_x, mode)
    assert v_z[0] >= 0.0 and np.isfinite(m_z[0])


@settings(max_examples=25)
@given(st.integers(2, 7), st.integers(0, 1000), st.sampled_from(["exact", "paper"]))
def test_order_of_features_does_not_matter(n, seed, mode):
    m_x, v_x = vectors(seed, n, 3)
    order = np.random.default_rng(seed).permutation(n)
    ref = comp_forward("fm", m_x, v_x, mode)
    comp = comp_forward("fm", m_x[order].copy(), v_x[order].copy(), mode)
    np.testing.assert_allclose(comp[0], ref[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(comp[1], ref[1], rtol=1e-5)


def test_width_of_z_0():
    assert interaction.width(interaction.CONCAT, 16, 22) == 352
    assert {interaction.width(op, 16, 22) for op in (interaction.SUM, interaction.FM, interaction.FFM)} == {16}
