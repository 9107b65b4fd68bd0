"""Checks of parameters, at the edges of what is allowed."""

import pytest

from pbodl.errors import InputError
from pbodl.models.parameter_checks import check_choice, check_number, check_whole, checked_layers


@pytest.mark.parametrize("value", [1e-9, 1, 2.5, 1e6])
def test_numbers_above(value):
    check_number("rate", value, above=0.0)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e6 + 1, True, "1", None])
def test_numbers_not_above(value):
    with pytest.raises(InputError, match=r"rate is .*; it must be a number above 0 and at most 1e"):
        check_number("rate", value, above=0.0)


def test_the_least_number_is_allowed():
    check_number("rate", 0.5, least=0.5, most=2.0)
    for value in (0.49, 2.01, False):
        with pytest.raises(InputError, match=r"a number from 0\.5 to 2"):
            check_number("rate", value, least=0.5, most=2.0)


def test_whole_numbers():
    for value in (1, 5):
        check_whole("dim", value, 1, 5)
    for value in (0, 6, 2.0, True, "2"):
        with pytest.raises(InputError, match="a whole number from 1 to 5"):
            check_whole("dim", value, 1, 5)


def test_choices():
    check_choice("mode", "a", ("a", "b"))
    with pytest.raises(InputError, match="mode is 'c'; it must be 'a' or 'b'"):
        check_choice("mode", "c", ("a", "b"))


def test_layers():
    assert checked_layers([8, 4], least=1) == (8, 4)
    for bad in ((), (1,) * 6, (0,), (2.5,), 8, (65537,)):
        with pytest.raises(InputError, match="hidden"):
            checked_layers(bad, least=1)


def test_no_layers_where_none_are_needed():
    assert checked_layers((), least=0) == ()
    with pytest.raises(InputError, match=r"such as \(64, 32\), or \(\) for none"):
        checked_layers(8, least=0)


def test_numbers_without_an_upper_limit():
    check_number("rate", 1e30, above=0.0, most=float("inf"))
    with pytest.raises(InputError, match=r"it must be a number above 0$"):
        check_number("rate", 0.0, above=0.0, most=float("inf"))
