"""Choosing the settings of a tool: a climb up and down the ladder of one setting after the other.

From the start, the search tries the neighbours on the ladder, and goes on in a direction for as long as the loss falls. So the
setting that it returns has tried neighbours on both sides, unless it is an end of the ladder.
"""

from collections.abc import Callable
from typing import NamedTuple

Settings = dict[str, float]


class Choice(NamedTuple):
    settings: Settings
    tried: int
    ends: list[str]  # settings whose best value is an end of its ladder


def choose(start: Settings, ladders: dict[str, tuple[float, ...]], loss_of: Callable[[Settings], float]) -> Choice:
    """The settings with the least loss that the climb finds."""
    known: dict[tuple[float, ...], float] = {}

    def loss(settings: Settings) -> float:
        key = tuple(settings.values())
        if key not in known:
            known[key] = loss_of(settings)
        return known[key]

    best, ends = dict(start), []
    for name, ladder in ladders.items():
        for step in (1, -1):
            while 0 <= (rung := ladder.index(best[name]) + step) < len(ladder):
                other = best | {name: ladder[rung]}
                if not loss(other) < loss(best):
                    break
                best = other
        if best[name] in (ladder[0], ladder[-1]):
            ends.append(name)
    return Choice(best, len(known), ends)
