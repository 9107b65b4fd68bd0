"""The state of `pbodl online`, and how a pack of events changes it: join, sample, learn, count, watch.

Every impression is predicted when it comes; the figures judge that prediction when its label is final, in the order of the
impressions, so they are those that a log with final labels gives. What is known at the first age gives a second, early line.

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

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import concat
from pbodl.data.sampling import check_rate, selected
from pbodl.errors import InputError
from pbodl.models.clock import parse_duration
from pbodl.models.contract import Model
from pbodl.models.snapshot import load_snapshot, save
from pbodl.streaming.events import CLICK, Events
from pbodl.streaming.join.click_join import FinalLabels, Join, Joined, first_of
from pbodl.streaming.join.join_rules import JOINED, PREDICT
from pbodl.streaming.join.stream_clock import BELIEVED, DAY
from pbodl.streaming.same_run import StreamOptions, check_same, saved_options
from pbodl.streaming.served_predictions import ServedPredictions
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.watchdog import Watchdog
from pbodl.streaming.watching.field_watch import FieldWatch, RowModel
from pbodl.training.config import Config
from pbodl.training.martingale import MartingaleWatch
from pbodl.training.run import learn_rows, new_model
from pbodl.training.stream_metrics import StreamMetrics
from pbodl.training.tracker import Tracker
from pbodl.training.visits.reinforcement import Passes

logger = logging.getLogger(__name__)
MOST_BAD = 1000  # bad events in a row that stop the learner


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
        if not isinstance(model, RowModel):
            raise InputError(f"the model is {config.kind!r}, which is trained in batch; a stream needs one that learns row by row")
        if isinstance(getattr(model, "learning", None), Passes):
            raise InputError("[training] passes: a stream has no minibatches to visit several times; leave it out")
        self.config, self.folder, self.options, self.position = config, Path(folder), options, position
        self.model: RowModel = model
        self.tracker = Tracker(config.schema, config.training.period(config.schema))
        spans = (("--window", options.window), ("--late", options.late), ("--skew", options.skew))
        window, late, skew = (_seconds(text, name) for name, text in spans)
        ages = tuple(sorted(_seconds(text.strip(), "--ages") for text in options.ages.split(","))) if options.ages else ()
        seed, sets = getattr(model.spec, "seed", 0), config.training.negatives
        self.join = Join(config.schema, window, late, options.capacity, model.negative_rate, seed, skew, ages, sets)
        self.watchdog = Watchdog(model)
        self.fields, self.honesty = FieldWatch(model), MartingaleWatch(model)
        self.served = ServedPredictions()
        self.known_in_time = StreamMetrics()  # predictions of what is known at the first age
        self.events = self.bad = self._bad_in_a_row = 0
        self.whole = True  # false in the middle of a pack, where there is no position to save
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
            return cls(config, folder, trained, options, position)
        rate = config.training.negative_rate
        if rate == "auto" and first is None:
            raise InputError('negative_rate "auto" is computed from a log; for a stream, give a number, or a --burn-in')
        model = config.build(check_rate(rate)) if first is None else new_model(config, first)
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
        saved = saved_options(facts["options"])
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
        learner.served.load_state(snapshot.parts["served"])
        learner.known_in_time.load_state(snapshot.parts["known"])
        return learner

    def continue_from(self, facts: dict[str, Any]) -> None:
        """Continue from the `facts()` of a snapshot."""
        self.events, self.bad, self._bad_in_a_row = facts["counts"]
        self.gaps, self.source = facts.get("gaps", 0), facts.get("source")
        self.history = StreamHistory(**facts["history"])

    def screened(self, events: Events, accept_leap: bool = False) -> Events:
        """The events, with those among the bad that are too far ahead of the stream.

        Many in a row are a pause of the stream; one of more than a day is an InputError, before anything is learned, unless it is
        accepted as a gap.
        """
        new = np.flatnonzero(self._is_new(events))
        strays, leap, start = self.join.strays(events.times[new])
        if leap >= 0:
            far = float(events.times[new][leap])
            ahead = f"from {_moment(start)} to {_moment(far)}"
            if far - start > DAY:
                if not accept_leap:
                    raise InputError(
                        f"{BELIEVED} events in a row are more than a day ahead of the stream: it leaps {ahead}. Correct the clock "
                        "of the producer; if the stream has really paused for that long, continue with --accept-gap"
                    )
                self.gaps += 1
            logger.warning("the stream leaps %s", ahead)
        if not len(strays):
            return events
        reason = "its time {} is more than a day ahead of the stream, which is at {}"
        at = self.join.watermark if self.join.watermark == self.join.watermark else float(events.times[new][0])
        return events.and_bad({n: reason.format(_moment(float(events.times[n])), _moment(at)) for n in new[strays].tolist()})

    def take(self, events: Events, position: StreamPosition, gaps: int = 0) -> Joined:
        """Learn from a pack of events; `position` is the run's position after it, `gaps` how many were accepted before it."""
        self.whole = False
        self.gaps += gaps
        before = self.join.metrics()
        self.bad += len(events.bad)
        joined, final = self.join.add(self._new(events))
        after = self.join.metrics()
        self.events += len(events) - (after["strays"] - before["strays"])
        self._say_outages(before, after)
        self._learn(joined, final)
        self.position, self.whole = position, True
        self._count_bad(events)
        return joined

    def _say_outages(self, before: dict[str, int], after: dict[str, int]) -> None:
        if after["outages"] > before["outages"]:
            logger.warning("the clicks are silent longer than chance explains: an outage; nothing is judged until clicks come")
        if (given_up := after["given_up"] - before["given_up"]) > 0:
            logger.warning("the clicks are back; %d impressions that were under way in the outage were given up", given_up)

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

    def _learn(self, joined: Joined, final: FinalLabels) -> None:
        if len(joined):
            self.honesty.before(joined.batch)
            predicted = self.model.learn(joined.batch)
            served = joined.roles == PREDICT
            self.served.put(joined.numbers[served], predicted[served])
            self._watch(joined, predicted)
        else:
            predicted = np.zeros(0)
        self._track(joined, predicted, final)

    def _watch(self, joined: Joined, predicted: NDArray[np.float64]) -> None:
        """Watch each impression at its first age: what is known of it then, and what the model expected to be known."""
        first = first_of(joined)
        if not len(first):
            return
        batch, expected = joined.batch.take(first), predicted[first] * joined.came[first]
        assert batch.clicks is not None
        self.fields.after(batch)
        self.known_in_time.add(expected, batch.clicks, joined.stands_for[first])
        start = 0
        while start < len(batch):
            stop = min(len(batch), start + self.watchdog.room)
            self.watchdog.after(batch.rows(start, stop), expected[start:stop])
            start = stop

    def _track(self, joined: Joined, predicted: NDArray[np.float64], final: FinalLabels) -> None:
        """Count the rows whose label is final, in the order in which it became so."""
        rows = np.flatnonzero(joined.roles == JOINED)
        ctr = np.concatenate([predicted[rows], self.served.take(final.numbers)])
        if not len(ctr):
            return
        batch = final.batch if not len(rows) else joined.batch.take(rows)
        if len(rows) and len(final.numbers):
            batch = concat([batch, final.batch])
        weights = np.concatenate([joined.stands_for[rows], np.ones(len(final.numbers))])
        order = np.argsort(np.concatenate([2 * rows + 1, 2 * final.after]), kind="stable")
        order = order[~np.isnan(ctr[order])]
        if len(order):
            self.tracker.add(batch.take(order), ctr[order], weights[order])

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
        parts |= {"served": self.served.state(), "known": self.known_in_time.state()}
        return save(self.model, self.folder, {"online": facts, "tracker": tracker, "rows": self.events}, parts)

    def facts(self) -> dict[str, Any]:
        """Where the learner is in its stream, as plain data."""
        return {
            "position": self.position.plain(),
            "counts": [self.events, self.bad, self._bad_in_a_row],
            "history": self.history._asdict(),
            "gaps": self.gaps,
            "source": self.source,
            "silent_since": self.join.silent_since,
        }

    def metrics(self) -> dict[str, Any]:
        """Counters and figures, as plain data."""
        figures, known = self.tracker.overall(), self.known_in_time.figures()
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
            "known_log_loss": known.log_loss if known.rows else None,
            "known_calibration": known.calibration if known.calibration == known.calibration else None,
            "alarms": self.watchdog.alarms,
            "held": self.watchdog.held,
        }


def _seconds(text: str, option: str) -> float:
    span = parse_duration(text, option)
    if span.in_rows:
        raise InputError(f"{option} is {text!r}; it must be a span of time, such as 10m")
    return span.amount


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
