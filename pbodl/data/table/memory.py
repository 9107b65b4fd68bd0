"""Memory: arrays that are aligned to cache lines, and keeping freed memory for reuse."""

import contextlib
import ctypes
import math
from collections.abc import Mapping
from itertools import accumulate

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

CACHE_LINE = 64  # bytes; a row of 16 floats is one line, and no vector register is loaded from two
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # options of glibc's mallopt
LARGEST_KEPT = 32 << 20  # bytes of one allocation: the most that glibc allows


def aligned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
    """An uninitialised array that starts at a cache line."""
    length = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(length + CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + length].view(dtype).reshape(shape)


def aligned_copy(array: NDArray) -> NDArray:
    """A copy that starts at a cache line."""
    copy = aligned(array.shape, array.dtype)
    copy[:] = array
    return copy


def beside_each_other(n: int, kinds: Mapping[str, DTypeLike]) -> dict[str, NDArray]:
    """Uninitialised arrays (n,) by name that form records: the numbers of one index share a cache line.

    >>> arrays = beside_each_other(3, {"count": np.uint32, "time": np.float64})
    >>> {name: (array.shape, array.strides) for name, array in arrays.items()}
    {'time': ((3,), (16,)), 'count': ((3,), (16,))}
    """
    fields = sorted(kinds, key=lambda name: -np.dtype(kinds[name]).itemsize)  # so each starts at a multiple of its size
    sizes = [np.dtype(kinds[name]).itemsize for name in fields]
    whole = 1 << (sum(sizes) - 1).bit_length()  # a power of two: no record crosses a cache line
    offsets = zip(fields, accumulate(sizes[:-1], initial=0), strict=True)
    records = aligned((n, whole), np.uint8)
    return {name: records[:, at : at + np.dtype(kinds[name]).itemsize].view(kinds[name])[:, 0] for name, at in offsets}


def keep_freed() -> None:
    """Keep freed memory for the next chunk of a log, if the C library can.

    Otherwise the system would clear the pages again for every chunk, which takes as long as reading it.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, LARGEST_KEPT), (M_TRIM_THRESHOLD, 2**31 - 1)):
            mallopt(option, value)
        pa.set_memory_pool(pa.system_memory_pool())
