"""Ids in the order of their arrival, with an index by id: what the join remembers, in arrays of fixed size."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import kernel
from pbodl.mixing import mix

DONE = 5  # the status of an entry that is not in the index


class Ring(NamedTuple):
    """Ids in order of arrival, and an index by id; entry n has the slot n modulo the capacity, a power of two."""

    ids: NDArray[np.uint64]
    times: NDArray[np.float64]
    status: NDArray[np.int8]
    slots: NDArray[np.int64]  # open addressing: 1 + the entry's number, 0 for none
    marks: NDArray[np.int64]  # oldest entry, oldest with a row, number of the next


def empty_ring(capacity: int) -> Ring:
    """Room for so many entries, or somewhat more."""
    capacity = 1 << (capacity - 1).bit_length()
    slots = np.zeros(1 << (2 * capacity - 1).bit_length(), np.int64)
    return Ring(np.zeros(capacity, np.uint64), np.zeros(capacity), np.zeros(capacity, np.int8), slots, np.zeros(3, np.int64))


@kernel
def find(ring, key):
    """The slot of an id, or -1."""
    mask = len(ring.slots) - 1
    slot = np.int64(mix(key) & np.uint64(mask))
    while ring.slots[slot] != 0:
        if ring.ids[(ring.slots[slot] - 1) & (len(ring.ids) - 1)] == key:
            return slot
        slot = (slot + 1) & mask
    return -1


@kernel
def enter(ring, number):
    """Put entry `number` into the index. MODIFIES: ring."""
    mask = len(ring.slots) - 1
    slot = np.int64(mix(ring.ids[number & (len(ring.ids) - 1)]) & np.uint64(mask))
    while ring.slots[slot] != 0:
        slot = (slot + 1) & mask
    ring.slots[slot] = number + 1


@kernel
def enter_all(ring, numbers):
    """Put entries into an empty index. MODIFIES: ring."""
    ring.slots[:] = 0
    for number in numbers:
        enter(ring, number)


@kernel
def leave(ring, slot):
    """Remove an entry from the index; those behind it move up, so that none is cut off. MODIFIES: ring."""
    mask = len(ring.slots) - 1
    ring.slots[slot] = 0
    behind = (slot + 1) & mask
    while ring.slots[behind] != 0:
        home = np.int64(mix(ring.ids[(ring.slots[behind] - 1) & (len(ring.ids) - 1)]) & np.uint64(mask))
        if ((behind - home) & mask) >= ((behind - slot) & mask):
            ring.slots[slot] = ring.slots[behind]
            ring.slots[behind] = 0
            slot = behind
        behind = (behind + 1) & mask


@kernel
def retire(ring):
    """Forget the oldest entry. MODIFIES: ring."""
    place = ring.marks[0] & (len(ring.ids) - 1)
    if ring.status[place] != DONE:
        leave(ring, find(ring, ring.ids[place]))
    ring.marks[0] += 1
