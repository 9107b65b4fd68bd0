"""The normal distribution's functions against scipy over the whole range, and against mpmath where scipy's own digits end."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfcx, log_ndtr, ndtr

from pbodl.kernels.normal import cdf, density, density_over_cdf, excess, log_cdf, mills_ratio
from tests.oracles.quadrature import excess_moment

F32 = np.float32
FAR = [-1e30, -1e6, -1e3, -300.0, -40.0, -38.0, -20.0, -10.0, -6.0, -5.0, -4.999, -2.0, -0.5, 0.0, 0.5, 3.0, 5.0, 8.0, 40.0]


def exact_density(x):
    return np.exp(-0.5 * x.astype(np.float64) ** 2) / np.sqrt(2 * np.pi)


@pytest.mark.nojit
def test_density_keeps_its_bound_while_it_is_normal():
    x = np.linspace(0.0, 13.0, 5001).astype(F32)
    comp = np.array([density(value) for value in x], np.float64)
    ref = exact_density(x)
    assert (np.abs(comp / ref - 1.0) <= 1e-6 + 1e-7 * x.astype(np.float64) ** 2).all()


@pytest.mark.nojit
def test_density_is_even_and_then_zero():
    assert density(F32(-1.7)) == density(F32(1.7))
    ends = [x for x in np.linspace(13.0, 14.0, 1001).astype(F32) if density(x) == 0.0]
    assert 13.0 < ends[0] < 13.3 and len(ends) > 650
    with np.errstate(over="ignore"):
        assert all(density(F32(x)) == 0.0 for x in (14.0, 40.0, 1e3, 1e10, 3e38, np.inf))


@pytest.mark.nojit
def test_density_falls():
    comp = np.array([density(value) for value in np.linspace(0.0, 13.5, 2701).astype(F32)])
    assert (np.diff(comp) <= 0.0).all()


@pytest.mark.nojit
def test_excess_keeps_its_bound_over_the_whole_range():
    x = np.linspace(0.0, 40.0, 4001).astype(F32)
    comp = np.array([excess(value) for value in x], np.float64)
    wide = x.astype(np.float64)
    ref = (1 + wide**2) * np.sqrt(np.pi / 2) * erfcx(wide / np.sqrt(2)) - wide  # loses 1e-9 of itself at 40
    np.testing.assert_allclose(comp[x <= 13.5], ref[x <= 13.5], rtol=1e-6)
    np.testing.assert_allclose(comp, ref, rtol=2e-3)


@pytest.mark.parametrize("x", [0.0, 0.01, 0.3, 1.0, 2.0, 3.3, 5.0, 8.0, 10.0, 13.0])
def test_all_excess_moments_follow_from_one(x):
    # mills, first, second: R, J and G of the module, by integration.
    mills, first, second = (float(excess_moment(float(F32(x)), power)) for power in range(3))
    g = float(excess(F32(x)))
    assert g == pytest.approx(second, rel=1e-6)
    assert (x + g) / (1 + x * x) == pytest.approx(mills, rel=1e-6)
    assert (1 - x * g) / (1 + x * x) == pytest.approx(first, rel=1e-6)


def exact_log_cdf(a):
    with mpmath.workdps(150):
        a = mpmath.mpf(a)
        if a > 0:
            return float(mpmath.log1p(-mpmath.erfc(a / mpmath.sqrt(2)) / 2))
        return float(mpmath.log(mpmath.erfc(-a / mpmath.sqrt(2)) / 2))


@pytest.mark.nojit
@pytest.mark.parametrize("a", FAR)
def test_log_cdf_is_right_and_finite_however_far(a):
    comp = log_cdf(a)
    assert np.isfinite(comp)
    assert comp == pytest.approx(exact_log_cdf(a), rel=1e-12, abs=2e-16)


@pytest.mark.nojit
@pytest.mark.parametrize("a", FAR)
def test_density_over_cdf_is_right_however_far(a):
    with mpmath.workdps(150):
        b = mpmath.mpf(a)
        ref = float(mpmath.exp(-b * b / 2) / mpmath.sqrt(2 * mpmath.pi) / (mpmath.erfc(-b / mpmath.sqrt(2)) / 2))
    assert density_over_cdf(a) == pytest.approx(ref, rel=1e-12, abs=1e-300)


@pytest.mark.nojit
def test_mills_ratio_keeps_its_bound_however_far():
    x = np.concatenate([np.linspace(0.0, 40.0, 2001), np.geomspace(40.0, 1e8, 200)])
    np.testing.assert_allclose([mills_ratio(value) for value in x], np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)), rtol=1e-13)


def test_float64_functions_against_scipy():
    a = np.linspace(-45.0, 45.0, 3001)
    np.testing.assert_allclose([cdf(x) for x in a], ndtr(a), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose([log_cdf(x) for x in a], log_ndtr(a), rtol=1e-11, atol=2e-16)


def test_no_step_where_the_formula_changes():
    near = np.linspace(-1e-6, 1e-6, 401)
    assert (np.diff([log_cdf(-5.0 + x) for x in near]) > 0.0).all()
    assert (np.diff([density_over_cdf(x) for x in near]) < 0.0).all()


@settings(max_examples=50)
@given(st.floats(-1e15, 8.0), st.floats(1e-6, 1e3))
def test_log_cdf_rises_and_its_slope_falls(a, step):
    above = a + step * max(1.0, abs(a))
    assert log_cdf(a) < log_cdf(above) or a > 7.0
    assert density_over_cdf(a) > density_over_cdf(above) >= 0.0 or a > 7.0
