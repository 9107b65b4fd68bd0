"""The index of a table: from a key to its row.

Open addressing with linear probing. A slot holds row + 1, or 0 if it is empty. A key's first slot is the high bits of its product
with a constant; these depend on all bits of the key, so keys that share their low bits do not cluster. There are no tombstones:
whatever drops rows (eviction, time to live) rebuilds the index.
"""

import numpy as np

from pbodl._jit import inlined, jit, prefetch
from pbodl.mixing import MIX_1

SMALLEST = 64
GROUP = 64  # keys that are looked up together


@jit
def shift_of(slots):
    """The shift that leaves enough high bits of 64 to number the slots."""
    shift = np.uint64(64)
    n = slots.shape[0]
    while n > 1:
        n //= 2
        shift -= np.uint64(1)
    return shift


@inlined
def first_slot(key, shift):
    # Not the constant that distributes keys over shards: a shard's keys would all begin in the same few slots.
    return np.int64((key * MIX_1) >> shift)


@jit
def find_rows(slots, row_keys, keys, rows):
    """The row of each key, or -1. MODIFIES: rows."""
    mask, shift = slots.shape[0] - 1, shift_of(slots)
    for i in range(keys.shape[0]):
        slot = first_slot(keys[i], shift)
        while slots[slot] != 0 and row_keys[slots[slot] - 1] != keys[i]:
            slot = (slot + 1) & mask
        rows[i] = np.int64(slots[slot]) - 1


@jit
def insert_keys(slots, row_keys, size, limit, keys, start, rows):
    """Rows of keys[start:], with unseen keys appended, until there are `limit` rows. Returns (where it stopped, the new size).

    It works on groups of keys, and prefetches first their slots and then the rows in them, so that memory waits overlap.
    MODIFIES: slots, row_keys, rows.
    """
    mask, shift = slots.shape[0] - 1, shift_of(slots)
    first = np.empty(GROUP, np.uint32)
    for begin in range(start, keys.shape[0], GROUP):
        end = min(begin + GROUP, keys.shape[0])
        for i in range(begin, end):
            first[i - begin] = first_slot(keys[i], shift)
            prefetch(slots, first[i - begin])
        for i in range(begin, end):
            prefetch(row_keys, max(slots[first[i - begin]], np.uint32(1)) - np.uint32(1))
        for i in range(begin, end):
            slot = np.int64(first[i - begin])
            while slots[slot] != 0 and row_keys[slots[slot] - 1] != keys[i]:
                slot = (slot + 1) & mask
            if slots[slot] == 0:
                if size >= limit:
                    return i, size
                row_keys[size] = keys[i]
                size += 1
                slots[slot] = size
            rows[i] = np.int64(slots[slot]) - 1
    return keys.shape[0], size


@jit
def find_first_entries(rows, old_size, first):
    """The first index of each row from `old_size` on. These are numbered in order of arrival. MODIFIES: first."""
    wanted = old_size
    for i in range(rows.shape[0]):
        if rows[i] == wanted:
            first[wanted - old_size] = i
            wanted += 1


@jit
def enter_rows(slots, row_keys, size):
    """Enter rows 0 to size. Returns a row whose key was entered before, or -1. MODIFIES: slots."""
    mask, shift = slots.shape[0] - 1, shift_of(slots)
    for row in range(size):
        slot = first_slot(row_keys[row], shift)
        while slots[slot] != 0:
            if row_keys[slots[slot] - 1] == row_keys[row]:
                return row
            slot = (slot + 1) & mask
        slots[slot] = row + 1
    return -1


@jit
def fitting_samples(slots, row_keys, room, keys, indptr, start, fresh_slots):
    """The first sample from `start` on with which there are more unseen keys than `room`. MODIFIES: fresh_slots."""
    mask, shift = slots.shape[0] - 1, shift_of(slots)
    fresh_mask, fresh_shift = fresh_slots.shape[0] - 1, shift_of(fresh_slots)
    first = indptr[start]
    fresh = 0
    for sample in range(start, indptr.shape[0] - 1):
        for i in range(indptr[sample], indptr[sample + 1]):
            slot = first_slot(keys[i], shift)
            while slots[slot] != 0 and row_keys[slots[slot] - 1] != keys[i]:
                slot = (slot + 1) & mask
            if slots[slot] != 0:
                continue
            slot = first_slot(keys[i], fresh_shift)
            while fresh_slots[slot] != 0 and keys[first + fresh_slots[slot] - 1] != keys[i]:
                slot = (slot + 1) & fresh_mask
            if fresh_slots[slot] == 0:
                if fresh == room:
                    return sample
                fresh += 1
                fresh_slots[slot] = i - first + 1
    return indptr.shape[0] - 1


def slots_for(rows: int) -> int:
    """The number of slots, a power of two, that so many rows fill to three quarters at most."""
    return max(SMALLEST, 1 << (4 * rows // 3).bit_length())
