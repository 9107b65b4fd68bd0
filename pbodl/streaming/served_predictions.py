"""Predictions as served, by the number of their impression, until the impression's final label is known."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class ServedPredictions:
    """Numbers only grow, and go out in order; a number without a prediction has NaN."""

    def __init__(self) -> None:
        self._first = 0  # number of the first that is kept
        self._ctr = np.zeros(0)

    def put(self, numbers: NDArray[np.int64], ctr: Floats) -> None:
        """Keep the predictions of impressions."""
        if not len(numbers):
            return
        if not len(self._ctr):
            self._first = int(numbers[0])
        need = int(numbers[-1]) + 1 - self._first
        if need > len(self._ctr):
            self._ctr = np.concatenate([self._ctr, np.full(max(need - len(self._ctr), len(self._ctr) // 2), np.nan)])
        self._ctr[numbers - self._first] = ctr

    def take(self, numbers: NDArray[np.int64]) -> Floats:
        """The predictions of impressions, in their order; those of earlier ones are forgotten."""
        if not len(numbers):
            return np.zeros(0)
        at = numbers - self._first
        known = (at >= 0) & (at < len(self._ctr))
        ctr = np.full(len(numbers), np.nan)
        ctr[known] = self._ctr[at[known]]
        self._ctr, self._first = self._ctr[int(at[-1]) + 1 :], int(numbers[-1]) + 1
        return ctr

    def state(self) -> dict[str, NDArray]:
        """The predictions, as arrays."""
        last = np.flatnonzero(~np.isnan(self._ctr))
        return {"first": np.array(self._first), "ctr": self._ctr[: int(last[-1]) + 1 if len(last) else 0].copy()}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Continue from a `state()`."""
        self._first, self._ctr = int(state["first"]), np.array(state["ctr"])
