"""Ads that were met before: what their features come to, remembered for as long as a version of the model is served.

An ad's own features are the same in every request, so their sums are worked out when a version first meets the ad, and looked up by
the features' keys from then on; all keys are compared. Memory is bounded: when it is full, everything is forgotten.
"""

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.hashing import finish, wrapping
from pbodl.serving.request import Operation, zero_sums

CAPACITY = 32_768  # ads
ODD = np.uint64(0x9E3779B97F4A7C15)


@jit
def _recall(slots, known, size, keys, places, fresh):
    """The place of every sample's keys in `known`; new ones take the next places, and are listed in `fresh`.

    Returns how many places are taken then, and how many are new; (-1, 0) if there is no room.
    MODIFIES: slots, known, places, fresh.
    """
    mask, new = np.uint64(len(slots) - 1), 0
    for s in range(len(keys)):
        mixed = np.uint64(0)
        for j in range(keys.shape[1]):
            mixed = mixed * ODD + keys[s, j]
        slot = np.int64(finish(mixed) & mask)
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
            known[size] = keys[s]
            size += 1
            slots[slot] = size
            fresh[new] = s
            new += 1
        places[s] = slots[slot] - 1
    return size, new


class Remembered:
    """The sums of up to `capacity` ads of `slots` features each."""

    def __init__(self, capacity: int, slots: int, classes: int, operation: Operation) -> None:
        self.sums = zero_sums(capacity, classes, operation)  # of what is never written the system keeps no memory
        self.size = 0
        self._keys = np.zeros((capacity, slots), np.uint64)
        self._slots = np.zeros(2 << (capacity - 1).bit_length(), np.int32)

    def places(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Where the ads' sums stand, and which of the ads are new: theirs are to be worked out. No more ads than the capacity."""
        places, fresh = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
        with wrapping():
            size, new = _recall(self._slots, self._keys, self.size, keys, places, fresh)
            if size < 0:
                self._slots[:] = 0
                size, new = _recall(self._slots, self._keys, 0, keys, places, fresh)
        self.size = size
        return places, fresh[:new]
