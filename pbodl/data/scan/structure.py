"""How many values a JSON or msgpack text holds, counted without reading them: each would become an object of a hundred bytes.

The count stops at a bound, and at the first byte that is broken: a reader stops there, too.
"""

import numpy as np

from pbodl._jit import inlined, jit
from pbodl.data.scan.byte_values import BACKSLASH, QUOTE, big_endian, skip_blanks
from pbodl.data.scan.containers import COMMA, OPEN, OPEN_LIST, opened

# By msgpack's head bytes 0xC0 to 0xDF: bytes that follow; from 16 on, bytes of a text's length; from 64 on, bytes of the number of
# items, from 128 on of pairs; -1 where a reader of requests stops, because it knows neither bytes nor extensions.
SIZES = np.array([
    0, -1, 0, 0, -1, -1, -1, -1, -1, -1, 4, 8, 1, 2, 4, 8,
    1, 2, 4, 8, -1, -1, -1, -1, -1, 17, 18, 20, 66, 68, 130, 132,
], np.int64)  # fmt: skip


@jit
def count_values(data, is_json, most):
    """The number of values, names and containers of an object, or a number above `most`; 0 where no object begins."""
    first = skip_blanks(data, 0, len(data)) if is_json else 0
    items, _ = opened(data, first, len(data), is_json, False)
    if items < 0:
        return 0
    return _count_json(data, most) if is_json else _count_msgpack(data, most)


@inlined
def _count_json(data, most):
    """Every container and every value but the first of its container has a byte of its own: a bracket, or a comma."""
    count, offset, end = 0, 0, len(data)
    while offset < end and count <= most:
        byte = data[offset]
        if byte == QUOTE:
            offset += 1
            while offset < end and data[offset] != QUOTE:
                offset += 2 if data[offset] == BACKSLASH else 1
        elif byte in (COMMA, OPEN, OPEN_LIST):
            count += 1
        offset += 1
    return count


@inlined
def _count_msgpack(data, most):
    count, offset, end, left = 0, 0, len(data), 1
    while offset < end and left > 0 and count <= most:
        head = int(data[offset])
        offset, left, count = offset + 1, left - 1, count + 1
        if head <= 0x7F or head >= 0xE0:
            continue
        if head < 0xA0:
            left += 2 * (head - 0x80) if head < 0x90 else head - 0x90
        elif head < 0xC0:
            offset += head - 0xA0
        else:
            size = int(SIZES[head - 0xC0])
            if size < 0:
                return count
            if size < 16:
                offset += size
                continue
            width = size & 7
            if offset + width > end:
                return count
            number = int(big_endian(data, offset, width))
            offset += width
            if size >= 64:
                left += 2 * number if size >= 128 else number
            else:
                offset += number
    return count
