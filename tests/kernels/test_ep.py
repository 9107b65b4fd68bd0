"""Sites and cavities of single weights; the passes over a minibatch are judged in tests/training/visits/test_reinforcement.py."""

import numpy as np
import pytest

from pbodl.kernels.ep import divide_out, multiply_in
from tests.oracles.densities import product_moments

F32 = np.float32


def arrays(*values):
    return [np.array([value], F32) for value in values]


@pytest.mark.nojit
def test_a_cavity_is_the_posterior_without_the_site():
    site_moments = (0.4, 2.0)
    mean, variance = product_moments((1.0, 0.5), site_moments)
    m, v, cavity_m, cavity_v = arrays(mean, variance, 0.0, 0.0)
    site = np.array([[1 / 2.0], [0.4 / 2.0]])
    divide_out(m, v, 1, site, np.ones(1, F32), cavity_m, cavity_v)
    assert (m.item(), v.item()) == pytest.approx((1.0, 0.5), rel=1e-5)
    assert (cavity_m.item(), cavity_v.item()) == (m.item(), v.item())


@pytest.mark.nojit
def test_out_and_in_again_changes_nothing():
    m, v, cavity_m, cavity_v = arrays(0.3, 0.2, 0.0, 0.0)
    site = np.array([[1.5], [0.7]])
    divide_out(m, v, 1, site, np.ones(1, F32), cavity_m, cavity_v)
    # An update that finds what the site said already: the posterior again.
    m[0], v[0] = 0.3, 0.2
    multiply_in(m, v, 1, site, np.ones(1, F32), 0.5, cavity_m, cavity_v)
    assert site.ravel() == pytest.approx([1.5, 0.7], rel=1e-4)
    assert (m.item(), v.item()) == pytest.approx((0.3, 0.2), rel=1e-5)


@pytest.mark.nojit
def test_a_site_goes_a_share_of_the_way():
    m, v, cavity_m, cavity_v = arrays(1.0, 0.5, 1.0, 0.5)
    site = np.zeros((2, 1))
    m[0], v[0] = 1.2, 0.25  # the update: a new site of precision 2 and precision-mean 1.2/0.25 - 1/0.5 = 2.8
    multiply_in(m, v, 1, site, np.ones(1, F32), 0.5, cavity_m, cavity_v)
    assert site.ravel() == pytest.approx([1.0, 1.4], rel=1e-5)
    assert (m.item(), v.item()) == pytest.approx(((2.0 + 1.4) / 3.0, 1 / 3.0), rel=1e-5)


@pytest.mark.nojit
def test_a_weight_without_a_proper_cavity_is_left_alone():
    m, v, cavity_m, cavity_v = arrays(0.3, 0.2, 0.0, 0.0)
    site = np.array([[4.9], [0.7]])  # of the precision 5 next to nothing would be left
    divide_out(m, v, 1, site, np.ones(1, F32), cavity_m, cavity_v)
    assert (m.item(), v.item()) == (F32(0.3), F32(0.2))
    m[0], v[0] = 9.0, 9.0
    multiply_in(m, v, 1, site, np.ones(1, F32), 0.5, cavity_m, cavity_v)
    assert (m.item(), v.item()) == (F32(0.3), F32(0.2))
    assert site.ravel().tolist() == [4.9, 0.7]
