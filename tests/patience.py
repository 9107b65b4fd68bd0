"""How tests wait: for what happens, never for a time. What takes longer than `PATIENCE` hangs, even on a busy machine."""

import time
from collections.abc import Callable

PATIENCE = 300.0  # seconds
PAUSE = 0.02  # seconds between two looks


def happens(happened: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Wait until something has happened, at most so long; returns whether it has."""
    end = time.monotonic() + patience
    while not happened():
        if time.monotonic() >= end:
            return False
        time.sleep(PAUSE)
    return True


def until(happened: Callable[[], bool], what: str) -> None:
    """Wait until something has happened; fail if it never does."""
    assert happens(happened), f"{what} did not happen within {PATIENCE:g} s"
