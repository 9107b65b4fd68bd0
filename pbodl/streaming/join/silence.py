"""A silence of the clicks that chance does not explain: an outage.

Impressions *ripen* at the first age that is judged. Of those that have ripened since the last click, `due` clicks are expected by
the stream's recent rate. More than DUE without a click are an outage, if the silence is also wider than the stream is used to:
clicks that are delivered together, every five minutes, are none. Where no impressions come, nothing
ripens, and nothing is due; where nothing comes at all, the time leaps, and what ripens in a leap counts little.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined

DUE = 25.0  # clicks that were due in a silence that is an outage
AT_ONCE = 4  # impressions that one event can make ripe: where more are, nothing came at all for a while
WIDER = 2.0  # times the widest silence lately
KNOWN = 20  # clicks before a rate is known
MEMORY = 2000.0  # ripe impressions, at least, after which they are forgotten
CLICKS_IN_MEMORY = 100.0
WIDEST_MEMORY = 2000.0  # clicks after which the widest silence is forgotten
SINCE, RIPE, CLICKS, WIDEST, AGE = range(5)
NEXT, COUNTED, SILENT = range(3)


class Silence(NamedTuple):
    sums: NDArray[np.float64]  # by the names above, counted in impressions that are ripe
    marks: NDArray[np.int64]  # next impression to ripen; clicks so far, up to KNOWN; whether this is an outage


def no_silence() -> Silence:
    """Before the first click."""
    return Silence(np.zeros(5), np.zeros(3, np.int64))


@inlined
def is_outage(silence):
    """Whether the silence since the last click is an outage."""
    if silence.marks[COUNTED] < KNOWN:
        return False
    due = silence.sums[SINCE] * silence.sums[CLICKS] / max(silence.sums[RIPE], 1.0)
    return due > DUE and silence.sums[SINCE] > WIDER * silence.sums[WIDEST]


@inlined
def hear_click(silence, of_impression):
    """A click has come, of an impression that is under way or of none: it ends a silence. MODIFIES: silence."""
    sums = silence.sums
    gap = sums[SINCE]
    sums[SINCE] = 0.0
    silence.marks[SILENT] = 0
    if silence.marks[COUNTED] >= KNOWN:
        # What an outage leaves of the memory is as much as the longest silence that is none.
        longest = DUE * max(sums[RIPE], 1.0) / max(sums[CLICKS], 1.0)
        sums[WIDEST] = max(sums[WIDEST] * (1.0 - 1.0 / WIDEST_MEMORY), min(gap, longest + WIDER * sums[WIDEST]))
        gap = min(gap, longest)
    fade = np.exp(-gap / max(MEMORY, CLICKS_IN_MEMORY * sums[RIPE] / max(sums[CLICKS], 1.0)))
    sums[RIPE] = sums[RIPE] * fade + gap
    sums[CLICKS] *= fade
    if of_impression:
        count_heard(silence)


@inlined
def count_heard(silence):
    """Count a click of an impression; those before the first is ripe would be too many for it. MODIFIES: silence."""
    if silence.marks[NEXT] > 0:
        silence.sums[CLICKS] += 1.0
        silence.marks[COUNTED] = min(silence.marks[COUNTED] + 1, KNOWN)
