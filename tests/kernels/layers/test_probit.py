"""The probit at the top: its probability is an expectation, and its derivatives are those of log Z."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from pbodl.kernels.layers.probit import probit_backward, probit_forward, probit_log_z
from pbodl.kernels.network import click_probability
from tests.oracles.differences import derivative
from tests.oracles.quadrature import posterior


@pytest.mark.nojit
@pytest.mark.parametrize("m", [-6.0, -1.0, 0.0, 0.3, 4.0])
@pytest.mark.parametrize("v", [1e-12, 0.1, 1.0, 30.0, 1e6])
def test_probability_is_the_expectation_over_z(m, v):
    ref, _, _ = posterior(m, v, log_ndtr)
    assert probit_forward(m, v) == pytest.approx(ref, rel=1e-9 if v <= 30.0 else 1e-3)
    assert probit_log_z(m, v, 1.0) == pytest.approx(math.log(ref), rel=1e-8 if v <= 30.0 else 1e-3, abs=1e-12)
    assert probit_forward(m, v) + probit_forward(-m, v) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.nojit
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("v", [1e-12, 0.1, 3.0, 1e6])
@pytest.mark.parametrize("m", [-40.0, -7.0, -5.1, -1.0, 0.0, 2.0, 6.0])
def test_backward_equals_differences(m, v, sign):
    def log_z(m, v):
        return float(log_ndtr(sign * m / math.sqrt(1 + v)))

    dm, dv = probit_backward(m, v, sign)
    scale = math.sqrt(1 + v)
    assert dm == pytest.approx(derivative(lambda x: log_z(x, v), m, 1e-3 * scale), rel=1e-7, abs=1e-12)
    # By 1 + v, since v itself may be too small to step aside.
    assert dv == pytest.approx(derivative(lambda x: log_z(m, x - 1), 1 + v, 1e-3 * (1 + v)), rel=1e-7, abs=1e-12)


@pytest.mark.nojit
def test_an_impossible_click_is_finite_and_monotone():
    for v in (1e-12, 1.0, 1e6):
        m = -np.geomspace(1.0, 1e30, 200)
        log_z = np.array([probit_log_z(x, v, 1.0) for x in m])
        pull = np.array([probit_backward(x, v, 1.0) for x in m])
        assert np.isfinite(log_z).all() and (np.diff(log_z) < 0.0).all()
        assert np.isfinite(pull).all() and (np.diff(pull[:, 0]) > 0.0).all() and (pull > 0.0).all()


@settings(max_examples=60)
@given(st.floats(-40.0, 40.0), st.floats(-12.0, 6.0), st.sampled_from([-1.0, 1.0]))
def test_what_the_whole_message_takes_is_a_share(m, exponent, sign):
    # h = dm² - 2 dv is between 0 and 1/(1+v): one linear weight can never lose all of its variance.
    v = 10.0**exponent
    dm, dv = probit_backward(m, v, sign)
    assert -1e-9 / (1 + v) <= dm * dm - 2 * dv <= (1 + 1e-9) / (1 + v)


@pytest.mark.nojit
def test_click_probability_of_many():
    mean, variance = np.linspace(-5.0, 5.0, 11), np.geomspace(1e-6, 1e3, 11)
    comp = np.empty(11)
    click_probability(mean, variance, comp)
    np.testing.assert_allclose(comp, ndtr(mean / np.sqrt(1 + variance)), rtol=1e-12)
