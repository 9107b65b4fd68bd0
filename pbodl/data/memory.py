"""Memory: arrays that start at a whole cache line, and what becomes of memory that was freed."""

import contextlib
import ctypes
import math

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

CACHE_LINE = 64  # bytes; a row of 16 floats is one line, and no vector register is loaded from two
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's mallopt
LARGEST_KEPT = 32 << 20  # bytes of one piece: the most that glibc allows


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


def keep_freed() -> None:
    """Keep memory that is freed for the next chunk of a log, where the C library can.

    Given back to the system, its pages would all be cleared again for every chunk: as much work as reading it.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, LARGEST_KEPT), (M_TRIM_THRESHOLD, 2**31 - 1)):
            mallopt(option, value)
        pa.set_memory_pool(pa.system_memory_pool())
