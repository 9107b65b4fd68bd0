"""Rectified Gaussians against integration, deep in both tails and for variances from 1e-12 to 1e6."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from pbodl.kernels.layers.relu import relu_backward, relu_forward, relu_moments
from tests.oracles import monte_carlo, naive
from tests.oracles.differences import derivative
from tests.oracles.quadrature import rectified, rectified_by_integration

F32 = np.float32
SMALLEST_NORMAL = 1.2e-38  # float32; below, numbers may be lost
VARIANCES = [1e-12, 1e-6, 1.0, 1e6]
ALPHAS = [*np.linspace(-40.0, 40.0, 41), -13.0, -12.5, -7.5, -3.3, -1.0, -0.5, -1e-3, -1e-8, 1e-8, 1e-3, 0.5, 1.0, 3.3, 9.0]


def comp_relu(m_a, v_a):
    """m_z, v_z, above, below, ratio."""
    m_a, v_a = np.asarray(m_a, F32), np.asarray(v_a, F32)
    out = [np.full(len(m_a), np.nan, F32) for _ in range(5)]
    relu_forward(m_a, v_a, len(m_a), *out)
    return [array.astype(np.float64) for array in out]


def gaussians_at(variance):
    """Means and variances as float32 has them, and their α as it really is."""
    v = np.full(len(ALPHAS), variance).astype(F32)
    m = (np.array(ALPHAS) * np.sqrt(v.astype(np.float64))).astype(F32)
    return m, v, m.astype(np.float64) / np.sqrt(v.astype(np.float64))


@pytest.mark.parametrize("alpha", [-40.0, -12.0, -3.0, -0.5, 0.0, 0.5, 3.0, 12.0, 40.0])
def test_the_oracle_agrees_with_integration(alpha):
    mean, variance = rectified_by_integration(alpha)
    ref = rectified(alpha)
    assert abs(mean / ref.mean - 1) < 1e-25 and abs(variance / ref.variance - 1) < 1e-25


@pytest.mark.nojit
@pytest.mark.parametrize("variance", VARIANCES)
def test_the_moments_alone_in_every_tail(variance):
    m, v, alphas = gaussians_at(variance)
    m_z, v_z, r_z, *scratch = (np.full(len(m), np.nan, F32) for _ in range(6))
    relu_moments(m, v, np.zeros_like(m), len(m), m_z, v_z, r_z, *scratch)
    np.testing.assert_array_equal(r_z, m_z * m_z)
    for i, alpha in enumerate(alphas):
        s, exact = math.sqrt(float(v[i])), rectified(float(alpha))
        for got, right in ((m_z, exact.mean * s), (v_z, exact.variance * s * s)):
            allowed = (4e-6 + 8e-7 * alpha**2) * abs(float(right)) + SMALLEST_NORMAL * max(1.0, s * s)
            assert abs(got[i] - float(right)) <= allowed, (alpha, got[i], float(right))


@pytest.mark.nojit
@pytest.mark.parametrize("variance", VARIANCES)
def test_moments_and_derivatives_in_every_tail(variance):
    m, v, alphas = gaussians_at(variance)
    comp = comp_relu(m, v)
    for i, alpha in enumerate(alphas):
        s = math.sqrt(float(v[i]))
        exact = rectified(float(alpha))
        ref = [exact.mean * s, exact.variance * s * s, exact.above, exact.below, exact.density / s]
        scales = [s, s * s, 1.0, 1.0, 1.0 / s]
        for got, right, scale in zip(comp, ref, scales, strict=True):
            # φ(α) of a rounded α is off by α² roundings, the only error that grows; where φ would be denormal it is 0.
            allowed = (2e-6 + 4e-7 * alpha**2) * abs(float(right)) + SMALLEST_NORMAL * max(1.0, scale)
            assert abs(got[i] - float(right)) <= allowed, (alpha, got[i], float(right))


@pytest.mark.nojit
def test_a_sure_input_is_rectified_plainly():
    m = np.array([-2.0, -1e-3, 0.0, 1e-3, 2.0, 1e6, -1e6], F32)
    for v in (0.0, 1e-38, 1e-30):
        m_z, v_z, above, below, ratio = comp_relu(m, np.full(len(m), v))
        np.testing.assert_allclose(m_z, np.maximum(m, 0.0), atol=1e-14)
        assert (v_z >= 0.0).all() and (v_z <= 1e-29).all()
        np.testing.assert_allclose(above + below, 1.0, rtol=1e-6)
        assert np.isfinite(ratio).all()


@settings(max_examples=100)
@given(st.floats(-45.0, 45.0), st.floats(-12.0, 6.0))
def test_moments_stay_where_moments_can_be(alpha, exponent):
    v = F32(10.0**exponent)
    m = F32(alpha * np.sqrt(v))
    m_z, v_z, above, below, ratio = (float(x[0]) for x in comp_relu([m], [v]))
    assert m_z >= max(0.0, float(m))
    assert 0.0 <= v_z <= float(v) * (1 + 1e-6)
    assert 0.0 <= above <= 1.0 and 0.0 <= below <= 1.0 and ratio >= 0.0


@pytest.mark.parametrize("variance", VARIANCES)
def test_moments_rise_with_the_mean(variance):
    alphas = np.linspace(-14.0, 41.0, 1101)
    m_z, v_z, above, _, _ = comp_relu(alphas * math.sqrt(variance), np.full(len(alphas), variance))
    seen = m_z[:-1] > SMALLEST_NORMAL
    assert (np.diff(m_z)[seen] > 0.0).all() and (np.diff(m_z) >= 0.0).all()
    assert (np.diff(v_z) >= -2e-7 * v_z[1:]).all()
    assert (np.diff(above) >= -2e-7).all()


def test_the_mean_rises_with_the_variance():
    v = np.geomspace(1e-12, 1e6, 400)
    for mean in (-0.1, 0.0, 0.1):
        m_z = comp_relu(np.full(len(v), mean), v)[0]
        assert (np.diff(m_z) >= 0.0).all()


@pytest.mark.nojit
@pytest.mark.parametrize("alpha", [-6.0, -2.5, -0.7, 0.0, 0.4, 2.0, 6.0])
@pytest.mark.parametrize("variance", [1e-4, 1.0, 1e3])
def test_backward_equals_differences(alpha, variance):
    v = float(F32(variance))
    m = float(F32(alpha * math.sqrt(v)))
    m_z, _, above, below, ratio = (array.astype(F32) for array in comp_relu([m], [v]))
    centre = F32(0.25) * m_z  # which no derivative depends on
    for place in (0, 1):  # the gradient by m_z alone, then the one by v_z

        def moment(m, v, place=place):
            return naive.relu((m, v))[place]

        dm, dv = np.array([1.0 - place], F32), np.array([place], F32)
        relu_backward(m_z - centre, centre, above, below, ratio, 1, dm, dv)
        ref_m = derivative(lambda x: moment(x, v), m, 1e-3 * math.sqrt(v))
        ref_v = derivative(lambda x: moment(m, x), v, 1e-3 * v)
        assert dm[0] == pytest.approx(ref_m, rel=3e-5, abs=1e-9 * v**0.5)
        assert dv[0] == pytest.approx(ref_v, rel=3e-5, abs=1e-9)


@pytest.mark.nojit
def test_backward_drops_what_is_negligible_and_nothing_else():
    one, none = np.ones(4, F32), np.zeros(4, F32)
    dm, dv = np.array([1e-14, -1e-16, np.nan, np.inf], F32), np.array([1e-14, 1e-16, np.nan, -np.inf], F32)
    with np.errstate(invalid="ignore"):
        relu_backward(none, none, one, none, none, 4, dm, dv)
    assert dm[0] == F32(1e-14) and dm[1] == 0.0 and dv[0] == F32(1e-14) and dv[1] == 0.0
    # What is not a number stays so, down to the guards that reject and count it.
    assert not np.isfinite(dm[2:]).any() and not np.isfinite(dv[2:]).any()


def test_erratum_e2_the_variance_on_the_right_is_that_of_the_input():
    m, v = np.array([-1.0, 0.0, 0.5, 2.0]), np.array([0.5, 1.0, 2.0, 0.7])
    draws = np.maximum(0.0, monte_carlo.gaussians(m, v, seed=2))
    m_z, v_z, *_ = comp_relu(m, v)
    assert (np.array(monte_carlo.deviations(draws, m_z, v_z)) < monte_carlo.FAR).all()
    # As printed, v^z = Φ v^z (1 - γ(γ + α)) + m^z Φ(-α) v' is an equation for v^z; its solution is another number.
    alpha = m / np.sqrt(v)
    gamma = np.exp(-0.5 * alpha**2) / np.sqrt(2 * np.pi) / ndtr(alpha)
    v_prime = m + np.sqrt(v) * gamma
    printed = m_z * ndtr(-alpha) * v_prime / (1 - ndtr(alpha) * (1 - gamma * (gamma + alpha)))
    assert (monte_carlo.deviations(draws, m_z, printed)[1] > 5 * monte_carlo.FAR).all()
