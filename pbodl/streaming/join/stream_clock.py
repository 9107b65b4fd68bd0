"""The clock of a stream: the time that its events agree on.

The *watermark* is the earliest time of the last AGREE events, and never goes back, so no single event moves it. Of an event
further ahead of it than the skew, the time is not believed: it counts as if it came now. BELIEVED in a row that are ahead are a
pause of the stream. An event more than a day ahead is a stray, and is dropped.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, kernel

AGREE = 5  # events that must agree on a time
DAY = 86400.0  # seconds
STRAY, STEADY, LEAP, AHEAD = range(4)  # what is thought of the time of an event
BELIEVED = 10  # consecutive events that must leap ahead of the watermark before the leap is believed


class Clock(NamedTuple):
    times: NDArray[np.float64]  # watermark; the time up to which impressions are judged, that of the clicks
    recent: NDArray[np.float64]  # times of the last AGREE events
    counts: NDArray[np.int64]  # events so far; events in a row that are ahead; number of the first impression among these


def new_clock() -> Clock:
    """The clock before the first event."""
    return Clock(np.array([-np.inf, -np.inf]), np.zeros(AGREE), np.zeros(3, np.int64))


def copied(clock: Clock) -> Clock:
    """A copy, to try events on."""
    return Clock(clock.times.copy(), clock.recent.copy(), clock.counts.copy())


@inlined
def advance(clock, time, skew):
    """Hear the time of an event; returns what is thought of it. MODIFIES: clock."""
    seen = clock.counts[0]
    ahead = seen > 0 and time > clock.times[0] + skew
    if ahead and clock.counts[1] < BELIEVED - 1:
        clock.counts[1] += 1
        return STRAY if time > clock.times[0] + max(skew, DAY) else AHEAD
    clock.counts[1] = 0
    clock.counts[0] += 1
    if ahead:
        clock.recent[:] = time
        clock.counts[0] = max(clock.counts[0], AGREE)
        clock.times[0] = time
        return LEAP
    clock.recent[seen % AGREE] = time
    agreed = time
    for k in range(min(seen + 1, AGREE)):
        agreed = min(agreed, clock.recent[k])
    # Until AGREE events have come, the first of them may have been the one that is wrong.
    clock.times[0] = agreed if seen < AGREE else max(clock.times[0], agreed)
    return STEADY


@kernel
def find_strays(times, clock, skew, strays):
    """Mark the events that will be dropped as strays. Returns the first whose leap is believed, or -1. MODIFIES: clock, strays."""
    believed = -1
    for event in range(len(times)):
        heard = advance(clock, times[event], skew)
        strays[event] = heard == STRAY
        if heard == LEAP and believed < 0:
            believed = event
    return believed
