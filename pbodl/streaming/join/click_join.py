"""Impressions and their clicks brought together: which rows to learn, and when, as a function of the events' order alone.

An impression waits for its click for a *window*. A click inside the window makes the impression positive at once; the end of the
window makes it negative. A click after that is *late*: its impression was learned as a negative. The negative is then learned once
more to the power -1, which divides its message out again, and the positive after it (docs/lab/online.md has the derivation). Where
negative sampling left the negative out, there is nothing to divide out.

If clicks were learned at once and non-clicks a window later, the model would learn that anything new, an ad or an hour, is always
clicked. So non-clicks go *in step*: each click settles waiting impressions beside it, as many as there are to a click. At any age
of impressions, the same share of clicks and of non-clicks is then learned. An impression that was settled and is clicked after all
is corrected like one with a late click.

Time is the time of the events. The *watermark* is the latest time so far; the window of an impression ends when the watermark has
moved on by the window since it came. Neither the size of the reads nor the wall clock changes the outcome: a replay gives the same
rows.

Before the first window of a stream has passed there are no negatives, and a model that learned only clicks would expect every ad to
succeed. Until then, clicks wait with their impressions.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import wrapping
from pbodl.data.sampling import ONE_SET, NegativeSets
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.streaming.events import Events
from pbodl.streaming.join.id_ring import DONE, Ring, empty_ring, enter_all
from pbodl.streaming.join.join_rules import (
    COUNTERS,
    HELD,
    STRAYS,
    TAKE_BACK,
    WAITING,
    YES,
    Clock,
    Rules,
    decide,
    find_strays,
    join_events,
)
from pbodl.streaming.join.waiting_rows import WaitingRows


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
    in_step   settle non-clicks in step with clicks, not only at their window's end
    sets      sets of workers, each with its own sample of the negatives
    """

    def __init__(
        self, schema: Schema, window: float = 600.0, late: float = 3600.0, capacity: int = 1_000_000, rate: float = 1.0,
        seed: int = 0, leap: float = 86400.0, in_step: bool = False, sets: NegativeSets = ONE_SET,
    ) -> None:  # fmt: skip
        for name, value, least in (("window", window, 0.0), ("late", late, 0.0), ("join capacity", capacity, 1)):
            if not value >= least:
                raise InputError(f"the {name} is {value}; it must be at least {least:g}")
        self.rules = Rules(float(window), float(late), float(leap), np.uint64(seed), float(rate), sets.sets, in_step)
        self._sets = sets
        self.rows = WaitingRows(schema)
        self.counters = np.zeros(len(COUNTERS), np.int64)
        self._capacity = capacity
        self._waiting, self._early = empty_ring(capacity), empty_ring(max(capacity // 16, 16))
        self._clock = Clock(np.zeros(2), np.zeros(3), np.array([0, 1, 0]))

    def add(self, events: Events) -> Joined:
        """Add events in their order; returns the rows to learn now."""
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

    def strays(self, times: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
        """Numbers of the events that `add` would drop as strays, and of the first leap that it would believe (-1: none)."""
        started, leapt = bool(self._clock.flags[0]), int(self._clock.flags[2])
        if not len(times) or (started and times.max() <= self._clock.times[0] + self.rules.leap):
            return np.zeros(0, np.int64), -1
        marks = np.zeros(len(times), bool)
        believed = find_strays(times, started, float(self._clock.times[0]), leapt, self.rules.leap, marks)
        return np.flatnonzero(marks), int(believed)

    @property
    def stray_count(self) -> int:
        """Events dropped so far because they were too far ahead."""
        return int(self.counters[STRAYS])

    def close_windows(self) -> Joined:
        """End all windows, at the end of a stream; returns the rows that were waiting."""
        marks = self._waiting.marks
        room = int(marks[2] - marks[1])
        numbers, roles, size = np.empty(room, np.int64), np.empty(room, np.int8), 0
        with wrapping():
            while marks[1] < marks[2]:
                size = decide(self._waiting, self.rules, self.counters, numbers, roles, size)
        return self._put_out(numbers[:size], roles[:size])

    def skip_holding(self, clicks: float = 0.0, others: float = 0.0) -> None:
        """The model already knows so many clicks and non-clicks, so that clicks need not wait for the first window to pass."""
        self._clock.flags[1] = 0
        self._clock.known[:2] = clicks, others

    def _put_out(self, numbers: NDArray[np.int64], roles: NDArray[np.int8]) -> Joined:
        batch = self.rows.take(numbers)
        self.rows.drop_before(int(self._waiting.marks[0]))
        sign = np.where(roles == TAKE_BACK, np.float32(-1), np.float32(1))
        clicks = (roles == YES).astype(np.float32)
        batch = batch._replace(clicks=clicks, weights=batch.weights * sign)
        if self._sets.sets > 1:
            powers = self._sets.powers(clicks, numbers.astype(np.uint64), int(self.rules.seed), self.rules.rate)
            batch = batch._replace(weights=np.multiply(batch.weights, powers))
        return Joined(batch, roles, np.where(roles == YES, 1.0, sign / self._sets.share(self.rules.rate)))

    @property
    def watermark(self) -> float:
        """The latest time of an event; NaN before the first."""
        return float(self._clock.times[0]) if self._clock.flags[0] else float("nan")

    def metrics(self) -> dict[str, int]:
        """The counters, how many impressions wait for their click, and how many are remembered."""
        counters = dict(zip(COUNTERS, self.counters.tolist(), strict=True))
        remembered = int(self._waiting.marks[2] - self._waiting.marks[0])
        return counters | {"waiting": self._unsettled(), "remembered": remembered}

    def check_ledger(self) -> None:
        """Every impression is settled once, or waits: two ways to count must agree."""
        status = self._entries(self._waiting)["status"]
        waiting = int(((status == WAITING) | (status == HELD)).sum())
        if waiting != self._unsettled():
            raise RuntimeError(f"{waiting} impressions wait, but by the counters {self._unsettled()} should: {self.metrics()}")

    def _unsettled(self) -> int:
        count = dict(zip(COUNTERS, self.counters.tolist(), strict=True))
        # A corrected one was settled twice.
        settled = count["positives"] + count["negatives"] + count["unsampled"] - count["joined"] - count["corrected"]
        return count["impressions"] - count["duplicate_impressions"] - settled

    def state(self) -> dict[str, NDArray]:
        """What it needs to continue, as arrays."""
        arrays = self.rows.state() | {"counters": self.counters.copy(), "times": self._clock.times.copy()}
        arrays |= {"flags": self._clock.flags.copy(), "known": self._clock.known.copy()}
        for name, ring in (("waiting", self._waiting), ("early", self._early)):
            arrays |= {f"{name}.{key}": array for key, array in self._entries(ring).items()}
            arrays[f"{name}.marks"] = ring.marks.copy()
        return arrays

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Continue from a `state()`."""
        self.rows.load_state(state)
        self.counters[:] = state["counters"]
        self._clock.times[:], self._clock.flags[:], self._clock.known[:] = state["times"], state["flags"], state["known"]
        for name, ring in (("waiting", self._waiting), ("early", self._early)):
            ring.marks[:] = state[f"{name}.marks"]
            numbers = np.arange(ring.marks[0], ring.marks[2])
            if len(numbers) > len(ring.ids):
                raise InputError(f"{len(numbers):,} impressions wait, and the join capacity is {self._capacity:,}; raise it")
            for key in ("ids", "deadlines", "status"):
                getattr(ring, key)[numbers % len(ring.ids)] = state[f"{name}.{key}"]
            with wrapping():
                enter_all(ring, numbers[np.asarray(state[f"{name}.status"]) != DONE])

    def _entries(self, ring: Ring) -> dict[str, NDArray]:
        places = np.arange(ring.marks[0], ring.marks[2]) % len(ring.ids)
        return {key: getattr(ring, key)[places] for key in ("ids", "deadlines", "status")}
