"""The rules that join events, one event at a time; `click_join` says what they are for.

`waiting` is the ring of impressions, `early` the ring of clicks whose impression has not come. The rules write operations into
`out`: what to learn, in order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, kernel
from pbodl.data.sampling import is_kept, times_kept
from pbodl.streaming.events import CLICK, IMPRESSION
from pbodl.streaming.join.delays import TARGETS, choose_ages_when_due, count_click, follow
from pbodl.streaming.join.id_ring import DONE, enter, find, leave, retire
from pbodl.streaming.join.silence import AGE, AT_ONCE, NEXT, SILENT, SINCE, count_heard, hear_click, is_outage
from pbodl.streaming.join.stream_clock import AGREE, AHEAD, LEAP, STRAY, advance

# The state of an impression: not judged yet; judged as a non-click so far; its click is learned; given up.
UNJUDGED, OPEN, LEARNED, GIVEN_UP = range(4)
# What an operation is: a prediction alone; the first stage of an impression; a later one; a row that came joined.
PREDICT, FIRST, LATER, JOINED = range(4)
OLDEST, WITH_ROW, NEXT_NUMBER = range(3)  # marks of the ring of impressions
COUNTERS = (
    "impressions", "clicks", "joined", "judged", "positives", "negatives", "unsampled", "duplicate_impressions",
    "duplicate_clicks", "orphan_clicks", "late", "given_up", "unjudged", "crowded_out", "censored_clicks", "outages", "strays",
    "leaps", "ahead",
)  # fmt: skip
(
    IMPRESSIONS, CLICKS, JOINED_ROWS, JUDGED, POSITIVES, NEGATIVES, UNSAMPLED, DOUBLE_IMPRESSIONS, DOUBLE_CLICKS, ORPHANS, LATE,
    GIVEN_UP_ONES, NEVER_JUDGED, CROWDED_OUT, CENSORED, OUTAGES, STRAYS, LEAPS, AHEAD_ONES,
) = range(len(COUNTERS))  # fmt: skip
NEWS = 0.01  # a later non-click is judged if at least this share of the clicks has come since
LATER_KEPT = 0.5  # of the later non-clicks are learned, with the power 2: they say little
STAGE_SEED = np.uint64(0x5354414745)
MANY_EDGES = np.uint64(64)  # more than there are edges
LATER_STAGE = 1e-30  # in place of an F of 0: models count an impression by the stage that begins with 0


class Rules(NamedTuple):
    """Constants of a stream."""

    window: float
    horizon: float
    skew: float
    seed: np.uint64
    rate: float
    sets: int  # of workers, each with its own sample of the negatives
    rows: int  # impressions whose row is kept


class Stages(NamedTuple):
    """How far impressions are, by their slot in the ring."""

    clicked: NDArray[np.float64]  # when the click came; infinity before
    came: NDArray[np.float32]  # F at the last age judged; 0 before the first
    passed: NDArray[np.int64]  # by edge of the delays: number of the next impression to pass it


class Out(NamedTuple):
    """What one call puts out. `sizes`: events and rows read, operations, final labels."""

    numbers: NDArray[np.int64]
    roles: NDArray[np.int8]
    clicks: NDArray[np.float32]
    before: NDArray[np.float32]
    by: NDArray[np.float32]
    came: NDArray[np.float32]  # F at the age of the operation; `by` is another where non-clicks are sampled
    powers: NDArray[np.float32]
    latest: NDArray[np.float64]  # the row's own time is believed up to this
    final_numbers: NDArray[np.int64]
    final_clicks: NDArray[np.float32]
    final_after: NDArray[np.int64]  # operations before it
    sizes: NDArray[np.int64]


@inlined
def put_out(out, latest, number, role, click, before, by, came, power):
    """Write an operation. MODIFIES: out."""
    size = out.sizes[2]
    out.latest[size] = latest
    out.numbers[size], out.roles[size], out.clicks[size] = number, role, click
    out.before[size], out.by[size], out.came[size], out.powers[size] = before, by, came, power
    out.sizes[2] += 1


@inlined
def judge(waiting, stages, delays, rules, number, edge, counters, out):
    """Judge an impression at an age: whether its click came by then. MODIFIES: all arrays.

    With all non-clicks, a click is p / (1 - F(a) p) and a non-click (1 - F(b) p) / (1 - F(a) p). With a share w of them, a click
    is p, and a non-click (1 - F'' p) to the power (F(b) - F(a)) / F'', with 1 - F'' = w (1 - F(b)): at the truth, both slopes
    cancel at each age.
    """
    place = number & (len(waiting.ids) - 1)
    clicked = stages.clicked[place] <= waiting.times[place] + delays.edges[edge]
    before, by = np.float64(stages.came[place]), delays.came[edge]
    first, latest = waiting.status[place] == UNJUDGED, waiting.times[place] + rules.skew
    role, start = (FIRST, 0.0) if first else (LATER, LATER_STAGE)
    if clicked:
        counters[JUDGED] += first
        counters[POSITIVES] += 1
        waiting.status[place] = LEARNED
        put_out(out, latest, number, role, 1.0, before if rules.rate >= 1.0 else start, 1.0, by, 1.0)
        return
    if not first and by - before < NEWS:
        return
    stages.came[place] = by
    waiting.status[place] = OPEN
    counters[JUDGED] += first
    if rules.rate < 1.0 and times_kept(np.uint64(number), rules.seed, rules.rate, rules.sets) == 0:
        counters[UNSAMPLED] += first
        return
    counters[NEGATIVES] += first
    power = 1.0
    if not first:
        if not is_kept(np.uint64(number) * MANY_EDGES + np.uint64(edge), rules.seed ^ STAGE_SEED, LATER_KEPT):
            return
        power /= LATER_KEPT
    if rules.rate < 1.0:
        by_kept = 1.0 - rules.rate * (1.0 - by)
        put_out(out, latest, number, role, 0.0, start, by_kept, by, power * (by - before) / by_kept)
    else:
        put_out(out, latest, number, role, 0.0, before, by, by, power)


@inlined
def pass_ages(waiting, stages, delays, rules, until, counters, out):
    """Let impressions pass all ages that they have before `until`. MODIFIES: all arrays."""
    mask, last = len(waiting.ids) - 1, len(delays.edges) - 1
    follow(delays)
    choose_ages_when_due(delays)
    for edge in range(last + 1):
        age = delays.edges[edge]
        number = max(stages.passed[edge], waiting.marks[OLDEST])
        while number < waiting.marks[NEXT_NUMBER] and waiting.times[number & mask] + age < until:
            place = number & mask
            if waiting.status[place] <= LEARNED:
                delay = stages.clicked[place] - waiting.times[place]
                if delay <= age:
                    count_click(delays, edge, delay)
                if number >= waiting.marks[WITH_ROW]:
                    if delays.judged[edge] and waiting.status[place] != LEARNED:
                        judge(waiting, stages, delays, rules, number, edge, counters, out)
                    if edge == last:
                        size = out.sizes[3]
                        out.final_numbers[size], out.final_after[size] = number, out.sizes[2]
                        out.final_clicks[size] = 1.0 if delay <= age else 0.0
                        out.sizes[3] += 1
            number += 1
        stages.passed[edge] = number


@inlined
def forget(waiting, early, stages, now, counters):
    """Forget impressions that have passed all ages, and clicks that have waited for a window. MODIFIES: rings, counters."""
    while waiting.marks[OLDEST] < waiting.marks[NEXT_NUMBER]:
        done = waiting.status[waiting.marks[OLDEST] & (len(waiting.ids) - 1)] == DONE
        if not done and waiting.marks[OLDEST] >= stages.passed[-1]:
            break
        retire(waiting)
    waiting.marks[WITH_ROW] = max(waiting.marks[WITH_ROW], waiting.marks[OLDEST])
    while early.marks[0] < early.marks[2]:
        place = early.marks[0] & (len(early.ids) - 1)
        if early.status[place] != DONE:
            if early.times[place] >= now:
                break
            counters[ORPHANS] += 1
        retire(early)


@inlined
def ripen(waiting, delays, silence, now):
    """Count the impressions that should have brought clicks by now. MODIFIES: silence."""
    first = 0
    while not delays.judged[first]:
        first += 1
    age, number = delays.edges[first], max(silence.marks[NEXT], waiting.marks[OLDEST])
    # Where the age has just been chosen anew, those that are ripe at once bring no clicks at once.
    left, silence.sums[AGE] = AT_ONCE if age == silence.sums[AGE] else 0, age
    while number < waiting.marks[NEXT_NUMBER] and waiting.times[number & (len(waiting.ids) - 1)] + age < now:
        if left > 0 and waiting.status[number & (len(waiting.ids) - 1)] != DONE:
            silence.sums[SINCE] += 1.0
            left -= 1
        number += 1
    silence.marks[NEXT] = number


@kernel
def give_up_all(waiting, counters):
    """An outage has ended: what is under way is not judged any more. MODIFIES: waiting, counters."""
    for number in range(waiting.marks[OLDEST], waiting.marks[NEXT_NUMBER]):
        place = number & (len(waiting.ids) - 1)
        status = waiting.status[place]
        if status <= LEARNED:
            if number >= waiting.marks[WITH_ROW]:
                counters[GIVEN_UP_ONES] += status != LEARNED
                counters[NEVER_JUDGED] += status == UNJUDGED
            waiting.status[place] = GIVEN_UP


@inlined
def make_room(waiting, rules, counters):
    """Let go of the oldest row, and of the oldest impression, if there is no room for another. MODIFIES: waiting, counters."""
    if waiting.marks[NEXT_NUMBER] - waiting.marks[WITH_ROW] == rules.rows:
        status = waiting.status[waiting.marks[WITH_ROW] & (len(waiting.ids) - 1)]
        counters[CROWDED_OUT] += status in (UNJUDGED, OPEN)
        counters[NEVER_JUDGED] += status == UNJUDGED
        waiting.marks[WITH_ROW] += 1
    if waiting.marks[NEXT_NUMBER] - waiting.marks[OLDEST] == len(waiting.ids):
        retire(waiting)


@inlined
def add_entry(waiting, stages, key, now, status):
    """The next entry of the ring; returns its number. MODIFIES: waiting, stages."""
    number = waiting.marks[NEXT_NUMBER]
    place = number & (len(waiting.ids) - 1)
    waiting.ids[place], waiting.times[place], waiting.status[place] = key, now, status
    stages.clicked[place], stages.came[place] = np.inf, 0.0
    waiting.marks[NEXT_NUMBER] += 1
    return number


@inlined
def add_impression(waiting, early, stages, delays, silence, rules, now, key, counters, out):
    """Predict an impression, and let it wait, unless it came before. MODIFIES: all arrays."""
    if find(waiting, key) >= 0:
        counters[DOUBLE_IMPRESSIONS] += 1
        add_entry(waiting, stages, key, now, DONE)
        return
    number = add_entry(waiting, stages, key, now, UNJUDGED)
    enter(waiting, number)
    put_out(out, now + rules.skew, number, PREDICT, 0.0, 0.0, 1.0, 0.0, 0.0)
    click = find(early, key)
    if click >= 0:
        early.status[(early.slots[click] - 1) & (len(early.ids) - 1)] = DONE
        leave(early, click)
        stages.clicked[number & (len(waiting.ids) - 1)] = now
        delays.choice[0] += 1
        count_heard(silence)


@inlined
def add_click(waiting, early, stages, delays, rules, now, key, counters):
    """Give an impression its click, or let the click wait for it. Returns whether it has one. MODIFIES: all arrays."""
    slot = find(waiting, key)
    if slot < 0:
        if find(early, key) >= 0:
            counters[DOUBLE_CLICKS] += 1
            return False
        if early.marks[2] - early.marks[0] == len(early.ids):
            counters[ORPHANS] += early.status[early.marks[0] & (len(early.ids) - 1)] != DONE
            retire(early)
        place = early.marks[2] & (len(early.ids) - 1)
        early.ids[place], early.times[place], early.status[place] = key, now + rules.window, UNJUDGED
        enter(early, early.marks[2])
        early.marks[2] += 1
        return False
    place = (waiting.slots[slot] - 1) & (len(waiting.ids) - 1)
    if waiting.status[place] == GIVEN_UP:
        counters[CENSORED] += 1
    elif stages.clicked[place] < np.inf:
        counters[DOUBLE_CLICKS] += 1
    elif now > waiting.times[place] + rules.horizon:
        counters[LATE] += 1
    else:
        stages.clicked[place] = now
        delays.choice[0] += 1
        return True
    return False


@inlined
def add_joined(waiting, stages, rules, now, label, counters, out):
    """Learn a row that came joined. MODIFIES: waiting, stages, counters, out."""
    number = add_entry(waiting, stages, np.uint64(0), now, DONE)
    counters[JOINED_ROWS] += 1
    if label > 0 or rules.rate >= 1.0 or times_kept(np.uint64(number), rules.seed, rules.rate, rules.sets):
        counters[POSITIVES if label > 0 else NEGATIVES] += 1
        put_out(out, now + rules.skew, number, JOINED, 1.0 if label > 0 else 0.0, 0.0, 1.0, 1.0, 1.0)
    else:
        counters[UNSAMPLED] += 1


@kernel
def go_back(waiting, stages, clock):
    """Before AGREE events have come, the clock may go back; no impression is then from a later time. MODIFIES: waiting, clock."""
    now = clock.times[0]
    clock.times[1] = min(clock.times[1], now)
    for number in range(waiting.marks[OLDEST], waiting.marks[NEXT_NUMBER]):
        place = number & (len(waiting.ids) - 1)
        waiting.times[place] = min(waiting.times[place], now)
        if stages.clicked[place] < np.inf:
            stages.clicked[place] = min(stages.clicked[place], now)


@kernel
def room_for(waiting, delays, events):
    """Operations that so many events and the impressions under way may put out until a click that passes them all."""
    ages = 0
    for judged in delays.judged:
        ages += judged
    ages = max(ages, len(TARGETS))
    return events + (waiting.marks[NEXT_NUMBER] - waiting.marks[OLDEST]) * ages


@kernel
def join_events(kinds, ids, times, labels, waiting, early, stages, delays, silence, clock, rules, counters, out):
    """Join events from number out.sizes[0] on, until the last, or until `out` might be too small. MODIFIES: all but the events."""
    while out.sizes[0] < len(kinds):
        event = out.sizes[0]
        kind, time = kinds[event], times[event]
        if kind == CLICK and out.sizes[2] + room_for(waiting, delays, len(kinds) - event) > len(out.numbers):
            return
        out.sizes[0] += 1
        heard = advance(clock, time, rules.skew)
        now = clock.times[0]
        if kind != CLICK:
            make_room(waiting, rules, counters)
        if heard == STRAY:
            counters[STRAYS] += 1
            if kind != CLICK:
                add_entry(waiting, stages, np.uint64(0), now, DONE)
                out.sizes[1] += 1
            continue
        if heard == AHEAD:
            counters[AHEAD_ONES] += 1
            if clock.counts[1] == 1:
                clock.counts[2] = waiting.marks[NEXT_NUMBER]
        elif heard == LEAP:  # what came since the stream went on is from now
            counters[LEAPS] += 1
            for number in range(max(clock.counts[2], waiting.marks[OLDEST]), waiting.marks[NEXT_NUMBER]):
                waiting.times[number & (len(waiting.ids) - 1)] = now
                if stages.clicked[number & (len(waiting.ids) - 1)] < np.inf:
                    stages.clicked[number & (len(waiting.ids) - 1)] = now
        if clock.counts[0] <= AGREE:
            go_back(waiting, stages, clock)
        ripen(waiting, delays, silence, now)
        if silence.marks[SILENT] == 0 and is_outage(silence):
            silence.marks[SILENT] = 1
            counters[OUTAGES] += 1
        if kind == IMPRESSION:
            counters[IMPRESSIONS] += 1
            add_impression(waiting, early, stages, delays, silence, rules, now, ids[event], counters, out)
            out.sizes[1] += 1
        elif kind == CLICK:
            counters[CLICKS] += 1
            if silence.marks[SILENT]:
                give_up_all(waiting, counters)
            clock.times[1] = now
            pass_ages(waiting, stages, delays, rules, now, counters, out)
            hear_click(silence, add_click(waiting, early, stages, delays, rules, now, ids[event], counters))
        else:
            add_joined(waiting, stages, rules, now, labels[out.sizes[1]], counters, out)
            out.sizes[1] += 1
        forget(waiting, early, stages, now, counters)
