"""Products and quotients of Gaussians against densities multiplied on a grid."""

import pytest

from pbodl.gaussian import Gaussian, Natural, divide, moments, multiply, natural
from tests.oracles.densities import product_moments

A, B = Gaussian(0.7, 0.5), Gaussian(-1.2, 2.0)


@pytest.mark.nojit
def test_a_product_has_the_moments_of_the_multiplied_densities():
    ref = product_moments(tuple(A), tuple(B))
    comp = moments(multiply(natural(A), natural(B)))
    assert tuple(comp) == pytest.approx(ref, rel=1e-6)


@pytest.mark.nojit
def test_a_quotient_undoes_a_product():
    comp = moments(divide(multiply(natural(A), natural(B)), natural(B)))
    assert tuple(comp) == pytest.approx(tuple(A))


@pytest.mark.nojit
def test_a_quotient_by_the_narrower_has_negative_precision():
    wide_over_narrow = divide(natural(B), natural(A))
    assert wide_over_narrow.precision < 0.0
    assert tuple(multiply(wide_over_narrow, natural(A))) == pytest.approx(tuple(natural(B)))


@pytest.mark.nojit
def test_natural_form():
    assert tuple(natural(Gaussian(3.0, 0.5))) == (2.0, 6.0)
    assert tuple(moments(Natural(2.0, 6.0))) == (3.0, 0.5)
