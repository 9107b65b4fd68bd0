"""The fast way from messages to features: msgpack and JSON are read, and values hashed, in one compiled pass, without objects.

It takes the plain case alone: categories of one value each, ids, numeric times, labels 0 or 1. Whatever else it meets (escapes in
JSON, fractions as categories, nested values, any fault) it gives the whole lot back to `events`, which knows all cases and the
reasons. Both ways give the same arrays, and tests hold them together.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, jit
from pbodl.data.hashing import hash_span
from pbodl.data.scan.values import (
    BAD,
    FRACTION,
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

EVENT, ID, TIME, LABEL, FIRST_FIELD = 0, 1, 2, 3, 4
IMPRESSION, CLICK, JOINED = 0, 1, 2


class EventNames(NamedTuple):
    """What a scan looks for."""

    keys: NDArray[np.uint64]  # hashes of the names: event, id, time, label, then the fields
    seeds: NDArray[np.uint64]  # of the values' hashes, for each name
    missing: NDArray[np.uint64]  # key of a missing value, for each field
    kinds: NDArray[np.uint64]  # hashes of "impression" and "click", with the seed of `event`
    name_seed: np.uint64
    words: NDArray[np.uint8]  # "truefalse"


class Found(NamedTuple):
    """Room for what is found."""

    kinds: NDArray[np.int8]
    ids: NDArray[np.uint64]
    times: NDArray[np.float64]
    spans: NDArray[np.int64]  # [n, 2] where a time has more digits than are read here
    labels: NDArray[np.float32]  # of the rows, that is, of all events but clicks
    keys: NDArray[np.uint64]  # [rows, fields]
    digits: NDArray[np.uint8]  # [32] scratch


@inlined
def begin_event(names, found, event, row):
    """Nothing is known of an event yet. MODIFIES: found."""
    found.kinds[event] = JOINED
    found.ids[event] = np.uint64(0)
    found.times[event] = np.nan
    found.spans[event, 0] = -1
    found.labels[row] = np.float32(-1)
    for field in range(len(names.missing)):
        found.keys[row, field] = names.missing[field]


@inlined
def store(data, what, first, second, fraction, slot, names, found, event, row):
    """Put a value where its name says; False if this is no plain case. MODIFIES: found."""
    if slot == EVENT:
        if what == NIL:
            found.kinds[event] = JOINED
            return True
        if what != TEXT:
            return False
        key = hash_span(data, first, second, names.seeds[EVENT])
        found.kinds[event] = IMPRESSION if key == names.kinds[0] else CLICK
        return key == names.kinds[0] or key == names.kinds[1]
    if slot == TIME:
        found.spans[event, 0] = -1
        if what == WHOLE:
            found.times[event] = np.float64(first)
        elif what == FRACTION and first < 0:
            found.times[event] = fraction
        elif what == FRACTION:
            found.times[event] = 0.0
            found.spans[event, 0], found.spans[event, 1] = first, second
        else:
            return False
        return abs(found.times[event]) < 1e300
    if slot == LABEL:
        if what in (YES, NO):
            found.labels[row] = np.float32(what == YES)
        elif what == WHOLE and (first == 0 or first == 1):
            found.labels[row] = np.float32(first)
        else:
            found.labels[row] = np.float32(-1)
        return True
    seed = names.seeds[slot]
    if what == TEXT:
        key = hash_span(data, first, second, seed)
    elif what == WHOLE:
        key = whole_key(first, seed, found.digits)
    elif what == YES:
        key = hash_span(names.words, 0, 4, seed)
    elif what == NO:
        key = hash_span(names.words, 4, 9, seed)
    elif what == NIL:
        key = hash_span(names.words, 0, 0, seed)
    else:
        return False
    if slot == ID:
        found.ids[event] = key
        return what != NIL
    found.keys[row, slot - FIRST_FIELD] = key
    return True


@inlined
def slot_of(data, first, second, names, expected):
    """The place of a name among those looked for, -1 if it is none of them; events mostly name things in the same order."""
    key = hash_span(data, first, second, names.name_seed)
    count = len(names.keys)
    if expected < count and names.keys[expected] == key:
        return expected
    for slot in range(count):
        if names.keys[slot] == key:
            return slot
    return -1


@inlined
def is_complete(found, event, row):
    """Whether an event has all that its kind needs."""
    if np.isnan(found.times[event]):
        return False
    if found.kinds[event] == JOINED:
        return found.labels[row] >= 0
    found.labels[row] = np.float32(0)
    return found.ids[event] != np.uint64(0)


@inlined
def scan_msgpack(data, place, end, names, found, event, row):
    """One msgpack map; returns the place behind it, or -1. MODIFIES: found."""
    if place >= end:
        return -1
    head = data[place]
    place += 1
    if 0x80 <= head <= 0x8F:
        pairs = np.int64(head) - 0x80
    elif head == 0xDE and place + 2 <= end:
        pairs = np.int64(big_endian(data, place, 2))
        place += 2
    else:
        return -1
    begin_event(names, found, event, row)
    expected = 0
    for _ in range(pairs):
        place, what, first, second, fraction = msgpack_value(data, place, end)
        if what != TEXT:
            return -1
        slot = slot_of(data, first, second, names, expected)
        place, what, first, second, fraction = msgpack_value(data, place, end)
        if what == BAD or (slot >= 0 and not store(data, what, first, second, fraction, slot, names, found, event, row)):
            return -1
        expected = slot + 1 if slot >= 0 else expected
    return place if is_complete(found, event, row) else -1


@inlined
def scan_json(data, place, end, names, found, event, row):
    """One JSON object; returns the place behind it, or -1. MODIFIES: found."""
    if place >= end or data[place] != 123:
        return -1
    place = skip_blanks(data, place + 1, end)
    begin_event(names, found, event, row)
    expected = 0
    while True:
        place, what, first, second, _ = json_value(data, place, end)
        if what != TEXT:
            return -1
        slot = slot_of(data, first, second, names, expected)
        place = skip_blanks(data, place, end)
        if place >= end or data[place] != 58:
            return -1
        place, what, first, second, _ = json_value(data, skip_blanks(data, place + 1, end), end)
        if what == BAD or (slot >= 0 and not store(data, what, first, second, 0.0, slot, names, found, event, row)):
            return -1
        expected = slot + 1 if slot >= 0 else expected
        place = skip_blanks(data, place, end)
        if place >= end:
            return -1
        if data[place] == 125:
            return place + 1 if is_complete(found, event, row) else -1
        if data[place] != 44:
            return -1
        place = skip_blanks(data, place + 1, end)


@jit
def scan_message(data, place, end, names, found, event, row):
    """All events of a message; returns the numbers of events and rows after it, or -1 and what is short. MODIFIES: found."""
    room = len(found.kinds)
    if place >= end:
        return -1, 0
    head = data[place]
    is_json = head == 91 or head == 123
    left = np.int64(1)
    if 0x90 <= head <= 0x9F:
        left = np.int64(head) - 0x90
        place += 1
    elif (head == 0xDC or head == 0xDD) and place + 5 <= end:
        width = 2 if head == 0xDC else 4
        left = np.int64(big_endian(data, place + 1, width))
        place += 1 + width
    if not is_json:
        for _ in range(left):
            if event == room:
                return -1, 1
            place = scan_msgpack(data, place, end, names, found, event, row)
            if place < 0:
                return -1, 0
            row += found.kinds[event] != CLICK
            event += 1
        return (event, row) if place == end else (-1, 0)
    listed = head == 91
    place = skip_blanks(data, place + listed, end)
    while place < end:
        if event == room:
            return -1, 1
        place = scan_json(data, place, end, names, found, event, row)
        if place < 0:
            return -1, 0
        row += found.kinds[event] != CLICK
        event += 1
        place = skip_blanks(data, place, end)
        if listed and place < end and data[place] == 44:
            place = skip_blanks(data, place + 1, end)
        elif listed:
            place = skip_blanks(data, place + 1, end) if place < end and data[place] == 93 else -1
            return (event, row) if place == end else (-1, 0)
    return (event, row) if not listed else (-1, 0)


@jit
def scan_messages(data, ends, names, found):
    """All messages; returns the numbers of events and rows, or -1 and 1 if there was no room, 0 if this is no plain case."""
    event = row = start = 0
    for message in range(len(ends)):
        event, row = scan_message(data, start, ends[message], names, found, event, row)
        if event < 0:
            return event, row
        start = ends[message]
    return event, row
