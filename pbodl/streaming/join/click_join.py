"""Impressions and their clicks brought together: what to learn, and when, as a function of the events' order alone.

Every impression is predicted when it comes, and then judged at a few fixed *ages*, clicked or not alike, by what is known then.
With F(a) the share of the clicks that have come by age a (`delays`), and p the CTR, an impression that was judged at age a and is
judged at age b has the likelihood

    p / (1 - F(a) p)  if its click came in between,      (1 - F(b) p) / (1 - F(a) p)  if it has not come yet.

The factors of an impression multiply to the likelihood of its whole history, so nothing is ever taken back, and a stream may end at
any moment. No age sees clicks without its non-clicks, so anything new, an ad or an hour, shows its own CTR. Of the later stages of
non-clicks, which say little, a part is learned, with a power.

Time is the time of the events (`stream_clock`); impressions age by the time of the clicks. So nothing is judged while no click
comes. A silence that chance does not explain is an outage (`silence`): what was under way in it is given up at the last age judged.
Neither the size of the reads nor the wall clock changes the outcome: a replay gives the same rows.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import wrapping
from pbodl.data.sampling import ONE_SET, NegativeSets
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.streaming.events import Events
from pbodl.streaming.join.delays import guessed_delays
from pbodl.streaming.join.id_ring import DONE, Ring, empty_ring, enter_all
from pbodl.streaming.join.join_rules import (
    COUNTERS,
    FIRST,
    JOINED,
    STRAYS,
    UNJUDGED,
    Out,
    Rules,
    Stages,
    join_events,
    room_for,
)
from pbodl.streaming.join.silence import SILENT, no_silence
from pbodl.streaming.join.stream_clock import copied, find_strays, new_clock
from pbodl.streaming.join.waiting_rows import WaitingRows

IDS = 65536  # impressions whose delays are counted, at least; their rows are bounded by the capacity


class FinalLabels(NamedTuple):
    """Impressions whose label is known for good, in their order: clicked by the last age, or not."""

    numbers: NDArray[np.int64]
    batch: Batch
    after: NDArray[np.int64]  # how many operations of the same call come before


class Joined(NamedTuple):
    """Operations to learn, in this order."""

    batch: Batch  # with a weight of 0, a prediction alone; `came_before` and `came_by` say which stage
    roles: NDArray[np.int8]
    numbers: NDArray[np.int64]  # of the impressions
    came: NDArray[np.float64]  # F at the age of the stage
    stands_for: NDArray[np.float64]  # how many impressions of the stream each operation stands for

    def __len__(self) -> int:
        return len(self.roles)

    def rows(self, start: int, stop: int) -> "Joined":
        """Some of the operations."""
        return Joined(self.batch.rows(start, stop), *(column[start:stop] for column in self[1:]))  # type: ignore[arg-type]


def first_of(joined: Joined) -> NDArray[np.int64]:
    """The operations that judge an impression for the first time, and the rows that came joined."""
    return np.flatnonzero((joined.roles == FIRST) | (joined.roles == JOINED))


class Join:
    """Joins a stream of events.

    window    seconds that a click usually takes: the first guess at the delays, and how long a click waits for its impression
    late      seconds that it takes at most
    capacity  most impressions to remember: the oldest is given up for a new one (`crowded_out`)
    rate      share of non-clicks to learn
    skew      seconds by which an event may be ahead of the others; further on its time is not believed, unless many in a row are
    ages      seconds at which impressions are judged; none: by the delays
    sets      sets of workers, each with its own sample of the non-clicks
    """

    def __init__(
        self, schema: Schema, window: float = 600.0, late: float = 3600.0, capacity: int = 1_000_000, rate: float = 1.0,
        seed: int = 0, skew: float = 3600.0, ages: tuple[float, ...] = (), sets: NegativeSets = ONE_SET,
    ) -> None:  # fmt: skip
        for name, value in (("--window", window), ("--late", late), ("--skew", skew), ("join capacity", capacity)):
            if not value > 0:
                raise InputError(f"{name} is {value}; it must be above 0")
        horizon = float(max(window, late))
        self.rules = Rules(float(window), horizon, float(skew), np.uint64(seed), float(rate), sets.sets, capacity)
        self._sets = sets
        self.rows = WaitingRows(schema)
        self.counters = np.zeros(len(COUNTERS), np.int64)
        self.delays = guessed_delays(float(window), horizon, ages)
        self._waiting, self._early = empty_ring(max(capacity, IDS)), empty_ring(max(capacity, IDS) // 16)
        entries = len(self._waiting.ids)
        self._stages = Stages(np.full(entries, np.inf), np.zeros(entries, np.float32), np.zeros(len(self.delays.edges), np.int64))
        self._clock, self._silence = new_clock(), no_silence()

    def add(self, events: Events) -> tuple[Joined, FinalLabels]:
        """Add events in their order; returns the operations to learn now, and the labels that are final now."""
        self.rows.append(events.rows)
        assert events.rows.clicks is not None
        parts, done = [], [0, 0]
        with wrapping():
            while True:
                left = len(events) - done[0]
                out = _room(room_for(self._waiting, self.delays, left) + left, int(np.diff(self._waiting.marks[::2])[0]) + left)
                out.sizes[:2] = done
                join_events(
                    events.kinds, events.ids, events.times, events.rows.clicks, self._waiting, self._early, self._stages,
                    self.delays, self._silence, self._clock, self.rules, self.counters, out,
                )  # fmt: skip
                parts.append(out)
                done = out.sizes[:2].tolist()
                if done[0] == len(events):
                    break
        return self._put_out(parts)

    def strays(self, times: NDArray[np.float64]) -> tuple[NDArray[np.int64], int, float]:
        """Numbers of the events that `add` would drop as strays; of the first leap that it would believe (-1: none); its start."""
        marks, before = np.zeros(len(times), bool), copied(self._clock)
        ahead = len(times) and (not self._clock.counts[0] or times.max() > self._clock.times[0] + self.rules.skew)
        believed = int(find_strays(times, copied(self._clock), self.rules.skew, marks)) if ahead else -1
        if believed >= 0:
            find_strays(times[:believed], before, self.rules.skew, np.zeros(believed, bool))
        return np.flatnonzero(marks), believed, float(before.times[0])

    @property
    def stray_count(self) -> int:
        """Events dropped so far because they were too far ahead."""
        return int(self.counters[STRAYS])

    def _put_out(self, parts: list[Out]) -> tuple[Joined, FinalLabels]:
        sizes = [int(part.sizes[2]) for part in parts]
        numbers, roles, clicks, before, by, came, powers, latest = (
            np.concatenate([column[:size] for column, size in zip(columns, sizes, strict=True)])
            for columns in zip(*(part[:8] for part in parts), strict=True)
        )
        batch = self.rows.take(numbers)
        stands_for = np.ones(len(numbers))
        if self._sets.sets > 1:
            powers *= self._sets.powers(clicks, numbers.astype(np.uint64), int(self.rules.seed), self.rules.rate)
        stands_for[((roles == FIRST) | (roles == JOINED)) & (clicks == 0)] /= self._sets.share(self.rules.rate)
        batch = batch._replace(
            clicks=clicks, weights=batch.weights * powers, came_before=before, came_by=by, times=np.minimum(batch.times, latest)
        )  # fmt: skip
        final = self._final([part.sizes[3] for part in parts], parts, np.cumsum([0, *sizes[:-1]]))
        self.rows.drop_before(int(self._waiting.marks[1]))
        return Joined(batch, roles, numbers, came.astype(np.float64), stands_for), final

    def _final(self, sizes: list[Any], parts: list[Out], before: NDArray[np.int64]) -> FinalLabels:
        numbers, clicks, after = (
            np.concatenate([getattr(part, name)[:size] for part, size in zip(parts, sizes, strict=True)])
            for name in ("final_numbers", "final_clicks", "final_after")
        )
        after += np.repeat(before, [int(size) for size in sizes])
        return FinalLabels(numbers, self.rows.take(numbers)._replace(clicks=clicks), after)

    @property
    def watermark(self) -> float:
        """The time that the events agree on; NaN before the first."""
        return float(self._clock.times[0]) if self._clock.counts[0] else float("nan")

    @property
    def silent_since(self) -> float | None:
        """The time of the last click before an outage; None while there is none."""
        return float(self._clock.times[1]) if self._silence.marks[SILENT] else None

    def curve(self) -> list[dict[str, Any]]:
        """How soon clicks come: ages, the share of the clicks that have come by then, and whether impressions are judged then."""
        columns = zip(self.delays.edges.tolist(), self.delays.came.tolist(), self.delays.judged.tolist(), strict=True)
        return [{"age": age, "share": share, "judged": judged} for age, share, judged in columns]

    def metrics(self) -> dict[str, int]:
        """The counters, how many impressions wait to be judged for the first time, and how many are remembered."""
        counters = dict(zip(COUNTERS, self.counters.tolist(), strict=True))
        remembered = int(self._waiting.marks[2] - self._waiting.marks[0])
        return counters | {"waiting": self._unjudged(), "remembered": remembered, "clicks_silent": int(self._silence.marks[SILENT])}

    def check_ledger(self) -> None:
        """Every impression is judged or given up once, or waits: two ways to count must agree."""
        with_row = int(self._waiting.marks[1] - self._waiting.marks[0])
        waiting = int((self._entries(self._waiting)["status"][with_row:] == UNJUDGED).sum())
        if waiting != self._unjudged():
            raise RuntimeError(f"{waiting} impressions wait, but by the counters {self._unjudged()} should: {self.metrics()}")

    def _unjudged(self) -> int:
        count = dict(zip(COUNTERS, self.counters.tolist(), strict=True))
        return count["impressions"] - count["duplicate_impressions"] - count["judged"] - count["unjudged"]

    def state(self) -> dict[str, NDArray]:
        """What it needs to continue, as arrays."""
        arrays = self.rows.state() | {"counters": self.counters.copy(), "passed": self._stages.passed.copy()}
        for name, tables in (("clock", self._clock), ("silence", self._silence), ("delays", self.delays)):
            arrays |= {f"{name}.{key}": array.copy() for key, array in tables._asdict().items()}
        for name, ring in (("waiting", self._waiting), ("early", self._early)):
            arrays |= {f"{name}.{key}": array for key, array in self._entries(ring).items()}
            arrays[f"{name}.marks"] = ring.marks.copy()
        at = np.arange(self._waiting.marks[0], self._waiting.marks[2]) % len(self._waiting.ids)
        return arrays | {"stages.clicked": self._stages.clicked[at], "stages.came": self._stages.came[at]}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Continue from a `state()`."""
        self.rows.load_state(state)
        self.counters[:], self._stages.passed[:] = state["counters"], state["passed"]
        for name, tables in (("clock", self._clock), ("silence", self._silence), ("delays", self.delays)):
            for key, array in tables._asdict().items():
                array[:] = state[f"{name}.{key}"]
        for name, ring in (("waiting", self._waiting), ("early", self._early)):
            ring.marks[:] = state[f"{name}.marks"]
            numbers = np.arange(ring.marks[0], ring.marks[2])
            if len(numbers) > len(ring.ids):
                raise InputError(f"{len(numbers):,} impressions are remembered; raise --join-capacity to at least that")
            for key in ("ids", "times", "status"):
                getattr(ring, key)[numbers % len(ring.ids)] = state[f"{name}.{key}"]
            with wrapping():
                enter_all(ring, numbers[np.asarray(state[f"{name}.status"]) != DONE])
        at = np.arange(self._waiting.marks[0], self._waiting.marks[2]) % len(self._waiting.ids)
        self._stages.clicked[at], self._stages.came[at] = state["stages.clicked"], state["stages.came"]

    def _entries(self, ring: Ring) -> dict[str, NDArray]:
        at = np.arange(ring.marks[0], ring.marks[2]) % len(ring.ids)
        return {key: getattr(ring, key)[at] for key in ("ids", "times", "status")}


def _room(operations: int, labels: int) -> Out:
    """Room for so many operations and final labels."""
    i64, f32 = np.int64, np.float32
    floats = (np.empty(operations, f32) for _ in range(5))
    clicks, before, by, came, powers = floats
    return Out(
        np.empty(operations, i64), np.empty(operations, np.int8), clicks, before, by, came, powers, np.empty(operations),
        np.empty(labels, i64), np.empty(labels, f32), np.empty(labels, i64), np.zeros(4, i64),
    )  # fmt: skip
