"""Arrays from a whole cache line on; keeping freed memory changes no result."""

import numpy as np
import pyarrow as pa
import pytest

from pbodl.data.table.memory import CACHE_LINE, aligned, aligned_copy, keep_freed


@pytest.mark.parametrize("shape", [(1,), (3, 16), (2, 5, 7)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_arrays_start_at_a_cache_line(shape, dtype):
    arrays = [aligned(shape, dtype) for _ in range(20)]
    assert all(array.ctypes.data % CACHE_LINE == 0 and array.flags.c_contiguous for array in arrays)
    assert all(array.shape == shape and array.dtype == dtype for array in arrays)


def test_a_copy_is_equal_and_apart():
    given = np.arange(30, dtype=np.float32).reshape(5, 6)
    copy = aligned_copy(given)
    np.testing.assert_array_equal(copy, given)
    copy[:] = 0.0
    assert given.sum() == 435.0


def test_memory_works_as_before_when_freed_pieces_are_kept():
    before = pa.default_memory_pool()
    try:
        keep_freed()
        pieces = [np.full(n, n) for n in (10, 1 << 16, 6 << 20)]
        column = pa.array(pieces[1])
        del pieces[1]
        assert column.to_numpy().sum() == (1 << 16) ** 2 and pieces[1][-1] == 6 << 20
    finally:
        pa.set_memory_pool(before)
