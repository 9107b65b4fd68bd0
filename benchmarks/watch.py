"""The watchdog on generated traffic: its false alarms on ordinary events, and how soon it detects faults.

Events are generated as arrays, many at a time; `pbodl.streaming.replay` sends the same ones as messages. The learner is complete:
join, model, figures, watchdog.

A world has nights and days, new ads at midnight, a feature for the hour; every run is a new model. `days` sets the speed of the
clock relative to the traffic: 4 means about five rows per second.
"""

import itertools
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import from_data
from pbodl.data.synthetic import World
from pbodl.streaming.events import CLICK, IMPRESSION, JOINED, Events
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from pbodl.streaming.watchdog import LEARNING, Watchdog, odds_ratio
from pbodl.training.config import check_config

DELAY = 60.0  # seconds from an impression to its click, in the mean
PIECE = 2048  # impressions at a time
DAYS = [10, 4, 20, 7, 2]  # of the seeds, in turn
FIELDS = ("site_id", "device_model", "C14")


class Fault(NamedTuple):
    """What goes wrong in a stream, from an impression on."""

    what: str  # "inverted", or the name of a field that goes missing
    after: int

    def spoil(self, rows: pa.RecordBatch, first: int, label: str) -> pa.RecordBatch:
        """The rows, the first of them number `first`, as a broken producer would send them."""
        good = max(0, min(self.after - first, len(rows)))
        column = rows.column(label if self.what == "inverted" else self.what)
        rest = column[good:]
        broken = pa.array(1 - rest.to_numpy(), column.type) if self.what == "inverted" else pa.nulls(len(rest), column.type)
        place = rows.schema.get_field_index(label if self.what == "inverted" else self.what)
        return rows.set_column(place, rows.schema.field(place), pa.concat_arrays([column[:good], broken]))


def events(world: World, fault: Fault | None = None, joined: bool = False) -> Iterator[Events]:
    """A world's impressions and delayed clicks, in the order of their times; or rows that are joined already."""
    draws, first = np.random.default_rng(world.seed), 0
    schema = world.schema
    due_ids, due_times = np.zeros(0, np.uint64), np.zeros(0)
    for batch in world.batches(PIECE):
        told = batch if fault is None else fault.spoil(batch, first, schema.label)
        rows = from_data(schema, pa.table(told), labelled=True)
        assert rows.clicks is not None
        ids = np.arange(first + 1, first + len(rows) + 1, dtype=np.uint64)
        first += len(rows)
        if joined:
            yield Events(np.full(len(rows), JOINED, np.int8), ids, rows.times, rows, [], (0, 0, 0))
            continue
        clicked = rows.clicks > 0
        later = rows.times + draws.exponential(DELAY, len(rows))
        due_ids, due_times = np.concatenate([due_ids, ids[clicked]]), np.concatenate([due_times, later[clicked]])
        now = due_times <= rows.times[-1]
        times = np.concatenate([due_times[now], rows.times])  # clicks first: at the same time, they come first
        kinds = np.repeat(np.array([CLICK, IMPRESSION], np.int8), [int(now.sum()), len(rows)])
        order = np.argsort(times, kind="stable")
        yield Events(
            kinds[order], np.concatenate([due_ids[now], ids])[order], times[order],
            rows._replace(clicks=np.zeros_like(rows.clicks)), [], (0, 0, 0),
        )  # fmt: skip
        due_ids, due_times = due_ids[~now], due_times[~now]


class Watching(Watchdog):
    """Also records how close ordinary periods come to an alarm, and when the first row of a fault was learned."""

    calls = np.zeros(3)  # the most so far: usual surprises; factors of the odds that the model expected, and that were usual
    since = np.inf  # the time of the first row that is wrong
    began: int | None = None  # the stretch in which it was learned
    seen: int | None = None  # the stretch of the first alarm

    def after(self, batch: Batch, roles: NDArray[np.int8], predicted: NDArray[np.float64]) -> str | None:
        if self.began is None and batch.times.max(initial=-np.inf) >= self.since:
            self.began = self.stretches
        now, reason = self.stretches, super().after(batch, roles, predicted)
        if reason is not None and self.seen is None:
            self.seen = now
        return reason

    def _judge(self) -> str | None:
        rows, clicks, expected = self._sums[:3]
        if self.stretches >= LEARNING:
            odds = [odds_ratio(clicks, other, rows) for other in (expected, self._usual_ctr * rows)]
            self.calls = np.maximum(self.calls, [self._surprise() / self._usual_surprise, *odds])
        return super()._judge()


def watched(
    world: World, rate: float, fault: Fault | None = None, joined: bool = False
) -> Iterator[tuple[StreamLearner, Watching]]:
    """A learner and its watchdog after each piece of the world's traffic."""
    config = {"schema": msgspec.to_builtins(world.schema), "model": {"kind": "fm-mlp"}, "training": {"negative_rate": rate}}
    with tempfile.TemporaryDirectory() as folder:
        learner = StreamLearner.start(check_config(config), folder, StreamOptions(), StreamPosition())
        learner.watchdog = watchdog = Watching(learner.model)
        for number, some in enumerate(events(world, fault, joined)):
            if fault is not None and number == fault.after // PIECE:
                watchdog.since = float(some.rows.times[fault.after % PIECE])
            learner.take(some, StreamPosition())
            yield learner, watchdog


def ordinary(seeds: list[int], rows: int, rate: float, days_of: list[int]) -> None:
    """Alarms on ordinary events, a new learner for each seed."""
    alarms = seen = stretches = 0
    for seed, days in zip(seeds, itertools.cycle(days_of), strict=False):
        for learner, watchdog in watched(World(seed=seed, days=days, rows=rows), rate):
            if watchdog.held is not None:
                print(f"  after {learner.events:,} events: {watchdog.held}", flush=True)
                watchdog.release()
        alarms, seen, stretches = alarms + watchdog.alarms, seen + learner.events, stretches + watchdog.stretches
        surprise, expected, usual = watchdog.calls
        print(
            f"seed {seed}, {days} days: {watchdog.alarms} alarms in {learner.events:,} events, {watchdog.stretches:,} stretches; "
            f"at most {surprise:.1f} usual surprises, {expected:.2f} of the odds expected, {usual:.2f} of the usual ones",
            flush=True,
        )
    print(f"{alarms} alarms in {seen:,} ordinary events, {stretches:,} stretches")


def faults(seeds: list[int]) -> None:
    """How soon the alarm comes: 0 is the stretch with the first wrong row learned, 1 the next, the first that is all wrong."""
    for what, joined, rate in (
        ("inverted", False, 1.0), ("inverted", False, 0.2), ("inverted", True, 1.0), ("inverted", True, 0.2),
        *((name, False, 1.0) for name in FIELDS),
    ):  # fmt: skip
        told = []
        for seed, days in zip(seeds, itertools.cycle(DAYS), strict=False):
            after = int(np.random.default_rng(seed).integers(70_000, 110_000)) * (1 if rate == 1.0 else 3)
            for _, watchdog in watched(World(seed=seed, days=days, rows=170_000 * days), rate, Fault(what, after), joined):
                if watchdog.held is not None or (watchdog.began is not None and watchdog.stretches > watchdog.began + 5):
                    break
            told.append("none" if watchdog.seen is None else "before" if watchdog.began is None else watchdog.seen - watchdog.began)
        kind = "labels inverted" if what == "inverted" else f"{what} missing"
        print(f"{kind}, {'joined rows' if joined else 'clicks apart'}, negative rate {rate}: alarm in stretch {told}", flush=True)
