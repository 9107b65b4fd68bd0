"""The fast way from a request's body to its candidates' keys: JSON and msgpack are read, and values hashed, in one compiled pass.

It takes the plain case alone: one list `candidates`, of objects whose values are texts, integers, true, false or null in known
fields. Whatever else it meets (escapes, fractions, nested values, unknown fields, any fault) it leaves to `wire`, which knows all
cases and the reasons. All of the body but the list is read by `wire` in any case, with an empty list in its place: so what is no
request with a list that is none is no request with this one either. Both ways give the same keys, and tests hold them together.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, jit
from pbodl.data.hashing import field_seed, hash_span, hash_value, word_at, wrapping
from pbodl.streaming.scan_values import (
    BAD,
    NIL,
    NO,
    TEXT,
    WHOLE,
    YES,
    big_endian,
    json_value,
    msgpack_value,
    skip_blanks,
    whole_key,
)

LISTED = "candidates"
ELSEWHERE, NO_ROOM = -1, -2
USUAL_BYTES = 64  # of a candidate in a body, and more as a rule
MOST = 100_000  # candidates that are read here
HEAD = 4  # eights of bytes
QUOTE, COMMA, COLON, OPEN_LIST, BACKSLASH, CLOSE_LIST, OPEN, CLOSE = 34, 44, 58, 91, 92, 93, 123, 125
# Eight bytes at a time. A byte of x is zero where x - 0x01..01 borrows from its top bit, and it had none.
ONES, TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
QUOTES, BACKSLASHES, BLANKS = ONES * np.uint64(QUOTE), ONES * np.uint64(BACKSLASH), ONES * np.uint64(32)
U0, U1, U56 = np.uint64(0), np.uint64(1), np.uint64(56)


class Names(NamedTuple):
    """What a scan looks for: the name of the list, and then those of the fields."""

    text: NDArray[np.uint8]  # all names in a row
    begins: NDArray[np.int64]  # of each in it, and where the last ends
    seeds: NDArray[np.uint64]  # of the values' keys, by field
    missing: NDArray[np.uint64]  # key of a missing value, by field
    words: NDArray[np.uint8]  # "truefalse"
    heads: NDArray[np.uint64]  # (fields, HEAD): how a field mostly begins, up to its value, eight bytes to a number
    masks: NDArray[np.uint64]  # (fields, HEAD): which of these bytes count
    lengths: NDArray[np.int64]  # of the heads; 0 where there is none


class Listed(NamedTuple):
    """The candidates' keys, and the list's place in the body."""

    keys: NDArray[np.uint64]  # (candidates, fields)
    begin: int
    end: int


class Scanner:
    """Reads the candidates of JSON bodies, or of msgpack bodies.

    >>> import msgspec
    >>> body = b'{"candidates": [{"ad": 7}, {"ad": "7"}], "detail": true}'
    >>> listed = Scanner(["ad"], is_json=True).read(body)
    >>> listed.keys.tolist() == 2 * [[hash_value("ad", 7)]], body[listed.begin : listed.end]
    (True, b'[{"ad": 7}, {"ad": "7"}]')
    """

    def __init__(self, fields: Sequence[str], is_json: bool) -> None:
        self._scan = scan_json if is_json else scan_msgpack
        self._names = _names(fields, msgspec.json if is_json else msgspec.msgpack, b':"' if is_json else b"")

    def read(self, body: bytes) -> Listed | None:
        """The candidates of a body; None: it is no plain case."""
        return _read(self._scan, body, self._names)


def _names(fields: Sequence[str], encoding: Any, between: bytes) -> Names:
    """The names of the candidates' fields; `between` stands between a name and its value, if that is a text."""
    texts = [name.encode() for name in (LISTED, *fields)]
    heads = [encoding.encode(name) + between for name in fields]
    heads = [head if len(head) <= 8 * HEAD else b"" for head in heads]
    padded = b"".join(head.ljust(8 * HEAD, b"\0") for head in heads)
    masks = b"".join((b"\xff" * len(head)).ljust(8 * HEAD, b"\0") for head in heads)
    return Names(
        np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)]),
        np.array([field_seed(name) for name in fields], np.uint64),
        np.array([hash_value(name, None) for name in fields], np.uint64), np.frombuffer(b"truefalse", np.uint8),
        np.frombuffer(padded, "<u8").reshape(-1, HEAD), np.frombuffer(masks, "<u8").reshape(-1, HEAD),
        np.array(list(map(len, heads))),
    )  # fmt: skip


def _read(scan: Callable[..., Any], body: bytes, names: Names) -> Listed | None:
    data = np.frombuffer(body, np.uint8)
    for room in (len(data) // USUAL_BYTES + 1, min(len(data), MOST)):
        keys = np.empty((room, len(names.seeds)), np.uint64)
        with wrapping():
            n, begin, end = scan(data, names, keys, np.zeros(32, np.uint8))
        if n != NO_ROOM:
            break
    return Listed(keys[:n], begin, end) if n > 0 else None


@inlined
def is_name(data, first, second, names, which):
    """Whether data[first:second] is a name."""
    begin = names.begins[which]
    if names.begins[which + 1] - begin != second - first:
        return False
    differ = 0
    for i in range(second - first):
        differ += data[first + i] != names.text[begin + i]
    return differ == 0


@inlined
def field_at(data, first, second, names, expected):
    """The field of a name, -1 if it is none; candidates mostly name their fields in the same order."""
    count = len(names.seeds)
    if expected < count and is_name(data, first, second, names, expected + 1):
        return expected
    for field in range(count):
        if is_name(data, first, second, names, field + 1):
            return field
    return -1


@inlined
def key_of(data, what, first, second, seed, words, digits):
    """The key of a value, and whether this is a plain case. MODIFIES: digits, which is scratch."""
    if what == TEXT:
        return hash_span(data, first, second, seed), True
    if what == WHOLE:
        return whole_key(first, seed, digits), True
    if what == YES:
        return hash_span(words, 0, 4, seed), True
    if what == NO:
        return hash_span(words, 4, 9, seed), True
    return hash_span(words, 0, 0, seed), what == NIL


@inlined
def behind_head(data, place, end, names, field):
    """The place behind a field's head, if it stands here as it mostly does; else -1."""
    if field >= len(names.lengths) or place + 8 * HEAD > end:
        return -1
    differ = U0
    for i in range(HEAD):
        differ |= (word_at(data, place + 8 * i) ^ names.heads[field, i]) & names.masks[field, i]
    return place + names.lengths[field] if differ == U0 and names.lengths[field] > 0 else -1


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


@inlined
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


@inlined
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
            place, what, first, second, _ = json_value(data, place, end)
            field = field_at(data, first, second, names, expected) if what == TEXT else -1
            place = skip_blanks(data, place, end)
            if field < 0 or place >= end or data[place] != COLON:
                return -1
            place, what, first, second, _ = json_value(data, skip_blanks(data, place + 1, end), end)
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


@inlined
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
        place, what, first, second, _ = json_value(data, skip_blanks(data, place + 1, end), end)
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


@inlined
def skip_msgpack(data, place, end):
    """The place behind a value; -1 if it is no plain case."""
    left = 1
    while left > 0:
        left -= 1
        behind, what, _, _, _ = msgpack_value(data, place, end)
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


@inlined
def candidate_msgpack(data, place, end, names, digits, keys):
    """One map; returns the place behind it, or -1. MODIFIES: keys, a row."""
    pairs, place = count_at(data, place, end, 0x80, 0xDE)
    for field in range(len(names.seeds)):
        keys[field] = names.missing[field]
    expected = 0
    for _pair in range(pairs):
        behind, field = behind_head(data, place, end, names, expected), expected
        if behind < 0:
            behind, what, first, second, _ = msgpack_value(data, place, end)
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


@inlined
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
    """As `scan_json`. MODIFIES: keys; digits is scratch."""
    end, n, begin, stop = len(data), ELSEWHERE, 0, 0
    pairs, place = count_at(data, 0, end, 0x80, 0xDE)
    for _pair in range(pairs):
        place, what, first, second, _ = msgpack_value(data, place, end)
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
