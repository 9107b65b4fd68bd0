"""The rules that join events, one event at a time; `click_join` says what they are for.

`waiting` is the ring of impressions, `early` the ring of clicks whose impression has not come. The rules write the rows to learn
into `numbers` and `roles`; `size` is how many there are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.sampling import times_kept
from pbodl.streaming.events import CLICK, IMPRESSION
from pbodl.streaming.join.id_ring import DONE, enter, find, leave, retire

# The state of an impression.
WAITING, HELD, CLICKED, NEGATIVE, UNSAMPLED = range(5)
# What to learn from a row.
NO, YES, TAKE_BACK = range(3)
COUNTERS = (
    "impressions", "clicks", "joined", "positives", "negatives", "unsampled", "corrected", "late", "duplicate_impressions",
    "duplicate_clicks", "orphan_clicks", "hurried", "forgotten", "strays",
)  # fmt: skip
(
    IMPRESSIONS, CLICKS, JOINED_ROWS, POSITIVES, NEGATIVES, UNSAMPLEDS, CORRECTED, LATE, DOUBLE_IMPRESSIONS, DOUBLE_CLICKS, ORPHANS,
    HURRIED, FORGOTTEN, STRAYS,
) = range(len(COUNTERS))  # fmt: skip
BELIEVED = 10  # consecutive events that must leap ahead of the watermark before the leap is believed
SEARCH = 8  # impressions to inspect for each one to settle beside a click; where most are settled, the few left may wait


class Rules(NamedTuple):
    """Constants of a stream."""

    window: float
    late: float
    leap: float
    seed: np.uint64
    rate: float
    sets: int  # of workers, each with its own sample of the negatives
    in_step: bool  # non-clicks are settled with clicks of their age, and not only at the window's end


class Clock(NamedTuple):
    times: NDArray[np.float64]  # watermark, start of the stream
    known: NDArray[np.float64]  # clicks and non-clicks of the history; non-clicks still due to clicks that came
    flags: NDArray[np.int64]  # whether it has started; whether clicks are held at first; events in a row that leapt ahead


@jit
def settle(waiting, rules, number, counters, numbers, roles, size):
    """Decide that a waiting impression was not clicked. Returns `size`. MODIFIES: all arrays."""
    place = number % len(waiting.ids)
    if times_kept(np.uint64(number), rules.seed, rules.rate, rules.sets):
        waiting.status[place] = NEGATIVE
        counters[NEGATIVES] += 1
        numbers[size], roles[size] = number, NO
        return size + 1
    waiting.status[place] = UNSAMPLED
    counters[UNSAMPLEDS] += 1
    return size


@jit
def settle_beside(waiting, clock, rules, number, counters, numbers, roles, size):
    """Settle waiting impressions beside one that was clicked, as many as there are to a click. Returns `size`. MODIFIES: arrays."""
    others = counters[NEGATIVES] + counters[UNSAMPLEDS] - counters[CORRECTED] + clock.known[1]
    # Half a click more: that many of the settled ones will still be clicked, and be taken back.
    to_a_click = others / max(counters[POSITIVES] + clock.known[0], 1.0) + 0.5
    due = clock.known[2] + to_a_click
    for step in range(1, np.int64(SEARCH * due) + 2):
        if due < 1.0 or (number - step < waiting.marks[1] and number + step >= waiting.marks[2]):
            break
        for beside in (number - step, number + step):
            here = waiting.marks[1] <= beside < waiting.marks[2]
            if due >= 1.0 and here and waiting.status[beside % len(waiting.ids)] == WAITING:
                size = settle(waiting, rules, beside, counters, numbers, roles, size)
                due -= 1.0
    clock.known[2] = due % 1.0
    return size


@jit
def decide(waiting, rules, counters, numbers, roles, size):
    """Settle the first undecided impression: negative, unless its click was held. Returns `size`. MODIFIES: all arrays."""
    number = waiting.marks[1]
    place = number % len(waiting.ids)
    if waiting.status[place] == HELD:
        waiting.status[place] = CLICKED
        counters[POSITIVES] += 1
        numbers[size], roles[size] = number, YES
        size += 1
    elif waiting.status[place] == WAITING:
        size = settle(waiting, rules, number, counters, numbers, roles, size)
    waiting.marks[1] += 1
    return size


@jit
def pass_time(waiting, early, rules, now, counters, numbers, roles, size):
    """Settle and forget what the watermark `now` has left behind. Returns `size`. MODIFIES: all arrays."""
    capacity = len(waiting.ids)
    while waiting.marks[1] < waiting.marks[2]:
        place = waiting.marks[1] % capacity
        if waiting.status[place] in (WAITING, HELD) and waiting.deadlines[place] >= now:
            break
        size = decide(waiting, rules, counters, numbers, roles, size)
    while waiting.marks[0] < waiting.marks[1]:
        place = waiting.marks[0] % capacity
        if waiting.status[place] != DONE and waiting.deadlines[place] + rules.late >= now:
            break
        retire(waiting)
    while early.marks[0] < early.marks[2]:
        place = early.marks[0] % len(early.ids)
        if early.status[place] != DONE:
            if early.deadlines[place] >= now:
                break
            counters[ORPHANS] += 1
        retire(early)
    return size


@jit
def make_room(waiting, rules, counters, numbers, roles, size):
    """Settle or forget the oldest impression if there is no room for another. Returns `size`. MODIFIES: all arrays."""
    if waiting.marks[2] - waiting.marks[0] == len(waiting.ids):
        status = waiting.status[waiting.marks[0] % len(waiting.ids)]
        counters[HURRIED] += status in (WAITING, HELD)
        counters[FORGOTTEN] += status in (NEGATIVE, UNSAMPLED)
        if waiting.marks[0] == waiting.marks[1]:
            size = decide(waiting, rules, counters, numbers, roles, size)
        retire(waiting)
    return size


@jit
def add_impression(waiting, early, clock, rules, now, hold, key, counters, numbers, roles, size):
    """Let an impression wait, unless it came before, or its click did. Returns `size`. MODIFIES: all arrays."""
    number = waiting.marks[2]
    place = number % len(waiting.ids)
    waiting.marks[2] += 1
    waiting.ids[place], waiting.deadlines[place], waiting.status[place] = key, now + rules.window, DONE
    if find(waiting, key) >= 0:
        counters[DOUBLE_IMPRESSIONS] += 1
        return size
    waiting.status[place] = WAITING
    enter(waiting, number)
    click = find(early, key)
    if click >= 0:
        early.status[(early.slots[click] - 1) % len(early.ids)] = DONE
        leave(early, click)
        size = add_click(waiting, early, clock, rules, now, hold, key, counters, numbers, roles, size)
    return size


@jit
def add_click(waiting, early, clock, rules, now, hold, key, counters, numbers, roles, size):
    """Give an impression its click, or let the click wait for it. Returns `size`. MODIFIES: all arrays."""
    slot = find(waiting, key)
    if slot < 0:
        if find(early, key) >= 0:
            counters[DOUBLE_CLICKS] += 1
            return size
        if early.marks[2] - early.marks[0] == len(early.ids):
            counters[ORPHANS] += early.status[early.marks[0] % len(early.ids)] != DONE
            retire(early)
        place = early.marks[2] % len(early.ids)
        early.ids[place], early.deadlines[place], early.status[place] = key, now + rules.window, WAITING
        enter(early, early.marks[2])
        early.marks[2] += 1
        return size
    number = waiting.slots[slot] - 1
    place = number % len(waiting.ids)
    status = waiting.status[place]
    if status in (HELD, CLICKED):
        counters[DOUBLE_CLICKS] += 1
        return size
    if status == WAITING and hold:
        waiting.status[place] = HELD
        return size
    if status == NEGATIVE:
        numbers[size], roles[size] = number, TAKE_BACK
        size += 1
    is_late = waiting.deadlines[place] < now
    counters[CORRECTED] += status != WAITING
    counters[LATE] += is_late
    counters[POSITIVES] += 1
    waiting.status[place] = CLICKED
    numbers[size], roles[size] = number, YES
    size += 1
    if rules.in_step and not is_late:
        size = settle_beside(waiting, clock, rules, number, counters, numbers, roles, size)
    return size


@jit
def find_strays(times, started, watermark, leapt, leap, strays):
    """Mark the events that `join_events` will drop as strays. Returns the first that it will believe, though it leaps; or -1.

    MODIFIES: strays.
    """
    believed = -1
    for event in range(len(times)):
        ahead = started and times[event] > watermark + leap
        strays[event] = ahead and leapt < BELIEVED - 1
        if strays[event]:
            leapt += 1
            continue
        if ahead and believed < 0:
            believed = event
        watermark = max(watermark, times[event]) if started else times[event]
        started, leapt = True, 0
    return believed


@jit
def join_events(kinds, ids, times, labels, waiting, early, clock, rules, counters, numbers, roles):
    """Join events; returns how many rows were written into `numbers` and `roles`. MODIFIES: all arrays but those of the events."""
    size = row = 0
    for event in range(len(kinds)):
        kind, time = kinds[event], times[event]
        if clock.flags[0] and time > clock.times[0] + rules.leap and clock.flags[2] < BELIEVED - 1:
            clock.flags[2] += 1
            counters[STRAYS] += 1
            if kind != CLICK:
                size = make_room(waiting, rules, counters, numbers, roles, size)
                waiting.status[waiting.marks[2] % len(waiting.ids)] = DONE
                waiting.marks[2] += 1
                row += 1
            continue
        clock.flags[2] = 0
        if not clock.flags[0]:
            clock.flags[0] = 1
            clock.times[0] = clock.times[1] = time
        now = max(clock.times[0], time)
        clock.times[0] = now
        hold = clock.flags[1] and now <= clock.times[1] + rules.window
        size = pass_time(waiting, early, rules, now, counters, numbers, roles, size)
        if kind != CLICK:
            size = make_room(waiting, rules, counters, numbers, roles, size)
        if kind == IMPRESSION:
            counters[IMPRESSIONS] += 1
            size = add_impression(waiting, early, clock, rules, now, hold, ids[event], counters, numbers, roles, size)
            row += 1
        elif kind == CLICK:
            counters[CLICKS] += 1
            size = add_click(waiting, early, clock, rules, now, hold, ids[event], counters, numbers, roles, size)
        else:
            number = waiting.marks[2]
            waiting.status[number % len(waiting.ids)] = DONE
            waiting.marks[2] += 1
            counters[JOINED_ROWS] += 1
            if labels[row] > 0 or times_kept(np.uint64(number), rules.seed, rules.rate, rules.sets):
                counters[POSITIVES if labels[row] > 0 else NEGATIVES] += 1
                numbers[size], roles[size] = number, YES if labels[row] > 0 else NO
                size += 1
            else:
                counters[UNSAMPLEDS] += 1
            row += 1
    return size
