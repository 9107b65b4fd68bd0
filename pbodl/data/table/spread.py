"""Work on many rows that several threads may share: a function of a range of them."""

from collections.abc import Callable

Work = Callable[[int, int], None]  # on rows start to stop; what it does there depends on no other row
Spread = Callable[[Work, int], None]  # has the work done for all of n rows


def at_once(work: Work, n: int) -> None:
    """All rows by the thread that asks."""
    work(0, n)
