"""Registers against arrays: what compiled code makes of eight numbers is what NumPy makes of them."""

import numpy as np
import pytest

from pbodl._jit import jit
from pbodl._registers import all_eight, eight, one_by_one, plus_product, product, put_eight, roots, sum_of_eight

RNG = np.random.default_rng(1)
A, B = RNG.random((4, 6, 8)).astype(np.float32), RNG.random((3, 5, 8)).astype(np.float32)


@jit
def weighed(a, b, first, second, factor, to):
    """Σ a b over eight numbers, and √(a (a b + factor)) at `first`. MODIFIES: to."""
    x, y = eight(a, first), eight(b, second)
    put_eight(to, first, roots(product(x, plus_product(all_eight(factor), x, y))))
    return sum_of_eight(product(x, y))


@pytest.mark.nojit
@pytest.mark.parametrize(("first", "second"), [(0, 0), (8, 16), (3, 5), (184, 112)])
def test_eight_numbers_anywhere_in_arrays_of_any_shape(first, second):
    x, y = A.ravel()[first : first + 8].astype(np.float64), B.ravel()[second : second + 8].astype(np.float64)
    to = np.zeros_like(A)
    found = weighed(A, B, np.uint64(first), np.uint64(second), np.float32(0.5), to)
    assert found == pytest.approx(x @ y, rel=1e-6)
    ref = np.zeros(A.size)
    ref[first : first + 8] = np.sqrt(x * (0.5 + x * y))
    np.testing.assert_allclose(to.ravel(), ref, rtol=1e-6)
    assert np.count_nonzero(to) == 8


@pytest.mark.nojit
def test_a_register_can_be_carried_through_a_loop():
    @jit
    def total(a):
        found = all_eight(np.float32(0.0))
        for i in range(np.uint64(a.size // 8)):
            found = plus_product(found, all_eight(np.float32(2.0)), eight(a, np.uint64(8) * i))
        return sum_of_eight(found)

    assert total(A) == pytest.approx(2.0 * A.sum(dtype=np.float64), rel=1e-6)


@jit
def looked_up(table, places, found, at_once):
    """MODIFIES: found."""
    for i in range(len(places)):
        if not at_once:
            one_by_one()
        found[i] = table[places[i]]


@pytest.mark.nojit
@pytest.mark.parametrize("at_once", [True, False])
def test_a_loop_one_by_one_finds_the_same(at_once):
    table, places, found = A.ravel(), RNG.integers(0, A.size, 37), np.zeros(37, np.float32)
    looked_up(table, places, found, at_once)
    np.testing.assert_array_equal(found, table[places])
