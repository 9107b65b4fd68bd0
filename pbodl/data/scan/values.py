"""Single values of msgpack and JSON, read from bytes in compiled code: texts, numbers, true, false and null.

A value is (place behind it, what it is, first, second, fraction): the bytes of a text are data[first:second], a whole number is
`first`; a fraction of JSON is its bytes, too.
BAD is what is broken, or what only the general way understands: containers, escapes, numbers with exponents, of too many digits.
"""

import math

import numpy as np

from pbodl._jit import inlined, jit
from pbodl.data.hashing import hash_span

BAD, NIL, TEXT, WHOLE, FRACTION, YES, NO = -1, 0, 1, 2, 3, 4, 5
MOST_DIGITS = 18


@inlined
def whole_key(value, seed, digits):
    """The key of an integer: that of its decimal text. MODIFIES: digits, room for 32 of them."""
    left = np.uint64(-value) if value < 0 else np.uint64(value)
    start = 20
    while True:
        start -= 1
        digits[start] = np.uint8(48 + left % np.uint64(10))
        left = left // np.uint64(10)
        if left == np.uint64(0):
            break
    if value < 0:
        start -= 1
        digits[start] = 45
    return hash_span(digits, start, 20, seed)


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
def big_endian(data, place, size):
    """An unsigned number of `size` bytes."""
    value = np.uint64(0)
    for i in range(size):
        value = value << np.uint64(8) | np.uint64(data[place + i])
    return value


@inlined
def msgpack_value(data, place, end):
    """One msgpack value that is no container."""
    if place >= end:
        return place, BAD, 0, 0, 0.0
    head = data[place]
    place += 1
    size = np.int64(-1)
    if 0xA0 <= head <= 0xBF:
        size = np.int64(head) - 0xA0
    elif 0xD9 <= head <= 0xDB:
        width = 1 << (np.int64(head) - 0xD9)
        if place + width > end:
            return place, BAD, 0, 0, 0.0
        size = np.int64(big_endian(data, place, width))
        place += width
    if size >= 0:
        if place + size > end or not is_utf8(data, place, place + size):
            return place, BAD, 0, 0, 0.0
        return place + size, TEXT, place, place + size, 0.0
    if head <= 0x7F:
        return place, WHOLE, np.int64(head), 0, 0.0
    if head >= 0xE0:
        return place, WHOLE, np.int64(head) - 256, 0, 0.0
    if head == 0xC0:
        return place, NIL, 0, 0, 0.0
    if head == 0xC2 or head == 0xC3:
        return place, YES if head == 0xC3 else NO, 0, 0, 0.0
    if 0xCC <= head <= 0xCF or 0xD0 <= head <= 0xD3:
        width = 1 << (np.int64(head) & 3)
        if place + width > end:
            return place, BAD, 0, 0, 0.0
        value = big_endian(data, place, width)
        if head >= 0xD0:
            shift = 64 - 8 * width
            return place + width, WHOLE, np.int64(value << np.uint64(shift)) >> shift, 0, 0.0
        if value > np.uint64(0x7FFFFFFFFFFFFFFF):
            return place, BAD, 0, 0, 0.0
        return place + width, WHOLE, np.int64(value), 0, 0.0
    if head == 0xCB:
        if place + 8 > end:
            return place, BAD, 0, 0, 0.0
        bits = big_endian(data, place, 8)
        exponent = np.int64(bits >> np.uint64(52)) & 0x7FF
        if exponent == 0x7FF or (exponent == 0 and bits << np.uint64(1) != np.uint64(0)):
            return place, BAD, 0, 0, 0.0
        significand = np.float64(bits & np.uint64(0xFFFFFFFFFFFFF)) * 2.0**-52 + 1.0
        fraction = math.ldexp(significand, int(exponent) - 1023) if exponent else 0.0
        return place + 8, FRACTION, -1, 0, -fraction if bits >> np.uint64(63) else fraction
    return place, BAD, 0, 0, 0.0


@inlined
def skip_blanks(data, place, end):
    while place < end and (data[place] == 32 or data[place] == 10 or data[place] == 13 or data[place] == 9):
        place += 1
    return place


@inlined
def json_value(data, place, end):
    """One JSON value that is no container and has no escapes; a fraction is the bytes data[first:second]."""
    if place >= end:
        return place, BAD, 0, 0, 0.0
    head = data[place]
    if head == 34:
        stop = place + 1
        high = False
        while stop < end and data[stop] != 34:
            if data[stop] < 32 or data[stop] == 92:
                return place, BAD, 0, 0, 0.0
            high |= data[stop] >= 128
            stop += 1
        if stop >= end or (high and not is_utf8(data, place + 1, stop)):
            return place, BAD, 0, 0, 0.0
        return stop + 1, TEXT, place + 1, stop, 0.0
    if head == 45 or 48 <= head <= 57:
        stop = place + (head == 45)
        value, digits = np.int64(0), stop
        while stop < end and 48 <= data[stop] <= 57:
            value = value * 10 + np.int64(data[stop]) - 48
            stop += 1
        count = stop - digits
        if count == 0 or count > MOST_DIGITS or (data[digits] == 48 and (count > 1 or head == 45)):
            return place, BAD, 0, 0, 0.0
        if stop < end and data[stop] == 46:
            stop += 1
            behind = stop
            while stop < end and 48 <= data[stop] <= 57:
                stop += 1
            if stop == behind or (stop < end and (data[stop] == 101 or data[stop] == 69)):
                return place, BAD, 0, 0, 0.0
            return stop, FRACTION, place, stop, 0.0
        if stop < end and (data[stop] == 101 or data[stop] == 69):
            return place, BAD, 0, 0, 0.0
        return stop, WHOLE, -value if head == 45 else value, 0, 0.0
    if place + 4 <= end and head == 110 and data[place + 1] == 117 and data[place + 2] == 108 and data[place + 3] == 108:
        return place + 4, NIL, 0, 0, 0.0
    if place + 4 <= end and head == 116 and data[place + 1] == 114 and data[place + 2] == 117 and data[place + 3] == 101:
        return place + 4, YES, 0, 0, 0.0
    if place + 5 <= end and head == 102 and data[place + 1] == 97 and data[place + 2] == 108 and data[place + 4] == 101:
        return place + 5, (NO if data[place + 3] == 115 else BAD), 0, 0, 0.0
    return place, BAD, 0, 0, 0.0
