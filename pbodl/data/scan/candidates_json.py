"""The candidates of a JSON body, read and hashed in one compiled pass; see `body_scan`."""

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl.data.hashing import hash_span, word_at
from pbodl.data.scan.candidate_names import ELSEWHERE, NO_ROOM, U0, behind_head, field_at, is_name, key_of
from pbodl.data.scan.values import TEXT, json_value, skip_blanks

QUOTE, COMMA, COLON, OPEN_LIST, BACKSLASH, CLOSE_LIST, OPEN, CLOSE = 34, 44, 58, 91, 92, 93, 123, 125
# Eight bytes at a time. A byte of x is zero where x - 0x01..01 borrows from its top bit, and it had none.
ONES, TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
QUOTES, BACKSLASHES, BLANKS = ONES * np.uint64(QUOTE), ONES * np.uint64(BACKSLASH), ONES * np.uint64(32)
U1, U56 = np.uint64(1), np.uint64(56)


@kernel
def any_json(data, place, end):
    """`json_value`, compiled once: it is long, and seldom needed here."""
    return json_value(data, place, end)


@inlined
def text_end(data, place, end):
    """Where the text ends that begins at `place`, behind its quote; -1 if it has more than plain ASCII in it, or no end."""
    while place + 8 <= end:
        word = word_at(data, place)
        quotes, escapes = word ^ QUOTES, word ^ BACKSLASHES
        special = (quotes - ONES) & ~quotes | (escapes - ONES) & ~escapes | (word - BLANKS) & ~word | word
        special = special & TOPS
        if special != U0:
            first = ((special & (~special + U1)) - U1 & ONES) * ONES >> U56  # the bytes up to the first one that is special
            place += np.int64(first) - 1
            return place if data[place] == QUOTE else -1
        place += 8
    while place < end and data[place] != QUOTE:
        if data[place] < 32 or data[place] >= 128 or data[place] == BACKSLASH:
            return -1
        place += 1
    return place if place < end else -1


@kernel
def skip_json(data, place, end):
    """The place behind a value, if it is one at all."""
    depth = 0
    while place < end:
        byte = data[place]
        if byte == QUOTE:
            place += 1
            while place < end and data[place] != QUOTE:
                place += 2 if data[place] == BACKSLASH else 1
        elif byte in (OPEN, OPEN_LIST):
            depth += 1
        elif depth == 0 and byte in (CLOSE, CLOSE_LIST, COMMA):
            return place
        elif byte in (CLOSE, CLOSE_LIST):
            depth -= 1
        place += 1
    return end


@kernel
def candidate_json(data, place, end, names, digits, keys):
    """One object; returns the place behind it, or -1. MODIFIES: keys, a row."""
    if place >= end or data[place] != OPEN:
        return -1
    for field in range(len(names.seeds)):
        keys[field] = names.missing[field]
    place = skip_blanks(data, place + 1, end)
    if place < end and data[place] == CLOSE:
        return place + 1
    expected = 0
    while True:
        first = behind_head(data, place, end, names, expected)
        second = text_end(data, first, end) if first >= 0 else -1
        if second >= 0:
            field, place = expected, second + 1
            keys[field] = hash_span(data, first, second, names.seeds[field])
        else:
            place, what, first, second, _ = any_json(data, place, end)
            field = field_at(data, first, second, names, expected) if what == TEXT else -1
            place = skip_blanks(data, place, end)
            if field < 0 or place >= end or data[place] != COLON:
                return -1
            place, what, first, second, _ = any_json(data, skip_blanks(data, place + 1, end), end)
            keys[field], plain = key_of(data, what, first, second, names.seeds[field], names.words, digits)
            if not plain:
                return -1
        place = skip_blanks(data, place, end)
        if place >= end:
            return -1
        if data[place] == CLOSE:
            return place + 1
        if data[place] != COMMA:
            return -1
        place, expected = skip_blanks(data, place + 1, end), field + 1


@kernel
def list_json(data, place, end, names, digits, keys):
    """The candidates of a list, and the place behind it. MODIFIES: keys."""
    n = 0
    if place >= end or data[place] != OPEN_LIST:
        return ELSEWHERE, place
    place = skip_blanks(data, place + 1, end)
    while True:
        if n == len(keys):
            return NO_ROOM, place
        place = candidate_json(data, place, end, names, digits, keys[n])
        if place < 0:
            return ELSEWHERE, place
        n += 1
        place = skip_blanks(data, place, end)
        if place < end and data[place] == CLOSE_LIST:
            return n, place + 1
        if place >= end or data[place] != COMMA:
            return ELSEWHERE, place
        place = skip_blanks(data, place + 1, end)


@jit
def scan_json(data, names, keys, digits):
    """The number of candidates (or ELSEWHERE, NO_ROOM), and where the list begins and ends. MODIFIES: keys; digits is scratch."""
    end, n, begin, stop = len(data), ELSEWHERE, 0, 0
    place = skip_blanks(data, 0, end)
    if place >= end or data[place] != OPEN:
        return ELSEWHERE, 0, 0
    while place < end and data[place] != CLOSE:
        place, what, first, second, _ = any_json(data, skip_blanks(data, place + 1, end), end)
        place = skip_blanks(data, place, end)
        if what != TEXT or place >= end or data[place] != COLON:
            return ELSEWHERE, 0, 0
        place = skip_blanks(data, place + 1, end)
        if is_name(data, first, second, names, 0):
            if n != ELSEWHERE:  # a second list: it counts, not the first
                return ELSEWHERE, 0, 0
            begin = place
            n, place = list_json(data, place, end, names, digits, keys)
            stop = place
            if n < 0:
                return n, 0, 0
        place = skip_blanks(data, skip_json(data, place, end), end)
    return n, begin, stop
