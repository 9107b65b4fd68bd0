"""Derivatives from values alone."""

from collections.abc import Callable


def derivative(function: Callable[[float], float], x: float, step: float) -> float:
    """Central difference of fourth order: its error falls with step⁴, so that a large step, and little cancellation, is enough."""
    near = function(x + step) - function(x - step)
    far = function(x + 2 * step) - function(x - 2 * step)
    return (8 * near - far) / (12 * step)
