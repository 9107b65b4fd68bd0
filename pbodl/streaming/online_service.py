"""The service behind `pbodl online`: reads ahead in a thread, learns, publishes, saves, shows figures, and stops on a signal."""

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pbodl.data.log.log_reader import LogPosition, open_log
from pbodl.data.log.row_blocks import layout_of
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.snapshot import drop_newest, load, naming_snapshot, snapshots
from pbodl.parallel.threads.learning_threads import threads_for
from pbodl.publishing.publisher import Publisher
from pbodl.streaming.dead_letters import DeadLetters
from pbodl.streaming.events import EventDecoder, Events
from pbodl.streaming.metrics_board import LOOPBACK, Board, MetricsPage
from pbodl.streaming.same_run import check_same
from pbodl.streaming.sources.broker import Broker
from pbodl.streaming.sources.event_source import Away, Lost, open_source
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from pbodl.streaming.stream_reader import AHEAD, WAIT, ReadStep, StreamReader
from pbodl.streaming.upkeep.run_migration import MigrationDue, follow_request, migration_requested
from pbodl.system.atomic_files import write_file
from pbodl.system.folder_lock import writing
from pbodl.system.patience import Stopped, at_most
from pbodl.system.read_ahead import ReadAhead
from pbodl.system.setbacks import Setbacks
from pbodl.system.stop_signals import StopRequest, stop_signals
from pbodl.training.config import Config, to_toml
from pbodl.training.session import Interrupted
from pbodl.training.stream_status import Show
from pbodl.training.visits.worker_rules import stream_burn_in

logger = logging.getLogger(__name__)
CLOSING = 0.95  # seconds that the source has to end a read after a signal
AGAIN = 2.0  # seconds before a snapshot is tried again that the source did not agree to
LEAVING, HURRIED = 10.0, 0.5  # seconds that it has to take leave of its broker, and of one that is away


class Options(NamedTuple):
    """The options of the command line that are not part of the configuration."""

    source: str
    out: Path
    join: StreamOptions = StreamOptions()
    workers: int = 1
    publish: str | None = None
    publish_every: float = 2.0
    publish_exact: bool = False  # bit for bit, instead of compactly
    burn_in: tuple[str, ...] = ()
    begin: str = "start"  # or "end": where a new run starts in the source
    until_end: bool = False
    speed: float | None = None  # of a file's replay: its seconds per second
    accept_gap: bool = False
    release: bool = False
    dead_letters: str | None = None
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK
    start_from: Path | None = None  # a run whose newest model a new run starts with
    given: tuple[str, ...] = StreamOptions._fields  # those options of `join` that were given: a run that continues must have them


def online(config: Config, options: Options, show: Show = lambda values: None) -> dict[str, Any]:
    """Learn from a stream into a run folder, which starts or continues; returns the figures at the end. `show` gets them meanwhile.

    After SIGINT or SIGTERM it saves, and raises `Interrupted`.
    """
    threads = threads_for(options.workers, config.training.merge, stream_burn_in(config.training.burn_in))
    if options.speed is not None and "://" in options.source:
        raise InputError("--speed is for replaying a file; leave it out for a stream, which has its own speed")
    figures: dict[str, Any] = {}
    with ExitStack() as stack:
        stop = stack.enter_context(stop_signals())
        source = open_source(options.source, options.speed is not None, layout_of(config.schema))
        stack.callback(lambda: at_most(LEAVING if source.away is None else HURRIED, source.close))
        stack.enter_context(writing(options.out, "pbodl online"))
        stack.enter_context(naming_snapshot(options.out, "the same command continues from it"))
        page = stack.enter_context(closing(MetricsPage(source, Setbacks(), options.metrics_port, options.metrics_host)))
        broker = Broker(source, stop)
        while not stop:
            try:
                figures = _session(config, options, broker, threads, page, show)
                break
            except MigrationDue:
                config = follow_request(options.out, config)
            except Lost as loss:
                if loss.void:
                    drop_newest(options.out)
                logger.warning("%s; continuing from the last snapshot", loss)
            except Stopped:
                break
    if stop.number is not None:
        raise Interrupted(stop.number)
    return figures


def _session(
    config: Config, options: Options, broker: Broker, threads: Callable[[Model], None], page: MetricsPage, show: Show
) -> dict[str, Any]:
    """Learn from the newest snapshot until a signal, the end of the stream, or the loss of what was read."""
    source, stop = broker.source, broker.stop
    with ExitStack() as stack:
        learner = _begun(config, options, broker)
        if options.release:
            learner.watchdog.accept()
        learner.forgive()
        threads(learner.model)
        publisher = _publisher(learner, options)
        if publisher is not None:
            stack.callback(publisher.close)
        board = Board(learner, publisher, page, show)
        target = options.dead_letters or options.out / "dead-letters.jsonl"
        letters = stack.enter_context(closing(DeadLetters(target, source.name, learner.bad, *learner.letters)))
        service = OnlineService(learner, broker, publisher, board, letters)
        try:
            _burn_in(service, options.burn_in, stop)
            if not stop:
                service.run(options, stop)
        except InputError:
            if learner.whole:
                with suppress(Away):
                    service.save_at_last()  # everything before the error is sound
            raise
        service.save_at_last()
        service.publish()
        board.refresh(None if stop else source.lag(learner.position), 0, service.snapshot_seconds)
        return learner.metrics()


def _publisher(learner: StreamLearner, options: Options) -> Publisher | None:
    if options.publish is None:
        return None
    return Publisher(learner.model, options.publish, every=options.publish_every, compact=not options.publish_exact)


def _begun(config: Config, options: Options, broker: Broker) -> StreamLearner:
    """The run of the folder, or a new one, which is saved at once so that its first position is fixed."""
    if snapshots(options.out):
        learner = StreamLearner.resume(config, options.out, options.join, options.given)
        if learner.source not in (None, broker.source.kind):
            raise InputError(
                f"{options.out} learns from {learner.source}, and --source is {broker.source.kind}; give the source that it was "
                "started with, or start a new run in another --out"
            )
        learner.source = broker.source.kind
        return learner
    first = None
    if options.burn_in:
        with open_log(list(options.burn_in), config.schema) as reader:
            chunk = next(iter(reader), None)
        if chunk is None:
            raise InputError(f"--burn-in {', '.join(options.burn_in)} has no good rows; leave it out, or give a log that has some")
        first = chunk.batch
    trained = trained_model(config, options)
    begin = broker.ask(lambda: broker.source.start(options.begin))
    learner = StreamLearner.start(config, options.out, options.join, begin, first, trained)
    learner.source = broker.source.kind
    write_file(options.out / "config.toml", to_toml(config).encode())
    if options.burn_in:
        learner.history = learner.history._replace(position={})
    learner.save()
    return learner


def trained_model(config: Config, options: Options) -> Model | None:
    """The model that a new run starts with, if it is to start with one."""
    if options.start_from is None:
        return None
    if options.burn_in:
        raise InputError("--burn-in learns a new model, and --start-from takes a trained one; give one of them")
    model, join = load(options.start_from), options.join._asdict()
    check_same(options.start_from, config, model, join, join, ())
    return model


def _burn_in(service: "OnlineService", paths: tuple[str, ...], stop: StopRequest) -> None:
    """Learn the history, or the rest of it."""
    learner = service.learner
    if learner.history.position is None:
        return
    if not paths:
        raise InputError("the run was stopped while it learned its history; give the same --burn-in as before")
    start = LogPosition(**learner.history.position) if learner.history.position else None
    with open_log(list(paths), learner.config.schema, start=start) as reader:
        for chunk in reader:
            learner.learn_history(chunk.batch, chunk.position._asdict())
            service.tend()
            if stop:
                return
    learner.end_history()
    service.save()


class OnlineService:
    """Runs a learner: reads, learns, publishes, saves and shows."""

    def __init__(
        self, learner: StreamLearner, broker: Broker, publisher: Publisher | None, board: Board, letters: DeadLetters
    ) -> None:
        self.learner, self.broker, self.publisher, self.board, self.letters = learner, broker, publisher, board, letters
        self.source = broker.source
        self._saved_at, self.snapshot_seconds = time.monotonic(), 0.0
        self._save_not_before = 0.0
        self._reader: StreamReader | None = None
        self._save_every = learner.config.training.snapshot_every

    def run(self, options: Options, stop: StopRequest) -> None:
        """Learn until a signal arrives, or with `until_end` until the stream ends."""
        steps = ReadAhead(self._steps(options), AHEAD)
        try:
            for step in steps.polled(WAIT):
                if step is not None:
                    events = self.learner.screened(step.events, options.accept_gap)
                    self.letters.write(events.bad)
                    self.learner.take(events, step.position, step.gaps)
                self.tend(steps.waiting)
                if stop:
                    return
                if migration_requested(self.learner.folder):
                    self.save_at_last()
                    raise MigrationDue
        finally:
            steps.close(CLOSING if stop else None)

    def _steps(self, options: Options) -> Generator[ReadStep | None, None, None]:
        """Decoded packs of the source; None while there are no events. Runs in the background."""
        decoder = EventDecoder(
            self.learner.config.schema, getattr(self.learner.model.spec, "capacity", None), self.learner.options.outcome
        )
        self._reader = StreamReader(self.source, decoder, options.accept_gap, options.until_end)
        pace = Pace(options.speed) if options.speed is not None else None
        for step in self._reader.steps(self.learner.position):
            if step is not None and pace is not None:
                yield from pace.until(step.events)
            yield step

    def tend(self, packs_ahead: int = 0) -> None:
        """Publish, save and show, if it is time."""
        self.broker.tell()
        if self.publisher is not None and self.publisher.is_due:
            self.publish()
        if time.monotonic() >= self._save_not_before and (
            time.monotonic() - self._saved_at >= self._save_every or self.letters.are_many
        ):
            try:
                self.save()
            except Away as error:
                logger.warning("%s", error)
                self._save_not_before = time.monotonic() + AGAIN
        if self.board.is_due:
            self.board.refresh(None if self._reader is None else self._reader.lag, packs_ahead, self.snapshot_seconds)

    def publish(self) -> None:
        """Publish, unless the watchdog holds it; what cannot be written now is published later."""
        watchdog = self.learner.watchdog
        if self.publisher is not None and watchdog.held is None and watchdog.doubt is None:
            with self.board.setbacks.tolerating(f"publishing to {self.publisher.folder.location}"):
                self.publisher.publish(self.board.facts())

    def save_at_last(self) -> None:
        """Save; a group whose brokers must agree has some time for it."""
        until = time.monotonic() + LEAVING
        while True:
            try:
                return self.save()
            except Away as error:
                if time.monotonic() > until:
                    raise Away(f"{error}. What was learned since the last snapshot is not saved; it will be read again") from error
                time.sleep(WAIT)

    def save(self) -> None:
        """Save a snapshot, then acknowledge to the source."""
        began = time.monotonic()
        self.learner.letters = self.learner.letters._replace(waiting=[list(letter) for letter in self.letters.waiting])
        with self.source.saving(self.learner.position):
            self.learner.save()
        self.letters.saved()
        self._saved_at = time.monotonic()
        self.snapshot_seconds = self._saved_at - began


class Pace:
    """Slows a replay down to a multiple of the events' own time."""

    def __init__(self, speed: float) -> None:
        if not speed > 0:
            raise InputError(f"--speed is {speed:g}; it must be above 0, such as 60x")
        self._speed = speed
        self._began: tuple[float, float] | None = None  # by the clock, and in the events' time

    def until(self, events: Events) -> Iterator[None]:
        """Yield None until the last of the events is due."""
        if not len(events):
            return
        last = float(events.times.max())
        if self._began is None:
            self._began = time.monotonic(), float(events.times.min())
        due = self._began[0] + (last - self._began[1]) / self._speed
        while (left := due - time.monotonic()) > 0:
            time.sleep(min(left, WAIT))
            yield None


def parse_speed(text: str | None) -> float | None:
    """Parse a speed such as 60x."""
    if text is None:
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0.0 < speed < float("inf"):
        raise InputError(f"--speed is {text!r}; it must be above 0 and a multiple such as 60x")
    return speed
