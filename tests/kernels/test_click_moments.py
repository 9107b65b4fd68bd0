"""Mean and deviation of Φ(z) against quadrature over z."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from pbodl.kernels.click_moments import click_moments

pytestmark = pytest.mark.nojit


def by_quadrature(m, v):
    def moment(power):
        return quad(lambda u: norm.cdf(m + np.sqrt(v) * u) ** power * norm.pdf(u), -12, 12, epsabs=1e-13, limit=200)[0]

    mean = moment(1)
    return mean, np.sqrt(max(moment(2) - mean**2, 0.0))


@pytest.mark.parametrize("v", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("m", [-4.0, -1.5, 0.0, 1.0, 3.0])
def test_both_moments(m, v):
    ctr, deviation = np.zeros(1), np.zeros(1)
    click_moments(np.array([m], np.float32), np.array([v], np.float32), ctr, deviation)
    ref_mean, ref_deviation = by_quadrature(m, v)
    assert ctr[0] == pytest.approx(ref_mean, rel=1e-5)
    assert deviation[0] == pytest.approx(ref_deviation, rel=2e-3)


def test_a_certain_z_has_no_deviation():
    ctr, deviation = np.zeros(1), np.ones(1)
    click_moments(np.array([0.5], np.float32), np.zeros(1, np.float32), ctr, deviation)
    assert deviation[0] == 0.0
    assert ctr[0] == pytest.approx(norm.cdf(0.5), rel=1e-6)
