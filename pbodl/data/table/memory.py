"""Memory: arrays that start at a whole cache line, and what becomes of memory that was freed."""

import contextlib
import ctypes
import math
from collections.abc import Mapping
from itertools import accumulate

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


def beside_each_other(n: int, kinds: Mapping[str, DTypeLike]) -> dict[str, NDArray]:
    """Uninitialised arrays (n,) by name, whose numbers of one place stand in the same cache line: each is a part of a record.

    >>> arrays = beside_each_other(3, {"count": np.uint32, "time": np.float64})
    >>> {name: (array.shape, array.strides) for name, array in arrays.items()}
    {'time': ((3,), (16,)), 'count': ((3,), (16,))}
    """
    fields = sorted(kinds, key=lambda name: -np.dtype(kinds[name]).itemsize)  # so each stands at a multiple of its size
    sizes = [np.dtype(kinds[name]).itemsize for name in fields]
    whole = 1 << (sum(sizes) - 1).bit_length()  # a power of two: none reaches into a second line
    places = zip(fields, accumulate(sizes[:-1], initial=0), strict=True)
    records = aligned((n, whole), np.uint8)
    return {name: records[:, at : at + np.dtype(kinds[name]).itemsize].view(kinds[name])[:, 0] for name, at in places}


def keep_freed() -> None:
    """Keep memory that is freed for the next chunk of a log, where the C library can.

    Given back to the system, its pages would all be cleared again for every chunk: as much work as reading it.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, LARGEST_KEPT), (M_TRIM_THRESHOLD, 2**31 - 1)):
            mallopt(option, value)
        pa.set_memory_pool(pa.system_memory_pool())
