"""Impressions and their clicks brought together: which rows to learn, and when, as a function of the events' order alone.

An impression waits for its click for a *window*. A click inside it makes the impression positive at once; the window's end makes it
negative. A click after that is *late*: its impression was learned as negative, so that negative is learned once more to the power
-1, which divides its message out again, and then the positive (docs/online.md has the derivation). So is one whose negative was not
sampled, but for the division.

Time is the events' own. The *watermark* is the latest time so far; an impression's window ends when the watermark has moved on by the
window since it came. So neither the size of the reads nor the wall clock changes what comes out, and a replay gives the same rows.

Before the first window of a stream has passed there are no negatives yet, and a model that learned clicks alone would take every ad
for a success: until then clicks wait with their impressions.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.arrays import Batch
from pbodl.data.hashing import wrapping
from pbodl.data.sampling import is_kept
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.kernels.embedding import mix
from pbodl.streaming.events import CLICK, IMPRESSION, Events
from pbodl.streaming.waiting import WaitingRows

# What an impression has come to.
WAITING, HELD, CLICKED, NEGATIVE, UNSAMPLED, DONE = range(6)
# What is to be learned of a row.
NO, YES, TAKE_BACK = range(3)
COUNTERS = (
    "impressions", "clicks", "joined", "positives", "negatives", "unsampled", "late", "duplicate_impressions", "duplicate_clicks",
    "orphan_clicks", "hurried", "forgotten", "strays",
)  # fmt: skip
(
    IMPRESSIONS, CLICKS, JOINED_ROWS, POSITIVES, NEGATIVES, UNSAMPLEDS, LATE, DOUBLE_IMPRESSIONS, DOUBLE_CLICKS, ORPHANS, HURRIED,
    FORGOTTEN, STRAYS,
) = range(len(COUNTERS))  # fmt: skip
BELIEVED = 10  # events in a row that leap ahead of the watermark before the leap is believed


class Rules(NamedTuple):
    """What does not change while a stream is joined."""

    window: float
    late: float
    leap: float
    seed: np.uint64
    rate: float


class Ring(NamedTuple):
    """Ids in order of arrival, and an index by id; entry n stands at n modulo the capacity."""

    ids: NDArray[np.uint64]
    deadlines: NDArray[np.float64]
    status: NDArray[np.int8]
    slots: NDArray[np.int64]  # open addressing: 1 + the entry's number, 0 for none
    marks: NDArray[np.int64]  # oldest entry, first undecided one, number of the next


class Clock(NamedTuple):
    times: NDArray[np.float64]  # watermark, start of the stream
    flags: NDArray[np.int64]  # whether it has started; whether clicks are held at first; events in a row that leapt ahead


@jit
def find(ring, key):
    """The slot of an id, or -1."""
    mask = len(ring.slots) - 1
    slot = np.int64(mix(key) & np.uint64(mask))
    while ring.slots[slot] != 0:
        if ring.ids[(ring.slots[slot] - 1) % len(ring.ids)] == key:
            return slot
        slot = (slot + 1) & mask
    return -1


@jit
def enter(ring, number):
    """Put entry `number` into the index. MODIFIES: ring."""
    mask = len(ring.slots) - 1
    slot = np.int64(mix(ring.ids[number % len(ring.ids)]) & np.uint64(mask))
    while ring.slots[slot] != 0:
        slot = (slot + 1) & mask
    ring.slots[slot] = number + 1


@jit
def enter_all(ring, numbers):
    """Put entries into an empty index. MODIFIES: ring."""
    ring.slots[:] = 0
    for number in numbers:
        enter(ring, number)


@jit
def leave(ring, slot):
    """Take an entry out of the index; those behind it move up, so that none is cut off. MODIFIES: ring."""
    mask = len(ring.slots) - 1
    ring.slots[slot] = 0
    behind = (slot + 1) & mask
    while ring.slots[behind] != 0:
        home = np.int64(mix(ring.ids[(ring.slots[behind] - 1) % len(ring.ids)]) & np.uint64(mask))
        if ((behind - home) & mask) >= ((behind - slot) & mask):
            ring.slots[slot] = ring.slots[behind]
            ring.slots[behind] = 0
            slot = behind
        behind = (behind + 1) & mask


@jit
def decide(waiting, rules, counters, numbers, roles, size):
    """Settle the first undecided impression: negative, unless its click was held; returns the rows put out. MODIFIES: all arrays."""
    number = waiting.marks[1]
    place = number % len(waiting.ids)
    if waiting.status[place] == HELD:
        waiting.status[place] = CLICKED
        counters[POSITIVES] += 1
        numbers[size], roles[size] = number, YES
        size += 1
    elif waiting.status[place] == WAITING:
        if is_kept(np.uint64(number), rules.seed, rules.rate):
            waiting.status[place] = NEGATIVE
            counters[NEGATIVES] += 1
            numbers[size], roles[size] = number, NO
            size += 1
        else:
            waiting.status[place] = UNSAMPLED
            counters[UNSAMPLEDS] += 1
    waiting.marks[1] += 1
    return size


@jit
def retire(ring):
    """Forget the oldest entry. MODIFIES: ring."""
    place = ring.marks[0] % len(ring.ids)
    if ring.status[place] != DONE:
        leave(ring, find(ring, ring.ids[place]))
    ring.marks[0] += 1


@jit
def pass_time(waiting, early, rules, now, counters, numbers, roles, size):
    """Settle and forget what the watermark `now` has left behind; returns the rows put out. MODIFIES: all arrays."""
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
def add_impression(waiting, early, rules, now, hold, key, counters, numbers, roles, size):
    """Let an impression wait, unless it came before, or its click did; returns the rows put out. MODIFIES: all arrays."""
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
        size = add_click(waiting, early, rules, now, hold, key, counters, numbers, roles, size)
    return size


@jit
def add_click(waiting, early, rules, now, hold, key, counters, numbers, roles, size):
    """Give an impression its click, or let the click wait for it; returns the rows put out. MODIFIES: all arrays."""
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
    if status == HELD or status == CLICKED:
        counters[DOUBLE_CLICKS] += 1
        return size
    if status == WAITING and hold:
        waiting.status[place] = HELD
        return size
    if status == NEGATIVE:
        numbers[size], roles[size] = number, TAKE_BACK
        size += 1
    counters[LATE] += status != WAITING
    counters[POSITIVES] += 1
    waiting.status[place] = CLICKED
    numbers[size], roles[size] = number, YES
    return size + 1


@jit
def join_events(kinds, ids, times, labels, waiting, early, clock, rules, counters, numbers, roles):
    """Take events in; returns how many rows were put out into `numbers` and `roles`. MODIFIES: all arrays but the events'."""
    size = row = 0
    for event in range(len(kinds)):
        kind, time = kinds[event], times[event]
        if kind != CLICK and waiting.marks[2] - waiting.marks[0] == len(waiting.ids):
            status = waiting.status[waiting.marks[0] % len(waiting.ids)]
            counters[HURRIED] += status == WAITING or status == HELD
            counters[FORGOTTEN] += status == NEGATIVE or status == UNSAMPLED
            if waiting.marks[0] == waiting.marks[1]:
                size = decide(waiting, rules, counters, numbers, roles, size)
            retire(waiting)
        if clock.flags[0] and time > clock.times[0] + rules.leap and clock.flags[2] < BELIEVED - 1:
            clock.flags[2] += 1
            counters[STRAYS] += 1
            if kind != CLICK:
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
        if kind == IMPRESSION:
            counters[IMPRESSIONS] += 1
            size = add_impression(waiting, early, rules, now, hold, ids[event], counters, numbers, roles, size)
            row += 1
        elif kind == CLICK:
            counters[CLICKS] += 1
            size = add_click(waiting, early, rules, now, hold, ids[event], counters, numbers, roles, size)
        else:
            number = waiting.marks[2]
            waiting.status[number % len(waiting.ids)] = DONE
            waiting.marks[2] += 1
            counters[JOINED_ROWS] += 1
            if labels[row] > 0 or is_kept(np.uint64(number), rules.seed, rules.rate):
                counters[POSITIVES if labels[row] > 0 else NEGATIVES] += 1
                numbers[size], roles[size] = number, YES if labels[row] > 0 else NO
                size += 1
            else:
                counters[UNSAMPLEDS] += 1
            row += 1
    return size


class Joined(NamedTuple):
    """Rows to learn, in this order."""

    batch: Batch  # a negative that is taken back has a weight below zero
    roles: NDArray[np.int8]
    stands_for: NDArray[np.float64]  # how many impressions of the stream each row stands for; below zero where it takes one back

    def __len__(self) -> int:
        return len(self.roles)


class Join:
    """Joins a stream of events.

    window    seconds that an impression waits for its click
    late      seconds after that in which a late click still finds its impression
    capacity  most impressions to remember: the oldest is settled early (`hurried`) or forgotten (`forgotten`) for a new one
    rate      share of negatives to put out
    leap      seconds by which an event may be ahead of all others; further on it is dropped (`strays`), unless ten in a row are
    """

    def __init__(
        self, schema: Schema, window: float = 600.0, late: float = 3600.0, capacity: int = 1_000_000, rate: float = 1.0,
        seed: int = 0, leap: float = 86400.0,
    ) -> None:  # fmt: skip
        for name, value, least in (("window", window, 0.0), ("late", late, 0.0), ("join capacity", capacity, 1)):
            if not value >= least:
                raise InputError(f"the {name} is {value}; it must be at least {least:g}")
        self.rules = Rules(float(window), float(late), float(leap), np.uint64(seed), float(rate))
        self.rows = WaitingRows(schema)
        self.counters = np.zeros(len(COUNTERS), np.int64)
        self._capacity = capacity
        self._waiting, self._early = _ring(capacity), _ring(max(capacity // 16, 16))
        self._clock = Clock(np.zeros(2), np.array([0, 1, 0]))

    def add(self, events: Events) -> Joined:
        """Take events in, in their order; returns what is to be learned now."""
        self.rows.append(events.rows)
        room = int(self._waiting.marks[2] - self._waiting.marks[1]) + 3 * len(events) + 1
        numbers, roles = np.empty(room, np.int64), np.empty(room, np.int8)
        assert events.rows.clicks is not None
        with wrapping():
            size = join_events(
                events.kinds, events.ids, events.times, events.rows.clicks, self._waiting, self._early, self._clock, self.rules,
                self.counters, numbers, roles,
            )  # fmt: skip
        return self._put_out(numbers[:size], roles[:size])

    def close_windows(self) -> Joined:
        """The end of a stream is the end of all windows; returns what was waiting."""
        marks = self._waiting.marks
        room = int(marks[2] - marks[1])
        numbers, roles, size = np.empty(room, np.int64), np.empty(room, np.int8), 0
        with wrapping():
            while marks[1] < marks[2]:
                size = decide(self._waiting, self.rules, self.counters, numbers, roles, size)
        return self._put_out(numbers[:size], roles[:size])

    def skip_holding(self) -> None:
        """The model knows negatives already: clicks need not wait for the first window to pass."""
        self._clock.flags[1] = 0

    def _put_out(self, numbers: NDArray[np.int64], roles: NDArray[np.int8]) -> Joined:
        batch = self.rows.take(numbers)
        self.rows.drop_before(int(self._waiting.marks[0]))
        sign = np.where(roles == TAKE_BACK, np.float32(-1), np.float32(1))
        batch = batch._replace(clicks=(roles == YES).astype(np.float32), weights=batch.weights * sign)
        return Joined(batch, roles, np.where(roles == YES, 1.0, sign / self.rules.rate))

    @property
    def watermark(self) -> float:
        """The latest time of an event; NaN before the first."""
        return float(self._clock.times[0]) if self._clock.flags[0] else float("nan")

    def metrics(self) -> dict[str, int]:
        """Its counters, how many impressions wait for their click, and how many it remembers."""
        counters = dict(zip(COUNTERS, self.counters.tolist(), strict=True))
        remembered = int(self._waiting.marks[2] - self._waiting.marks[0])
        return counters | {"waiting": self._unsettled(), "remembered": remembered}

    def check_ledger(self) -> None:
        """Every impression is settled once, or waits: counted in two ways, they must agree."""
        status = self._entries(self._waiting)["status"]
        waiting = int(((status == WAITING) | (status == HELD)).sum())
        if waiting != self._unsettled():
            raise RuntimeError(f"{waiting} impressions wait, but by the counters {self._unsettled()} should: {self.metrics()}")

    def _unsettled(self) -> int:
        count = dict(zip(COUNTERS, self.counters.tolist(), strict=True))
        # A late one was settled twice.
        settled = count["positives"] + count["negatives"] + count["unsampled"] - count["joined"] - count["late"]
        return count["impressions"] - count["duplicate_impressions"] - settled

    def state(self) -> dict[str, NDArray]:
        """What it needs to go on, as arrays."""
        arrays = self.rows.state() | {"counters": self.counters.copy(), "times": self._clock.times.copy()}
        arrays["flags"] = self._clock.flags.copy()
        for name, ring in (("waiting", self._waiting), ("early", self._early)):
            arrays |= {f"{name}.{key}": array for key, array in self._entries(ring).items()}
            arrays[f"{name}.marks"] = ring.marks.copy()
        return arrays

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Go on from a `state()`."""
        self.rows.load_state(state)
        self.counters[:] = state["counters"]
        self._clock.times[:], self._clock.flags[:] = state["times"], state["flags"]
        for name, ring in (("waiting", self._waiting), ("early", self._early)):
            ring.marks[:] = state[f"{name}.marks"]
            numbers = np.arange(ring.marks[0], ring.marks[2])
            if len(numbers) > len(ring.ids):
                raise InputError(f"{len(numbers):,} impressions are remembered, more than the join capacity of {self._capacity:,}; raise it")
            for key in ("ids", "deadlines", "status"):
                getattr(ring, key)[numbers % len(ring.ids)] = state[f"{name}.{key}"]
            with wrapping():
                enter_all(ring, numbers[np.asarray(state[f"{name}.status"]) != DONE])

    def _entries(self, ring: Ring) -> dict[str, NDArray]:
        places = np.arange(ring.marks[0], ring.marks[2]) % len(ring.ids)
        return {key: getattr(ring, key)[places] for key in ("ids", "deadlines", "status")}


def _ring(capacity: int) -> Ring:
    slots = np.zeros(1 << (2 * capacity - 1).bit_length(), np.int64)
    return Ring(np.zeros(capacity, np.uint64), np.zeros(capacity), np.zeros(capacity, np.int8), slots, np.zeros(3, np.int64))
