"""One walk through lists of objects, in JSON or msgpack bytes, puts the key of each value into the column of its name.

A request's candidates and a stream's events are both such lists. Names have slots: those of candidates are their fields; those of
events are the columns of `event_columns`, and then the fields. Whatever is not a plain case (escapes, fractions as categories,
nested values, any fault, in candidates an unknown name) ends the walk, and the caller turns to a general reader, which knows all
cases and their errors. Both ways give the same keys; tests compare them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, jit, kernel
from pbodl.data.hashing import NAME_SEED, field_seed, hash_integer, hash_span, hash_value, word_at
from pbodl.data.scan.byte_values import BAD, NIL, NO, TEXT, WHOLE, YES, ZERO, skip_blanks, text_end, value_at
from pbodl.data.scan.containers import OPEN, OPEN_LIST, following, name_at, opened, skip_json, skip_msgpack
from pbodl.data.scan.event_columns import ID, begin_event, is_complete, put_event
from pbodl.data.schema import Field

IGNORED, SPECIAL = -1, -2
ELSEWHERE, NO_ROOM = -1, -2  # instead of a number of objects: not a plain case; more than there is room for
HEAD = 4  # words of eight bytes
SEED = np.uint64(NAME_SEED)
WORDS = np.frombuffer(b"truefalse", np.uint8)


class ScanNames(NamedTuple):
    """The names that a walk looks for, by slot."""

    hashes: NDArray[np.uint64]  # of the names
    seeds: NDArray[np.uint64]  # of the values' keys
    columns: NDArray[np.int64]  # of the keys; IGNORED for retired names, SPECIAL for those of `event_columns`
    missing: NDArray[np.uint64]  # by column: key of a missing value
    aliased: NDArray[np.bool_]  # by column: it has several names
    heads: NDArray[np.uint64]  # (slots, HEAD) the bytes of a name as a compact writer puts them, up to its value (in JSON, a text)
    masks: NDArray[np.uint64]  # (slots, HEAD) which of these bytes count
    lengths: NDArray[np.int64]  # of the heads in bytes; 0 where a name is too long for one


def names_of(special: Sequence[str], fields: Sequence[Field], is_json: bool, retired: Sequence[str] = ()) -> ScanNames:
    """The names by slot: those of an event, of the fields (each reads a column of its name), former ones, and retired ones."""
    former = [(alias, place) for place, field in enumerate(fields) for alias in field.former_columns]
    names = [*special, *(field.name for field in fields), *(alias for alias, _ in former), *retired]
    columns = [SPECIAL] * len(special) + [*range(len(fields)), *(place for _, place in former)] + [IGNORED] * len(retired)
    of_keys = [fields[column].key_name if column >= 0 else name for name, column in zip(names, columns, strict=True)]
    heads = [msgspec.json.encode(name) + b':"' if is_json else msgspec.msgpack.encode(name) for name in names]
    heads = [head if len(head) <= 8 * HEAD else b"" for head in heads]
    padded = b"".join(head.ljust(8 * HEAD, b"\0") for head in heads)
    masks = b"".join((b"\xff" * len(head)).ljust(8 * HEAD, b"\0") for head in heads)
    return ScanNames(
        np.array([field_seed(name) for name in names], np.uint64),
        np.array([field_seed(name) for name in of_keys], np.uint64),
        np.array(columns, np.int64),
        np.array([hash_value(field.key_name, None) for field in fields], np.uint64),
        np.array([bool(field.former_columns) for field in fields], np.bool_),
        np.frombuffer(padded, "<u8").reshape(-1, HEAD),
        np.frombuffer(masks, "<u8").reshape(-1, HEAD),
        np.array(list(map(len, heads)), np.int64),
    )


@inlined
def behind_head(data, offset, names, slot):
    """The offset behind the head of a slot's name, if it stands here; else -1."""
    if slot >= len(names.lengths) or offset + 8 * HEAD > len(data):
        return -1
    differ = ZERO
    for i in range(HEAD):
        differ |= (word_at(data, offset + 8 * i) ^ names.heads[slot, i]) & names.masks[slot, i]
    return offset + names.lengths[slot] if differ == ZERO and names.lengths[slot] > 0 else -1


@inlined
def slot_of(data, first, second, names, expected):
    """The slot of a name, -1 if it has none; objects mostly name things in the same order."""
    key = hash_span(data, first, second, SEED)
    if expected < len(names.hashes) and names.hashes[expected] == key:
        return expected
    for slot in range(len(names.hashes)):
        if names.hashes[slot] == key:
            return slot
    return -1


@inlined
def pair_at(data, offset, end, names, expected, is_json):
    """The offset behind a name and its value, the slot of the name, and the value as in `byte_values`."""
    slot, behind = expected, behind_head(data, offset, names, expected)
    if is_json and behind >= 0:
        stop = text_end(data, behind, end)
        if stop >= 0:
            return stop + 1, slot, TEXT, behind, stop, 0.0
    if is_json or behind < 0:
        behind, first, second = name_at(data, offset, end, is_json)
        if behind < 0:
            return -1, -1, BAD, 0, 0, 0.0
        slot = slot_of(data, first, second, names, expected)
    offset, what, first, second, fraction = value_at(data, behind, end, is_json)
    return offset, slot, what, first, second, fraction


@inlined
def key_of(data, what, first, second, seed, digits):
    """The key of a value, and whether this is a plain case. MODIFIES: digits, which is scratch."""
    if what == TEXT:
        return hash_span(data, first, second, seed), True
    if what == WHOLE:
        return hash_integer(first, seed, digits), True
    if what == YES:
        return hash_span(WORDS, 0, 4, seed), True
    if what == NO:
        return hash_span(WORDS, 4, 9, seed), True
    return hash_span(WORDS, 0, 0, seed), what == NIL


@inlined
def walk_object(data, offset, end, names, keys, n, events, digits, is_json):
    """Object n; returns the offset behind it, or -1. MODIFIES: keys[n], and events unless they are None; digits is scratch."""
    for field in range(keys.shape[1]):
        keys[n, field] = names.missing[field]
    if events is not None:
        begin_event(events, n)
    left, offset = opened(data, offset, end, is_json, False)
    expected = 0
    while left > 0:
        offset, slot, what, first, second, fraction = pair_at(data, offset, end, names, expected, is_json)
        if what == BAD or (slot < 0 and events is None):
            return -1
        if slot >= 0:
            seed, plain, column = names.seeds[slot], True, names.columns[slot]
            if column >= 0 or (column == SPECIAL and slot == ID):
                key, plain = key_of(data, what, first, second, seed, digits)
            if column >= 0:
                # Under two names at once: the general reader chooses.
                plain = plain and not (names.aliased[column] and keys[n, column] != names.missing[column])
                keys[n, column] = key
            elif events is not None and column == SPECIAL:
                if slot == ID:
                    events.ids[n] = key
                    plain = plain and what != NIL
                else:
                    plain = put_event(data, what, first, second, fraction, slot, seed, events, n)
            if not plain:
                return -1
            expected = slot + 1
        left, offset = following(data, offset, end, is_json, False, left)
    if events is not None:
        return offset if left == 0 and is_complete(events, n) else -1
    return offset if left == 0 else -1


@kernel
def json_object(data, offset, end, names, keys, n, events, digits):
    return walk_object(data, offset, end, names, keys, n, events, digits, True)


@kernel
def msgpack_object(data, offset, end, names, keys, n, events, digits):
    return walk_object(data, offset, end, names, keys, n, events, digits, False)


@inlined
def object_at(data, offset, end, names, keys, n, events, digits, is_json):
    """`walk_object`, compiled for each format."""
    if is_json:
        return json_object(data, offset, end, names, keys, n, events, digits)
    return msgpack_object(data, offset, end, names, keys, n, events, digits)


@kernel
def walk_list(data, offset, end, names, keys, n, events, digits, is_json):
    """The objects of a list, from number n on: their number behind it (or ELSEWHERE, NO_ROOM), and the offset there.

    MODIFIES: keys, and events unless they are None; digits is scratch.
    """
    left, offset = opened(data, offset, end, is_json, True)
    if not is_json and left > len(keys) - n:
        # An object takes a byte at least.
        return NO_ROOM if left <= end - offset else ELSEWHERE, offset
    while left > 0:
        if n == len(keys):
            return NO_ROOM, offset
        offset = object_at(data, offset, end, names, keys, n, events, digits, is_json)
        if offset < 0:
            return ELSEWHERE, offset
        n += 1
        left, offset = following(data, offset, end, is_json, True, left)
    return (n if left == 0 else ELSEWHERE), offset


@jit
def scan_body(data, names, listed, keys, digits, is_json):
    """The candidates in the list whose name has the hash `listed`: their number (or ELSEWHERE, NO_ROOM), and where the list begins
    and ends. MODIFIES: keys; digits is scratch."""
    end, n, begin, stop = len(data), ELSEWHERE, 0, 0
    left, offset = opened(data, skip_blanks(data, 0, end) if is_json else 0, end, is_json, False)
    while left > 0:
        offset, first, second = name_at(data, offset, end, is_json)
        if offset < 0:
            return ELSEWHERE, 0, 0
        if hash_span(data, first, second, SEED) == listed:
            if n != ELSEWHERE:  # a second list, which counts instead of the first
                return ELSEWHERE, 0, 0
            begin = offset
            n, offset = walk_list(data, offset, end, names, keys, 0, None, digits, is_json)
            stop = offset
            if n < 0:
                return n, 0, 0
        else:
            offset = skip_json(data, offset, end) if is_json else skip_msgpack(data, offset, end)
            if offset < 0:
                return ELSEWHERE, 0, 0
        left, offset = following(data, offset, end, is_json, False, left)
    return (n, begin, stop) if left == 0 else (ELSEWHERE, 0, 0)


@inlined
def has_line_end(data, start, end):
    """Whether there is a line feed in data[start:end]."""
    found = False
    for i in range(start, end):
        found |= data[i] == 10
    return found


@jit
def scan_messages(data, ends, json_names, msgpack_names, keys, events, digits):
    """The number of events in all messages (or ELSEWHERE, NO_ROOM). MODIFIES: keys, events; digits is scratch.

    A message holds one event, a list of events, or in JSON one event to a line.
    """
    n = offset = 0
    for end in ends:
        if offset >= end:
            return ELSEWHERE
        head = data[offset]
        is_json = head in (OPEN, OPEN_LIST)
        names = json_names if is_json else msgpack_names
        if head == OPEN_LIST or 0x90 <= head <= 0x9F or head == 0xDC or head == 0xDD:
            n, offset = walk_list(data, offset, end, names, keys, n, events, digits, is_json)
            if n < 0:
                return n
            offset = skip_blanks(data, offset, end) if is_json else offset
        else:
            first = offset
            while True:
                if n == len(keys):
                    return NO_ROOM
                start = offset
                offset = object_at(data, offset, end, names, keys, n, events, digits, is_json)
                if offset < 0:
                    return ELSEWHERE
                n += 1
                behind = offset
                offset = skip_blanks(data, offset, end) if is_json else offset
                if not is_json or (offset == end and start == first):
                    break
                # One of several: it must stand on its line alone.
                if has_line_end(data, start, behind) or not (offset == end or has_line_end(data, behind, offset)):
                    return ELSEWHERE
                if offset == end:
                    break
        if offset != end:
            return ELSEWHERE
    return n


@jit
def scan_lines(data, ends, names, keys, events, digits):
    """The number of events in lines of JSON (or ELSEWHERE, NO_ROOM), one or a list to a line. MODIFIES: keys, events; digits."""
    n = offset = 0
    for end in ends:
        offset = skip_blanks(data, offset, end)
        if offset == end:
            continue
        if data[offset] == OPEN_LIST:
            n, offset = walk_list(data, offset, end, names, keys, n, events, digits, True)
            if n < 0:
                return n
        else:
            if n == len(keys):
                return NO_ROOM
            offset = object_at(data, offset, end, names, keys, n, events, digits, True)
            if offset < 0:
                return ELSEWHERE
            n += 1
        if skip_blanks(data, offset, end) != end:
            return ELSEWHERE
        offset = end
    return n
