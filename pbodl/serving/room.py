"""Memory to work in."""

import math

import numpy as np
from numpy.typing import NDArray


class Room:
    """Memory to work in, kept from request to request: fresh memory must be cleared by the system first."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[np.float32]] = {}

    def array(self, name: str, *shape: int) -> NDArray[np.float32]:
        """An array of this shape, its content undefined; valid until the same name is asked for again."""
        size = math.prod(shape)
        if name not in self._arrays or len(self._arrays[name]) < size:
            self._arrays[name] = np.empty(size, np.float32)
        return self._arrays[name][:size].reshape(shape)
