"""The candidates of a msgpack body, read and hashed in one compiled pass; see `body_scan`."""

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl.data.scan.candidate_names import ELSEWHERE, NO_ROOM, behind_head, field_at, is_name, key_of
from pbodl.data.scan.values import BAD, TEXT, big_endian, msgpack_value


@kernel
def any_msgpack(data, place, end):
    """`msgpack_value`, compiled once."""
    return msgpack_value(data, place, end)


@inlined
def count_at(data, place, end, fixed, wide):
    """How many are in a container of msgpack whose short heads begin at `fixed`, and the place behind its head; -1: it is none."""
    if place >= end:
        return -1, place
    head = data[place]
    if fixed <= head <= fixed + 15:
        return np.int64(head) - fixed, place + 1
    width = 2 if head == wide else 4
    if (head != wide and head != wide + 1) or place + 1 + width > end:
        return -1, place
    return np.int64(big_endian(data, place + 1, width)), place + 1 + width


@kernel
def skip_msgpack(data, place, end):
    """The place behind a value; -1 if it is no plain case."""
    left = 1
    while left > 0:
        left -= 1
        behind, what, _, _, _ = any_msgpack(data, place, end)
        if what == BAD:
            values, behind = count_at(data, place, end, 0x90, 0xDC)
            if values < 0:
                pairs, behind = count_at(data, place, end, 0x80, 0xDE)
                values = 2 * pairs
            if values < 0:
                return -1
            left += values
        place = behind
    return place


@kernel
def candidate_msgpack(data, place, end, names, digits, keys):
    """One map; returns the place behind it, or -1. MODIFIES: keys, a row."""
    pairs, place = count_at(data, place, end, 0x80, 0xDE)
    for field in range(len(names.seeds)):
        keys[field] = names.missing[field]
    expected = 0
    for _pair in range(pairs):
        behind, field = behind_head(data, place, end, names, expected), expected
        if behind < 0:
            behind, what, first, second, _ = any_msgpack(data, place, end)
            field = field_at(data, first, second, names, expected) if what == TEXT else -1
            if field < 0:
                return -1
        place = behind
        place, what, first, second, _ = msgpack_value(data, place, end)
        keys[field], plain = key_of(data, what, first, second, names.seeds[field], names.words, digits)
        if not plain:
            return -1
        expected = field + 1
    return place if pairs >= 0 else -1


@kernel
def list_msgpack(data, place, end, names, digits, keys):
    """The candidates of a list, and the place behind it. MODIFIES: keys."""
    n, place = count_at(data, place, end, 0x90, 0xDC)
    if n < 0:
        return ELSEWHERE, place
    if n > len(keys):
        return NO_ROOM, place
    for candidate in range(n):
        place = candidate_msgpack(data, place, end, names, digits, keys[candidate])
        if place < 0:
            return ELSEWHERE, place
    return n, place


@jit
def scan_msgpack(data, names, keys, digits):
    """As `candidates_json`. MODIFIES: keys; digits is scratch."""
    end, n, begin, stop = len(data), ELSEWHERE, 0, 0
    pairs, place = count_at(data, 0, end, 0x80, 0xDE)
    for _pair in range(pairs):
        place, what, first, second, _ = any_msgpack(data, place, end)
        if what != TEXT:
            return ELSEWHERE, 0, 0
        if is_name(data, first, second, names, 0):
            if n != ELSEWHERE:
                return ELSEWHERE, 0, 0
            begin = place
            n, place = list_msgpack(data, place, end, names, digits, keys)
            stop = place
            if n < 0:
                return n, 0, 0
        else:
            place = skip_msgpack(data, place, end)
            if place < 0:
                return ELSEWHERE, 0, 0
    return n, begin, stop
