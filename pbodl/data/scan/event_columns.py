"""The columns of a stream's events: what each is, its id, its time and its label. `object_walk` finds the values.

Anything but the plain case (a numeric time, a label 0 or 1, a known kind of event) gives the whole lot back to the general reader.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined
from pbodl.data.hashing import hash_span
from pbodl.data.scan.byte_values import FRACTION, NIL, NO, TEXT, WHOLE, YES

EVENT, ID, TIME, LABEL = 0, 1, 2, 3  # slots of the names; the fields follow
IMPRESSION, CLICK, JOINED = 0, 1, 2


class EventColumns(NamedTuple):
    """Room for n events."""

    kinds: NDArray[np.int8]
    ids: NDArray[np.uint64]  # hashed; 0 without one
    times: NDArray[np.float64]
    spans: NDArray[np.int64]  # [n, 2] the bytes of a time that is a fraction in JSON; -1 for other times
    labels: NDArray[np.float32]
    kind_keys: NDArray[np.uint64]  # hashes of "impression" and "click"


@inlined
def begin_event(events, n):
    """Nothing is known about event n yet. MODIFIES: events."""
    events.kinds[n] = JOINED
    events.ids[n] = np.uint64(0)
    events.times[n] = np.nan
    events.spans[n, 0] = -1
    events.labels[n] = np.float32(-1)


@inlined
def put_event(data, what, first, second, fraction, slot, seed, events, n):
    """Put the value of an EVENT, TIME or LABEL; False if this is not a plain case. MODIFIES: events."""
    if slot == LABEL:
        truth = what == YES or (what == WHOLE and first == 1)
        events.labels[n] = np.float32(truth) if truth or what == NO or (what == WHOLE and first == 0) else np.float32(-1)
        return True
    if slot == TIME:
        events.spans[n, 0] = -1
        events.times[n] = np.float64(first) if what == WHOLE else fraction
        if what == FRACTION and first >= 0:
            events.spans[n, 0], events.spans[n, 1] = first, second
        return what in (WHOLE, FRACTION) and abs(events.times[n]) < 1e300
    if what == NIL:
        events.kinds[n] = JOINED
        return True
    key = hash_span(data, first, second, seed) if what == TEXT else np.uint64(0)
    events.kinds[n] = IMPRESSION if key == events.kind_keys[0] else CLICK
    return key == events.kind_keys[0] or key == events.kind_keys[1]


@inlined
def is_complete(events, n):
    """Whether event n has all that its kind needs; an impression's label is 0. MODIFIES: events."""
    if np.isnan(events.times[n]):
        return False
    if events.kinds[n] == JOINED:
        return events.labels[n] >= 0
    events.labels[n] = np.float32(0)
    return events.ids[n] != np.uint64(0)
