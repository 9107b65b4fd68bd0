"""Axes of charts: where the ticks stand, and what they say."""

import datetime
import math
from collections.abc import Callable
from typing import NamedTuple

HOUR, DAY = 3600.0, 86400.0
TIME_STEPS = [n * HOUR for n in (0.25, 1, 3, 6, 12)] + [n * DAY for n in (1, 2, 7, 14, 28, 91, 364)]
CHANCES = (1e-5, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.999)
MOST_TICKS = 8


class Scale(NamedTuple):
    """From values to places: `low` and `high` are the ends of the axis, `bend` makes it other than linear."""

    low: float
    high: float
    ticks: list[tuple[float, str]]  # value, label
    bend: Callable[[float], float] = float

    def place(self, value: float, first: float, last: float) -> float:
        """Where between `first` and `last` a value stands; outside of the axis, beyond them."""
        a, b, v = self.bend(self.low), self.bend(self.high), self.bend(value)
        return first + (last - first) * (v - a) / (b - a)


def number_scale(low: float, high: float, most: int = 6) -> Scale:
    """A linear axis for values from low to high, with ticks at round numbers.

    >>> [label for _, label in number_scale(0.382, 0.41).ticks]
    ['0.385', '0.390', '0.395', '0.400', '0.405', '0.410']
    """
    low, high = _apart(low, high)
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(power * n for n in (1, 2, 5, 10) if (high - low) / (power * n) <= most)
    values = [n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    if high >= 10_000:
        return Scale(low, high, [(value, thousands(value)) for value in values])
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return Scale(low, high, [(value, f"{value:.{digits}f}") for value in values])


def time_scale(low: float, high: float) -> Scale:
    """An axis of epoch seconds, with ticks at whole hours or days (UTC)."""
    low, high = _apart(low, high)
    years = TIME_STEPS[-1] * math.ceil((high - low) / TIME_STEPS[-1] / MOST_TICKS)
    step = next((step for step in TIME_STEPS if (high - low) / step <= MOST_TICKS), years)
    values = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return Scale(low, high, [(value, _tick(value, step)) for value in values])


def chance_scale(low: float, high: float) -> Scale:
    """An axis of probabilities by their log-odds, so that one in a thousand and one in two are both seen well.

    >>> [label for _, label in chance_scale(0.02, 0.6).ticks]
    ['3 %', '10 %', '30 %', '50 %']
    """
    ticks = [(chance, f"{100 * chance:.3g} %") for chance in CHANCES if low <= chance <= high]
    return Scale(low, high, ticks, log_odds)


def log_odds(chance: float) -> float:
    """log p/(1-p), kept finite."""
    chance = min(max(chance, 1e-9), 1.0 - 1e-9)
    return math.log(chance / (1.0 - chance))


def thousands(value: float) -> str:
    """A count in few letters.

    >>> thousands(1_500_000), thousands(200_000), thousands(40)
    ('1.5M', '200k', '40')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _apart(low: float, high: float) -> tuple[float, float]:
    """An interval that is not empty."""
    return (low, high) if high > low else (low - 0.5 * (abs(low) or 1.0), low + 0.5 * (abs(low) or 1.0))


def moment(seconds: float) -> str:
    """Date and time of day (UTC) of epoch seconds."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M")


def _tick(seconds: float, step: float) -> str:
    then = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    if step >= 28 * DAY:
        return then.strftime("%b %Y")
    return f"{then.day} {then:%b}" if step >= DAY or seconds % DAY == 0 else then.strftime("%H:%M")
