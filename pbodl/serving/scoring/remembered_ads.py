"""A cache of ads: the sums of their features and their rows in the table, kept while a version of the model is served.

An ad's own features are the same in every request. So their sums are computed when a version first meets the ad, and then looked up
by the features' keys; all keys are compared. Memory is bounded: a full cache is cleared. Sums belong to one version, but the next
version can compute those of this version's ads before its first request.
"""

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit, prefetch
from pbodl.data.hashing import wrapping
from pbodl.mixing import mix
from pbodl.serving.scoring.candidate_kernels import Operation, room_for

CAPACITY = 32_768  # ads
ODD = np.uint64(0x9E3779B97F4A7C15)


@jit
def _recall(slots, known, asked, size, keys, places, fresh):
    """Find the index of every sample's keys in `known`; append new keys, and list their samples in `fresh`.

    Returns how many entries there are now, and how many of them are new; (-1, 0) if there is no room.
    MODIFIES: slots, known, asked, places, fresh.
    """
    mask, new, n = np.uint64(len(slots) - 1), 0, len(keys)
    # In three rounds: each round prefetches the memory that the next one reads.
    for s in range(n):
        mixed = np.uint64(0)
        for j in range(keys.shape[1]):
            mixed += (keys[s, j] ^ keys[s, j] >> np.uint64(32)) * (ODD * np.uint64(2 * j + 1))
        places[s] = np.int32(mix(mixed) & mask)
        prefetch(slots, np.uint32(places[s]))
    for s in range(n):
        prefetch(known, np.uint32(max(slots[places[s]] - 1, 0)))
    for s in range(n):
        slot = np.int64(places[s])
        while slots[slot] != 0:
            at, same = slots[slot] - 1, 0
            for j in range(keys.shape[1]):
                same += known[at, j] == keys[s, j]
            if same == keys.shape[1]:
                break
            slot = (slot + 1) & np.int64(mask)
        if slots[slot] == 0:
            if size == len(known):
                return -1, 0
            for j in range(keys.shape[1]):
                known[size, j] = keys[s, j]
            size += 1
            slots[slot] = size
            fresh[new] = s
            new += 1
        places[s] = slots[slot] - 1
        asked[places[s]] = True
    return size, new


class Remembered:
    """The sums and the rows of up to `capacity` ads of `slots` features each."""

    def __init__(self, capacity: int, slots: int, operation: Operation) -> None:
        self.sums = room_for(capacity, operation)
        self.rows = np.empty((capacity, slots), np.int32)  # of their features in the table
        self.linear = np.empty((capacity, slots), np.float32)  # standard deviations of their linear weights
        self.size = 0
        self._keys = np.empty((capacity, slots), np.uint64)
        self._asked = np.zeros(capacity, np.bool_)
        self._slots = np.zeros(2 << (capacity - 1).bit_length(), np.int32)

    def places(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The index of each ad's sums, and which ads are new: the caller computes their sums. At most `capacity` ads."""
        places, fresh = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
        with wrapping():
            size, new = _recall(self._slots, self._keys, self._asked, self.size, keys, places, fresh)
            if size < 0:
                self.forget()
                size, new = _recall(self._slots, self._keys, self._asked, 0, keys, places, fresh)
        self.size = size
        return places, fresh[:new]

    def forget(self) -> None:
        """Clear the cache."""
        self._slots[:] = 0
        self._asked[:] = False
        self.size = 0

    def told(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Clear the cache, and add ads, all different, before a request asks for them; returns their indices."""
        self.forget()
        places, _ = self.places(keys)
        self._asked[:] = False
        return places

    def lately(self) -> NDArray[np.uint64]:
        """The keys of the cached ads; if there are many, of those that requests asked for.

        A request may write at the same time. What is read then may be the keys of no ad; no request will ask for them.
        """
        size = self.size
        keys = self._keys[:size]
        return keys.copy() if 2 * size <= len(self._keys) else keys[self._asked[:size]]
