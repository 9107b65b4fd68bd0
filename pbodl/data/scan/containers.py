"""The containers of JSON and msgpack, in the same steps: open one, read a name, go to the next item, skip what nobody wants.

In msgpack a container begins with the number of its items; in JSON that number is taken for 1 until the closing bracket.
"""

import numpy as np

from pbodl._jit import inlined, kernel
from pbodl.data.scan.byte_values import BACKSLASH, BAD, QUOTE, TEXT, big_endian, skip_blanks, value_at

COMMA, COLON, OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = 44, 58, 91, 93, 123, 125


@inlined
def opened(data, offset, end, is_json, is_list):
    """How many items a container has (-1 if none begins here), and the offset of the first."""
    if offset >= end:
        return -1, offset
    head = data[offset]
    if is_json:
        opening = OPEN_LIST if is_list else OPEN
        if head != opening:
            return -1, offset
        offset = skip_blanks(data, offset + 1, end)
        # In ASCII, a closing bracket is two after its opening one.
        return (0, offset + 1) if offset < end and data[offset] == opening + 2 else (1, offset)
    fixed = 0x90 if is_list else 0x80
    if fixed <= head <= fixed + 15:
        return np.int64(head) - fixed, offset + 1
    wide = 0xDC if is_list else 0xDE
    width = 2 if head == wide else 4
    if (head != wide and head != wide + 1) or offset + 1 + width > end:
        return -1, offset
    return np.int64(big_endian(data, offset + 1, width)), offset + 1 + width


@inlined
def following(data, offset, end, is_json, is_list, left):
    """How many items are left behind an item (-1 if the container is broken), and the offset of the next one."""
    if not is_json:
        return left - 1, offset
    offset = skip_blanks(data, offset, end)
    if offset < end and data[offset] == (CLOSE_LIST if is_list else CLOSE):
        return 0, offset + 1
    if offset >= end or data[offset] != COMMA:
        return -1, offset
    return 1, skip_blanks(data, offset + 1, end)


@inlined
def name_at(data, offset, end, is_json):
    """The offset behind a name (and behind JSON's colon), or -1; the name is data[first:second]."""
    offset, what, first, second, _ = value_at(data, offset, end, is_json)
    if what != TEXT:
        return -1, 0, 0
    if is_json:
        offset = skip_blanks(data, offset, end)
        if offset >= end or data[offset] != COLON:
            return -1, 0, 0
        offset = skip_blanks(data, offset + 1, end)
    return offset, first, second


@kernel
def skip_json(data, offset, end):
    """The offset behind a value, if it is one at all."""
    depth = 0
    while offset < end:
        byte = data[offset]
        if byte == QUOTE:
            offset += 1
            while offset < end and data[offset] != QUOTE:
                offset += 2 if data[offset] == BACKSLASH else 1
        elif byte in (OPEN, OPEN_LIST):
            depth += 1
        elif depth == 0 and byte in (CLOSE, CLOSE_LIST, COMMA):
            return offset
        elif byte in (CLOSE, CLOSE_LIST):
            depth -= 1
        offset += 1
    return end


@kernel
def skip_msgpack(data, offset, end):
    """The offset behind a value; -1 if it is not a plain case."""
    left = 1
    while left > 0:
        left -= 1
        behind, what, _, _, _ = value_at(data, offset, end, False)
        if what == BAD:
            values, behind = opened(data, offset, end, False, True)
            if values < 0:
                pairs, behind = opened(data, offset, end, False, False)
                values = 2 * pairs
            if values < 0:
                return -1
            left += values
        offset = behind
    return offset
