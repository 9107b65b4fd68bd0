"""Single values of JSON and msgpack, read from bytes in compiled code: texts, numbers, true, false and null.

A value is (offset behind it, what it is, first, second, fraction). The bytes of a text are data[first:second]; a whole number is
`first`; a fraction is `fraction` in msgpack (where `first` is -1), and the bytes data[first:second] in JSON.
BAD is what is broken, and what only the general readers know: containers, escapes, numbers with exponents or too many digits.
"""

import math

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl.data.hashing import word_at

BAD, NIL, TEXT, WHOLE, FRACTION, YES, NO = -1, 0, 1, 2, 3, 4, 5
MOST_DIGITS = 18
QUOTE, BACKSLASH = 34, 92
# Eight bytes at a time. A byte of x is zero where x - 0x01..01 borrows from its top bit, which was not set.
ONES, TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
QUOTES, BACKSLASHES, BLANKS = ONES * np.uint64(QUOTE), ONES * np.uint64(BACKSLASH), ONES * np.uint64(32)
ZERO, ONE, U56 = np.uint64(0), np.uint64(1), np.uint64(56)


@jit
def is_utf8(data, start, end):
    """Whether bytes are well-formed UTF-8."""
    i = start
    while i < end:
        byte = data[i]
        if byte < 0x80:
            i += 1
            continue
        more = 1 if 0xC2 <= byte <= 0xDF else 2 if 0xE0 <= byte <= 0xEF else 3 if 0xF0 <= byte <= 0xF4 else 0
        if more == 0 or i + more >= end:
            return False
        second = data[i + 1]
        low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
        high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for j in range(i + 2, i + more + 1):
            if data[j] < 0x80 or data[j] > 0xBF:
                return False
        i += more + 1
    return True


@inlined
def big_endian(data, offset, size):
    """An unsigned number of `size` bytes."""
    value = np.uint64(0)
    for i in range(size):
        value = value << np.uint64(8) | np.uint64(data[offset + i])
    return value


@kernel
def msgpack_value(data, offset, end):
    """A msgpack value that is not a container."""
    if offset >= end:
        return offset, BAD, 0, 0, 0.0
    head = data[offset]
    offset += 1
    size = np.int64(-1)
    if 0xA0 <= head <= 0xBF:
        size = np.int64(head) - 0xA0
    elif 0xD9 <= head <= 0xDB:
        width = 1 << (np.int64(head) - 0xD9)
        if offset + width > end:
            return offset, BAD, 0, 0, 0.0
        size = np.int64(big_endian(data, offset, width))
        offset += width
    if size >= 0:
        if offset + size > end or not is_utf8(data, offset, offset + size):
            return offset, BAD, 0, 0, 0.0
        return offset + size, TEXT, offset, offset + size, 0.0
    if head <= 0x7F:
        return offset, WHOLE, np.int64(head), 0, 0.0
    if head >= 0xE0:
        return offset, WHOLE, np.int64(head) - 256, 0, 0.0
    if head == 0xC0:
        return offset, NIL, 0, 0, 0.0
    if head == 0xC2 or head == 0xC3:
        return offset, YES if head == 0xC3 else NO, 0, 0, 0.0
    if 0xCC <= head <= 0xCF or 0xD0 <= head <= 0xD3:
        width = 1 << (np.int64(head) & 3)
        if offset + width > end:
            return offset, BAD, 0, 0, 0.0
        value = big_endian(data, offset, width)
        if head >= 0xD0:
            shift = 64 - 8 * width
            return offset + width, WHOLE, np.int64(value << np.uint64(shift)) >> shift, 0, 0.0
        if value > np.uint64(0x7FFFFFFFFFFFFFFF):
            return offset, BAD, 0, 0, 0.0
        return offset + width, WHOLE, np.int64(value), 0, 0.0
    if head == 0xCB:
        if offset + 8 > end:
            return offset, BAD, 0, 0, 0.0
        bits = big_endian(data, offset, 8)
        exponent = np.int64(bits >> np.uint64(52)) & 0x7FF
        if exponent == 0x7FF or (exponent == 0 and bits << np.uint64(1) != np.uint64(0)):
            return offset, BAD, 0, 0, 0.0
        significand = np.float64(bits & np.uint64(0xFFFFFFFFFFFFF)) * 2.0**-52 + 1.0
        fraction = math.ldexp(significand, int(exponent) - 1023) if exponent else 0.0
        return offset + 8, FRACTION, -1, 0, -fraction if bits >> np.uint64(63) else fraction
    return offset, BAD, 0, 0, 0.0


@inlined
def skip_blanks(data, offset, end):
    """The offset of the next byte that is not JSON's white space."""
    while offset < end and (data[offset] == 32 or data[offset] == 10 or data[offset] == 13 or data[offset] == 9):
        offset += 1
    return offset


@kernel
def json_value(data, offset, end):
    """A JSON value that is not a container and has no escapes."""
    if offset >= end:
        return offset, BAD, 0, 0, 0.0
    head = data[offset]
    if head == QUOTE:
        stop = offset + 1
        high = False
        while stop < end and data[stop] != QUOTE:
            if data[stop] < 32 or data[stop] == BACKSLASH:
                return offset, BAD, 0, 0, 0.0
            high |= data[stop] >= 128
            stop += 1
        if stop >= end or (high and not is_utf8(data, offset + 1, stop)):
            return offset, BAD, 0, 0, 0.0
        return stop + 1, TEXT, offset + 1, stop, 0.0
    if head == 45 or 48 <= head <= 57:
        stop = offset + (head == 45)
        value, digits = np.int64(0), stop
        while stop < end and 48 <= data[stop] <= 57:
            value = value * 10 + np.int64(data[stop]) - 48
            stop += 1
        count = stop - digits
        if count == 0 or count > MOST_DIGITS or (data[digits] == 48 and (count > 1 or head == 45)):
            return offset, BAD, 0, 0, 0.0
        if stop < end and data[stop] == 46:
            stop += 1
            behind = stop
            while stop < end and 48 <= data[stop] <= 57:
                stop += 1
            if stop == behind or (stop < end and (data[stop] == 101 or data[stop] == 69)):
                return offset, BAD, 0, 0, 0.0
            return stop, FRACTION, offset, stop, 0.0
        if stop < end and (data[stop] == 101 or data[stop] == 69):
            return offset, BAD, 0, 0, 0.0
        return stop, WHOLE, -value if head == 45 else value, 0, 0.0
    if offset + 4 <= end and head == 110 and data[offset + 1] == 117 and data[offset + 2] == 108 and data[offset + 3] == 108:
        return offset + 4, NIL, 0, 0, 0.0
    if offset + 4 <= end and head == 116 and data[offset + 1] == 114 and data[offset + 2] == 117 and data[offset + 3] == 101:
        return offset + 4, YES, 0, 0, 0.0
    if offset + 5 <= end and head == 102 and data[offset + 1] == 97 and data[offset + 2] == 108 and data[offset + 4] == 101:
        return offset + 5, (NO if data[offset + 3] == 115 else BAD), 0, 0, 0.0
    return offset, BAD, 0, 0, 0.0


@inlined
def value_at(data, offset, end, is_json):
    """A value of JSON or of msgpack."""
    return json_value(data, offset, end) if is_json else msgpack_value(data, offset, end)


@inlined
def text_end(data, offset, end):
    """The offset of the quote that ends the JSON text at `offset`; -1 if there is none, or more than plain ASCII before it."""
    while offset + 8 <= end:
        word = word_at(data, offset)
        quotes, escapes = word ^ QUOTES, word ^ BACKSLASHES
        special = (quotes - ONES) & ~quotes | (escapes - ONES) & ~escapes | (word - BLANKS) & ~word | word
        special = special & TOPS
        if special != ZERO:
            first = ((special & (~special + ONE)) - ONE & ONES) * ONES >> U56  # bytes up to and with the first special one
            offset += np.int64(first) - 1
            return offset if data[offset] == QUOTE else -1
        offset += 8
    while offset < end and data[offset] != QUOTE:
        if data[offset] < 32 or data[offset] >= 128 or data[offset] == BACKSLASH:
            return -1
        offset += 1
    return offset if offset < end else -1
