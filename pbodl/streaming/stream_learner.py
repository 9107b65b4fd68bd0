"""The state of `pbodl online`, and how a pack of events changes it: join, sample, learn, count, watch.

A snapshot holds all of it, for the same moment: the weights, the source's position, the impressions that wait, the figures and the
counters. The join's output depends only on the order of events, and learning only on the order of rows. So a learner that is killed
and continues from its newest snapshot ends with the same bits as one that never stopped.
"""

import logging
import secrets
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.sampling import check_rate, selected
from pbodl.errors import InputError
from pbodl.models.clock import parse_duration
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.snapshot import load_snapshot, save
from pbodl.streaming.events import CLICK, Events
from pbodl.streaming.join.click_join import Join, Joined
from pbodl.streaming.join.join_rules import BELIEVED
from pbodl.streaming.same_run import check_same
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.take_back import TakeBack
from pbodl.streaming.watchdog import Watchdog
from pbodl.streaming.watching.field_watch import FieldWatch
from pbodl.training.config import Config
from pbodl.training.martingale import MartingaleWatch
from pbodl.training.run import learn_rows, new_model
from pbodl.training.tracker import Tracker

logger = logging.getLogger(__name__)
MOST_BAD = 1000  # bad events in a row that stop the learner


class StreamOptions(NamedTuple):
    """How events are joined and watched; saved with the run, since other options would give other rows."""

    window: str = "10m"
    late: str = "1h"
    capacity: int = 1_000_000  # impressions to remember
    on_alarm: str = "hold"  # hold publishing, or "drop" what the abnormal stretch taught
    settle: str = "in-step"  # learn non-clicks together with clicks of their age, or "at-end" of their window


class StreamHistory(NamedTuple):
    """What was learned from a log before the stream began."""

    rows: int = 0
    position: dict[str, Any] | None = None  # in the log; None when all of it is learned
    until: float | None = None  # the log contains the impressions up to this time


class UnsentLetters(NamedTuple):
    """What a run must know to send each dead letter once."""

    run: str  # its name, which no other has
    waiting: list[list[str]] = []  # noqa: RUF012  reasons and texts of letters that were not sent when the snapshot was written


class StreamLearner:
    """A model that learns from a stream, into a run folder."""

    def __init__(self, config: Config, folder: str | Path, model: Model, options: StreamOptions, position: StreamPosition) -> None:
        if not isinstance(model, DeepProbit):
            raise InputError(f"the model is {config.kind!r}; only the deep probit models, such as pair-fm, can learn from a stream")
        self.config, self.folder, self.model, self.options, self.position = config, Path(folder), model, options, position
        self.tracker = Tracker(config.schema, config.training.period(config.schema))
        if options.on_alarm not in ("hold", "drop"):
            raise InputError(f"--on-alarm is {options.on_alarm!r}; allowed are 'hold' and 'drop'")
        window, late = (_seconds(text, name) for name, text in (("--window", options.window), ("--late", options.late)))
        if options.settle not in ("in-step", "at-end"):
            raise InputError(f"--settle is {options.settle!r}; allowed are 'in-step' and 'at-end'")
        in_step, seed = options.settle == "in-step", model.spec.seed
        rate, sets = model.negative_rate, config.training.negatives
        self.join = Join(config.schema, window, late, options.capacity, rate, seed, in_step=in_step, sets=sets)
        self.watchdog = Watchdog(model)
        self.fields, self.honesty = FieldWatch(model), MartingaleWatch(model)
        self._take_back = TakeBack(model) if options.on_alarm == "drop" else None
        self.events = self.bad = self._bad_in_a_row = 0
        self.whole = True  # false in the middle of a pack, where there is no position to save
        self.dropped = 0  # rows of abnormal stretches that were taken back
        self.gaps = 0  # in the stream, that were accepted
        self.source: str | None = None  # what kind of stream the position is in
        self.history = StreamHistory()
        self.letters = UnsentLetters(secrets.token_hex(8))

    @classmethod
    def start(
        cls, config: Config, folder: str | Path, options: StreamOptions, position: StreamPosition, first: Batch | None = None,
        trained: Model | None = None,
    ) -> "StreamLearner":  # fmt: skip
        """Start a run at a position of its source, with a `trained` model or a new one.

        An automatic negative rate of a new one is computed from `first`, rows of its history.
        """
        if trained is not None:
            if options.on_alarm == "drop" and isinstance(trained, DeepProbit) and trained.spec.adapt_prior:
                raise InputError("--on-alarm drop needs fixed priors; train the model with --set model.adapt_prior=false")
            return cls(config, folder, trained, options, position)
        rate = config.training.negative_rate
        if rate == "auto" and first is None:
            raise InputError('negative_rate "auto" is computed from a log; for a stream, give a number, or a --burn-in')
        model = config.build(check_rate(rate)) if first is None else new_model(config, first)
        if options.on_alarm == "drop" and isinstance(model, DeepProbit):
            # An adapted prior is part of every row, and would outlive the stretch that taught it.
            model = type(model).from_spec(model.schema, msgspec.structs.replace(model.spec, adapt_prior=False))
        return cls(config, folder, model, options, position)

    @classmethod
    def resume(
        cls, config: Config, folder: str | Path, options: StreamOptions | None = None, given: Iterable[str] = StreamOptions._fields
    ) -> "StreamLearner":
        """Continue the run of a folder from its newest sound snapshot; the `given` ones of the options must be those of the run."""
        snapshot = load_snapshot(folder)
        facts = snapshot.facts.get("online")
        if "cluster" in snapshot.facts:
            raise InputError(f"{folder} was started with --engine ray; continue it so, or choose another --out")
        if facts is None:
            raise InputError(f"{folder} holds a model that `pbodl online` did not write; choose another --out")
        saved = StreamOptions(**facts["options"])
        asked, given = (saved, ()) if options is None else (options, tuple(given))
        check_same(folder, config, snapshot.model, asked._asdict(), saved._asdict(), given, facts.get("negatives"))
        period = config.training.period(config.schema)
        if facts.get("period", list(period)) != list(period):
            raise InputError(f"{folder} was started with another `training.every`; continue it with the one it was started with")
        saved = saved._replace(capacity=asked.capacity if "capacity" in given else saved.capacity)
        learner = cls(config, folder, config.prepare(snapshot.model), saved, StreamPosition.of(facts["position"]))
        learner.tracker.load_state(snapshot.facts["tracker"], snapshot.parts["metrics"])
        learner.join.load_state(snapshot.parts["join"])
        learner.watchdog.load_state(facts["watchdog"], snapshot.parts["watchdog"])
        if "fields" in snapshot.parts:
            learner.fields.load_state(snapshot.parts["fields"])
        learner.continue_from(facts)
        learner.letters = UnsentLetters(**facts.get("letters", learner.letters._asdict()))
        if learner._take_back is not None:
            learner._take_back.load_state(snapshot.parts["stretch"])
        return learner

    def continue_from(self, facts: dict[str, Any]) -> None:
        """Continue from the `facts()` of a snapshot."""
        self.events, self.bad, self._bad_in_a_row, self.dropped = facts["counts"]
        self.gaps, self.source = facts.get("gaps", 0), facts.get("source")
        self.history = StreamHistory(**facts["history"])

    def screened(self, events: Events, accept_leap: bool = False) -> Events:
        """The events, with those among the bad that are too far ahead of the stream.

        Ten in a row are an InputError, before anything is learned from them; or, if accepted, a gap: the stream has paused.
        """
        new = np.flatnonzero(self._is_new(events))
        strays, leap = self.join.strays(events.times[new])
        if leap >= 0:
            ahead = f"from {_moment(self.join.watermark)} to {_moment(float(events.times[new][leap]))}"
            if not accept_leap:
                raise InputError(
                    f"{BELIEVED} events in a row are more than a day ahead of the stream: it leaps {ahead}. Correct the clock of "
                    "the producer; if the stream has really paused for that long, continue with --accept-gap"
                )
            logger.warning("the stream leaps %s", ahead)
            self.gaps += 1
        if not len(strays):
            return events
        reason = "its time {} is more than a day ahead of the stream, which is at {}"
        at = self.join.watermark if self.join.watermark == self.join.watermark else float(events.times[new][0])
        return events.and_bad({n: reason.format(_moment(float(events.times[n])), _moment(at)) for n in new[strays].tolist()})

    def take(self, events: Events, position: StreamPosition, gaps: int = 0) -> Joined:
        """Learn from a pack of events; `position` is the run's position after it, `gaps` how many were accepted before it."""
        self.whole = False
        self.gaps += gaps
        strays = self.join.stray_count
        self.bad += len(events.bad)
        joined = self.join.add(self._new(events))
        self.events += len(events) - (self.join.stray_count - strays)
        self._learn(joined)
        self.position, self.whole = position, True
        self._count_bad(events)
        return joined

    def _is_new(self, events: Events) -> NDArray[np.bool_]:
        """Which events the history did not contain."""
        return np.ones(len(events), bool) if self.history.until is None else events.times > self.history.until

    def _new(self, events: Events) -> Events:
        """The events that the history did not contain."""
        if (new := self._is_new(events)).all():
            return events
        rows = selected(events.rows, new[events.kinds != CLICK])
        return replace(events, kinds=events.kinds[new], ids=events.ids[new], times=events.times[new], rows=rows)

    def learn_history(self, batch: Batch, position: dict[str, Any]) -> None:
        """Learn rows of the log before the stream; they must be older than the stream's events."""
        kept, predicted, weights = learn_rows(self.model, batch, self.history.rows)
        if len(kept):
            self.tracker.add(kept, predicted, weights)
        latest = max(float(batch.times.max()), self.history.until or float("-inf"))
        self.history = StreamHistory(self.history.rows + len(batch), position, latest)

    def end_history(self) -> None:
        """The log has ended; the stream begins."""
        self.history = self.history._replace(position=None)
        known = self.tracker.overall()
        clicks = known.ctr * known.rows if known.rows else 0.0
        self.join.skip_holding(clicks, known.rows - clicks)

    def finish(self) -> None:
        """The stream has ended: settle the impressions that still wait."""
        self._learn(self.join.close_windows())

    def _learn(self, joined: Joined) -> None:
        start = 0
        while start < len(joined):
            stop = min(len(joined), start + self.watchdog.room)
            batch = joined.batch.rows(start, stop)
            if self._take_back is not None:
                self._take_back.note(batch)
            self.honesty.before(batch)
            predicted = self.model.learn(batch)
            self.fields.after(batch)
            self.tracker.add(batch, predicted, joined.stands_for[start:stop])
            abnormal = self.watchdog.after(batch, joined.roles[start:stop], predicted)
            if self._take_back is not None and self.watchdog.room == self.watchdog.stretch:
                self._end_stretch(self._take_back, abnormal)
            start = stop

    def _end_stretch(self, taken: TakeBack, abnormal: str | None) -> None:
        if abnormal is not None:
            self.dropped += taken.undo()
            # What the stretch taught is gone, so publishing can continue.
            self.watchdog.release()
        taken.begin()

    def _count_bad(self, events: Events) -> None:
        first, most, last = events.runs
        in_a_row = self._bad_in_a_row + first
        self._bad_in_a_row = last if len(events) else in_a_row
        if max(in_a_row, most) >= MOST_BAD:
            raise InputError(
                f"{max(in_a_row, most):,} events in a row were bad, the last because {events.bad[-1].reason}. Stopped "
                "reading; the bad events are in the dead letters. Fix the producer, and start again to continue after them"
            )

    def forgive(self) -> None:
        """Start counting bad events in a row from 0: a person has looked at them."""
        self._bad_in_a_row = 0

    def save(self) -> Path:
        """Write a snapshot."""
        self.join.check_ledger()
        tracker, arrays = self.tracker.state()
        watchdog, watched = self.watchdog.state()
        period = list(self.config.training.period(self.config.schema))
        facts = self.facts() | {"options": self.options._asdict(), "watchdog": watchdog, "period": period}
        facts |= {"letters": self.letters._asdict(), "negatives": self.config.training.negatives.plain()}
        parts = {"metrics": arrays, "join": self.join.state(), "watchdog": watched, "fields": self.fields.state()}
        if self._take_back is not None:
            parts["stretch"] = self._take_back.state()
        return save(self.model, self.folder, {"online": facts, "tracker": tracker, "rows": self.events}, parts)

    def facts(self) -> dict[str, Any]:
        """Where the learner is in its stream, as plain data."""
        return {
            "position": self.position.plain(),
            "counts": [self.events, self.bad, self._bad_in_a_row, self.dropped],
            "history": self.history._asdict(),
            "gaps": self.gaps,
            "source": self.source,
        }

    def metrics(self) -> dict[str, Any]:
        """Counters and figures, as plain data."""
        figures = self.tracker.overall()
        return {
            "events": self.events,
            "bad": self.bad,
            "gaps": self.gaps,
            **self.join.metrics(),
            **self.model.metrics(),
            "watermark": self.join.watermark if self.join.watermark == self.join.watermark else None,
            "log_loss": figures.log_loss if figures.rows else None,
            "ctr": figures.ctr if figures.rows else None,
            "auc": figures.auc if figures.auc == figures.auc else None,
            "alarms": self.watchdog.alarms,
            "dropped": self.dropped,
            "held": self.watchdog.held,
        }


def _seconds(text: str, option: str) -> float:
    span = parse_duration(text, option)
    if span.in_rows:
        raise InputError(f"{option} is {text!r}; it must be a span of time, such as 10m")
    return span.amount


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
