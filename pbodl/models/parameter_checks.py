"""Checks of model parameters: each returns nothing, or raises an error that says what is allowed."""

import math
from numbers import Real
from typing import Any

from pbodl.errors import InputError

MOST_LAYERS = 5


def check_number(what: str, value: Any, above: float | None = None, least: float | None = None, most: float = 1e6) -> None:
    """Refuse anything but a number above `above`, or of at least `least` (give one of them), and at most `most`."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if above is not None and not above < number <= most:
        limit = f" and at most {most:g}" if math.isfinite(most) else ""
        raise InputError(f"{what} is {value!r}; it must be a number above {above:g}{limit}")
    if least is not None and not least <= number <= most:
        raise InputError(f"{what} is {value!r}; it must be a number from {least:g} to {most:g}")


def check_whole(what: str, value: Any, least: int, most: int) -> None:
    """Refuse anything but a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{what} is {value!r}; it must be a whole number from {least} to {most}")


def check_choice(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Refuse anything but one of the allowed words."""
    if value not in allowed:
        raise InputError(f"{what} is {value!r}; it must be {' or '.join(repr(word) for word in allowed)}")


def checked_layers(hidden: Any, least: int) -> tuple[int, ...]:
    """The sizes of hidden layers, at least so many, as a tuple."""
    try:
        sizes = tuple(hidden)
    except TypeError:
        none = ", or () for none" if least == 0 else ""
        raise InputError(f"hidden is {hidden!r}; it must be a list of layer sizes, such as (64, 32){none}") from None
    if not least <= len(sizes) <= MOST_LAYERS:
        raise InputError(f"hidden has {len(sizes)} layers; it must have {least} to {MOST_LAYERS}")
    for size in sizes:
        check_whole("a hidden layer's size", size, 1, 65536)
    return sizes
