"""Arrays that start at a whole cache line: a row of 16 floats is one line, and no vector register is loaded from two."""

import math

import numpy as np
from numpy.typing import DTypeLike, NDArray

CACHE_LINE = 64  # bytes


def aligned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
    """An uninitialised array from a whole cache line on."""
    length = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(length + CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + length].view(dtype).reshape(shape)


def aligned_copy(array: NDArray) -> NDArray:
    """A copy from a whole cache line on."""
    copy = aligned(array.shape, array.dtype)
    copy[:] = array
    return copy
