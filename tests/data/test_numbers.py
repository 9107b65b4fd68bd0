"""Log buckets against the formula, and what counts as a number."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.numbers import bucket, buckets, multipliers, parse_number, parse_numbers
from pbodl.errors import InputError


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_bucket_is_the_formula(x):
    exact = 4 * math.log2(1 + abs(x))
    comp = bucket(x)
    assert comp == buckets(np.array([x]))[0]
    # The logarithm is rounded; where it lies on an edge within that, either side may be right.
    ref = {math.copysign(math.floor(exact - 1e-9), x), math.copysign(math.floor(exact + 1e-9), x)}
    assert comp in ref


def test_buckets_at_their_edges():
    edges = [2.0 ** (quarter / 4) for quarter in range(4)]
    for octave in range(1, 40):
        for quarter, edge in enumerate(edges):
            y = math.ldexp(edge, octave)
            assert bucket(y - 1.0) == 4 * octave + quarter
    assert [bucket(x) for x in (0.0, -0.0, 0.1, -0.1, 1.0, -1.0)] == [0, 0, 0, 0, 4, -4]


def test_numbers_of_every_type():
    ref = [1.0, math.nan, 3.0]
    for array in (
        pa.array([1, None, 3]),
        pa.array([1.0, math.nan, 3.0]),
        pa.array(["1", None, " 3.0 "]),
        pa.array(["1", "", "3"]),
        pa.array(["1", None, "3"]).dictionary_encode(),
    ):
        np.testing.assert_array_equal(parse_numbers(array, "x"), ref)
    np.testing.assert_array_equal(parse_numbers(pa.array([True, False]), "x"), [1.0, 0.0])
    assert [parse_number(value) for value in ("2.5", 7, True)] == [2.5, 7.0, 1.0]


@pytest.mark.parametrize("values", [["1", "two"], [1.0, math.inf], ["1", "-inf"], [b"0", b"1"]])
def test_refusals_name_the_row(values):
    array = pa.array(values)
    row = 0 if isinstance(values[0], bytes) else 1
    with pytest.raises(InputError, match=f"row {row}: number field 'x' holds"):
        parse_numbers(array, "x")


def test_multipliers_must_fit_in_float32():
    assert multipliers(np.array([1.5, -2.0]), "x").tolist() == [1.5, -2.0]
    with pytest.raises(InputError, match=r"row 1: .* too large"):
        multipliers(np.array([1.5, 1e39]), "x")


def test_own_edges_one_by_one_and_together():
    edges, numbers = [-1.0, 0.5, 2.0], [-5.0, -1.0, 0.0, 0.5, 1.9, 2.0, 1e9]
    assert buckets(np.array(numbers), edges=edges).tolist() == [bucket(x, edges=edges) for x in numbers] == [0, 1, 1, 2, 2, 3, 3]


def test_other_resolutions():
    numbers = np.random.default_rng(0).normal(0, 1e3, 500)
    for resolution in (1, 3, 16):
        ref = np.sign(numbers) * np.floor(resolution * np.log2(1 + np.abs(numbers)))
        assert buckets(numbers, resolution).tolist() == [bucket(x, resolution) for x in numbers.tolist()] == ref.tolist()
