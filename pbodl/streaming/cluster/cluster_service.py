"""The service behind `pbodl online --engine ray`: starts or continues a run, and looks after its cluster until the stream ends.

It deals out partitions to workers, and never sees a row. It adapts the prior, judges by the evidence of all workers whether the
data is normal, takes snapshots, publishes, and shows figures.
"""

import logging
import time
import uuid
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from pbodl.data.batch import Batch
from pbodl.data.log.log_reader import open_log
from pbodl.errors import InputError
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.sharded_state import share_of
from pbodl.models.snapshot import (
    Snapshot,
    WrittenShards,
    load_without_weights,
    naming_snapshot,
    save_written,
    shard_part,
    snapshots,
    write_part,
)
from pbodl.parallel.cluster.durable_shard import counters_of
from pbodl.parallel.cluster.on_ray import minibatch
from pbodl.parallel.cluster.ray_actors import connected
from pbodl.parallel.cluster.shard_watch import check_limit
from pbodl.parallel.engines import SHARD_TIMEOUT
from pbodl.parallel.schedule import check_workers
from pbodl.publishing.curves import Curves
from pbodl.streaming.cluster.cluster_publisher import ClusterPublisher
from pbodl.streaming.cluster.cluster_session import VOID, ClusterSession, SessionPlan, no_figures
from pbodl.streaming.cluster.cluster_snapshot import check_partitions
from pbodl.streaming.cluster.partition_list import Partition, partitions_of
from pbodl.streaming.cluster.stream_actor import PARTITIONS, ActorTask
from pbodl.streaming.cluster.stream_worker import WorkerSettings, figures_of
from pbodl.streaming.metrics_board import EVERY, MetricsPage
from pbodl.streaming.online_service import Options, trained_model
from pbodl.streaming.same_run import check_same, saved_options
from pbodl.streaming.sources.broker import Broker
from pbodl.streaming.sources.event_source import StreamPosition, open_source
from pbodl.streaming.stream_learner import StreamHistory, StreamLearner
from pbodl.streaming.watchdog import Watchdog
from pbodl.system.atomic_files import write_file
from pbodl.system.folder_lock import writing
from pbodl.system.setbacks import Setbacks
from pbodl.system.stop_signals import NUMBERS, StopRequest, handling, stop_signals
from pbodl.system.tensors import Arrays
from pbodl.training.config import Config, to_toml
from pbodl.training.session import Interrupted
from pbodl.training.stream_status import Show
from pbodl.training.tracker import plain
from pbodl.training.visits.reinforcement import refuse_reinforced
from pbodl.training.visits.worker_rules import burn_in_of, stream_burn_in

logger = logging.getLogger(__name__)
POLL = 0.1  # seconds between two rounds of questions to the workers
CLUSTER = "cluster"  # the fact that says that a snapshot is of such a run
AGAIN = 3  # times that the last snapshot of a session is tried


class ClusterOptions(NamedTuple):
    """The options of `--engine ray`."""

    shards: int = 1
    rows: int | None = None  # of a minibatch
    half: bool = True
    address: str | None = None
    shard_timeout: float = SHARD_TIMEOUT  # seconds after which a shard that does not answer is replaced


def online_on_ray(config: Config, options: Options, cluster: ClusterOptions, show: Show = lambda values: None) -> dict[str, Any]:
    """As `online_service.online`, with `options.workers` workers and some shards as processes on Ray."""
    check_workers(options.workers)
    if not 1 <= cluster.shards <= 4096:
        raise InputError(f"shards is {cluster.shards}; it must be a whole number from 1 to 4096")
    check_limit(cluster.shard_timeout)
    if options.speed is not None:
        raise InputError("--speed is for replaying a file in one process; leave it out with --engine ray")
    stream_burn_in(config.training.burn_in)
    refuse_reinforced(getattr(config.build(), "learning", None), "--engine")
    partitions = partitions_of(options.source)
    if options.workers > len(partitions):
        raise InputError(
            f"--workers is {options.workers}, and {options.source} has {len(partitions)} partition(s): a partition is read by one "
            f"worker. Give at most {len(partitions)} workers, or more partitions (docs/guide/live-learning.md)"
        )
    with ExitStack() as stack:
        stop = stack.enter_context(stop_signals())
        stack.enter_context(writing(options.out, "pbodl online"))
        stack.enter_context(naming_snapshot(options.out, "the same command continues from it"))
        snapshot = _begun(config, options, cluster, partitions, stop)
        if stop:
            raise Interrupted(stop.number or 0)
        plan = _plan(config, options, cluster, partitions, snapshot, stop)
        stack.enter_context(connected(cluster.address))
        stack.enter_context(handling(stop.note, *NUMBERS))  # Ray has just taken these signals for itself
        service = ClusterService(ClusterSession(plan), options, stop)
        stack.callback(service.session.close)
        page = stack.enter_context(closing(MetricsPage(service, service.setbacks, options.metrics_port, options.metrics_host)))
        figures = service.run(config, page, show)
    if stop.number is not None:
        raise Interrupted(stop.number)
    return figures


def _begun(config: Config, options: Options, cluster: ClusterOptions, partitions: list[Partition], stop: StopRequest) -> Snapshot:
    """The newest snapshot of the run, or the first one of a new run, which fixes where its partitions begin."""
    if not snapshots(options.out):
        _begin(config, options, cluster, partitions, stop)
    found = snapshots(options.out)
    snapshot = load_without_weights(found[-1])
    facts = snapshot.facts.get(CLUSTER)
    if facts is None:
        raise InputError(f"{options.out} was not started with --engine ray; choose another --out, or leave --engine out")
    saved = saved_options(facts["options"])._asdict()
    check_same(options.out, config, snapshot.model, options.join._asdict(), saved, options.given, facts.get("negatives"))
    kind = _kind(partitions)
    if facts["source"] != kind:
        raise InputError(f"{options.out} learns from {facts['source']}, and --source is {kind}; give what it was started with")
    return snapshot


def _begin(config: Config, options: Options, cluster: ClusterOptions, partitions: list[Partition], stop: StopRequest) -> None:
    """Learn the history, in this process, and write the first snapshot."""
    trained = trained_model(config, options)
    learner = StreamLearner.start(config, options.out, options.join, StreamPosition(), _first(config, options), trained)
    model = learner.model
    if not isinstance(model, DeepProbit):
        raise InputError(f"the model is {model.kind!r}; with --engine ray it must be a deep probit model, such as pair-fm")
    if options.burn_in:
        with open_log(list(options.burn_in), config.schema) as reader:
            for chunk in reader:
                learner.learn_history(chunk.batch, {})
                if stop:
                    return
    history = learner.history._replace(position=None)
    places = {partition.name: _start_of(partition, options.begin, stop, history) for partition in partitions}
    negatives = config.training.negatives.plain()
    about = {"options": options.join._asdict(), "source": _kind(partitions), "negatives": negatives}
    facts = {CLUSTER: about, PARTITIONS: places}
    write_file(options.out / "config.toml", to_toml(config).encode())
    _write_first(options, model, cluster.shards, facts)


def _write_first(options: Options, model: DeepProbit, shards: int, facts: dict[str, Any]) -> None:
    watchdog, watched = Watchdog(model).state()
    own = {"entries": {}, "variance": 0.0, "watchdog": watchdog, "rows": 0}

    def write(folder: Any) -> WrittenShards:
        parts: dict[str, Arrays] = {shard_part(n): share_of([model.state()], n, shards) for n in range(shards)}
        parts |= {"metrics": no_figures(), "watchdog": watched}
        return WrittenShards(shards, model.metrics(), facts | own, {name: write_part(folder, name, a) for name, a in parts.items()})

    options.out.mkdir(parents=True, exist_ok=True)
    save_written(model, options.out, write)


def _first(config: Config, options: Options) -> Batch | None:
    """Some rows of the history, for an automatic rate of negatives."""
    if not options.burn_in:
        return None
    with open_log(list(options.burn_in), config.schema) as reader:
        chunk = next(iter(reader), None)
    if chunk is None:
        raise InputError(f"--burn-in {', '.join(options.burn_in)} has no good rows; leave it out, or give a log that has some")
    return chunk.batch


def _start_of(partition: Partition, begin: str, stop: StopRequest, history: StreamHistory) -> dict[str, Any]:
    """The record of a partition that nobody has read yet."""
    source = open_source(partition.address)
    with closing(source):
        position = Broker(source, stop).ask(lambda: source.start(begin))
    facts = {"position": position.plain(), "counts": [0, 0, 0], "history": history._asdict(), "gaps": 0, "source": source.kind}
    return facts | {"rows": 0}


def _kind(partitions: list[Partition]) -> str:
    """What a run must read from when it continues: its kind of source, without hosts and folders."""
    scheme = partitions[0].address.partition("://")[0] if "://" in partitions[0].address else "files"
    return scheme.removesuffix("s") if scheme == "rediss" else scheme


def _plan(
    config: Config, options: Options, cluster: ClusterOptions, partitions: list[Partition], snapshot: Snapshot, stop: StopRequest
) -> SessionPlan:
    known = snapshot.facts[PARTITIONS]
    new = check_partitions(list(known), [partition.name for partition in partitions])
    # A new partition has its events from its first on; the history reaches as far as for the others.
    history = StreamHistory(**next(iter(known.values()))["history"])
    fresh = {one.name: _start_of(one, "start", stop, history) for one in partitions if one.name in new}
    saved = saved_options(snapshot.facts[CLUSTER]["options"])
    capacity = options.join.capacity if "capacity" in options.given else saved.capacity
    saved = saved._replace(capacity=max(-(-capacity // len(partitions)), 1))
    out = options.out.absolute()
    letters = options.dead_letters or str(out / "dead-letters")
    if "://" not in letters:
        Path(letters).mkdir(parents=True, exist_ok=True)
    task = ActorTask(
        b"", to_toml(config), saved._asdict(), (), fresh, str(out), str(out / "shards" / uuid.uuid4().hex), letters,
        options.accept_gap, options.until_end, (),
    )  # fmt: skip
    rows = minibatch(options.workers) if cluster.rows is None else cluster.rows
    training = config.training
    settings = WorkerSettings(options.workers, cluster.shards, rows, training.merge, cluster.half, burn_in_of(training.burn_in))
    return SessionPlan(snapshot, partitions, task, settings, cluster.address is not None, cluster.shard_timeout)


class ClusterService:
    """Looks after a session. `away` and `reconnects` are for `MetricsPage`."""

    reconnects = 0

    def __init__(self, session: ClusterSession, options: Options, stop: StopRequest) -> None:
        self.session, self._options, self._stop = session, options, stop
        self.setbacks = Setbacks()
        self.name = options.source
        if options.release:
            session.watchdog.accept()
        self._facts = {CLUSTER: session.plan.snapshot.facts[CLUSTER]}
        self._publisher: ClusterPublisher | None = None
        self._saved_at = self._shown_at = time.monotonic()
        self._rows = session.seen

    @property
    def away(self) -> str | None:
        """Why the broker of some partition does not answer, while that lasts."""
        reports = (report for report in self.session.reports if report is not None)
        return next((own.away for report in reports for own in report.partitions.values() if own.away), None)

    def run(self, config: Config, page: MetricsPage, show: Show) -> dict[str, Any]:
        """Learn until a signal arrives or, with `until_end`, until the stream ends; returns the figures."""
        session = self.session
        curves = Curves(self._options.out)
        with self.setbacks.tolerating("writing the curves"):
            curves.rewind(session.seen)
        with ExitStack() as stack:
            if self._options.publish:
                every, compact = self._options.publish_every, not self._options.publish_exact
                shards = session.plan.settings.shards
                self._publisher = ClusterPublisher(session, self._options.publish, shards, every, compact)
                stack.callback(self._publisher.close)
            try:
                while not self._stop and not self._ended():
                    if (abnormal := session.poll()) is not None:
                        logger.warning("publishing is held: %s", abnormal)
                    session.adapt_when_due()
                    self._tend(config)
                    if time.monotonic() - self._shown_at >= EVERY:
                        self._show(config, page, curves, show)
                    self._stop.wait(POLL)
            except InputError:
                self._save_at_last()  # everything before the error is sound
                raise
            self._save_at_last()
            self._publish(wait=True)
            self._show(config, page, curves, show)
        return self.figures() | {"ledger": session.ledger}

    def _ended(self) -> bool:
        """Whether the stream has ended and all of it is learned."""
        return self._options.until_end and self.session.done

    def _tend(self, config: Config) -> None:
        """Publish and save, if it is time."""
        if self._publisher is not None and self._publisher.is_due:
            self._publish()
        if time.monotonic() - self._saved_at >= config.training.snapshot_every and not self.session.saving:
            self.session.save(self._facts)
            self._saved_at = time.monotonic()

    def _save_at_last(self) -> None:
        """The last snapshot of the session; if something dies meanwhile, once more."""
        for attempt in range(1, AGAIN + 1):
            try:
                self.session.save(self._facts, wait_for_it=True)
                return
            except VOID:
                if attempt == AGAIN:
                    raise
                time.sleep(attempt)

    def _publish(self, wait: bool = False) -> None:
        """Publish, unless the watchdog holds it; what cannot be written now is published later."""
        watchdog, publisher = self.session.watchdog, self._publisher
        if publisher is None or watchdog.held is not None or watchdog.doubt is not None:
            return
        with self.setbacks.tolerating(f"publishing to {publisher.folder.location}"):
            counters, rows = self.counters(), self.session.about()[0].counters["rows_learned"]
            publisher.publish(rows, {"events": counters["events"], "watermark": counters["watermark"]}, wait)

    def counters(self) -> dict[str, Any]:
        """The counters of all partitions together."""
        parts = [own for report in self.session.reports if report is not None for own in report.partitions.values()]
        total: dict[str, Any] = {"events": 0, "bad": 0, "gaps": 0, "waiting": 0}
        for own in parts:
            for name, value in own.counters.items():
                total[name] = total.get(name, 0) + value
        marks = [own.watermark for own in parts if own.watermark is not None]
        lags = [own.lag for own in parts if own.lag is not None]
        return total | {"watermark": max(marks, default=None), "lag": sum(lags) if lags else None}

    def figures(self) -> dict[str, Any]:
        """Counters and figures, as plain data."""
        session = self.session
        figures = figures_of(self.counters() | counters_of(session.about()), session.metrics)
        lost = sum(report.lost_predictions for report in session.reports if report is not None)
        watchdog = session.watchdog
        return figures | {"alarms": watchdog.alarms, "held": watchdog.held, "lost_predictions": lost}

    def _show(self, config: Config, page: MetricsPage, curves: Curves, show: Show) -> None:
        now, values = time.monotonic(), self.figures()
        seconds, rows = max(now - self._shown_at, 1e-9), values["rows_learned"]
        speed = (rows - self._rows) / seconds
        watermark = values["watermark"]
        values["event_lag_seconds"] = None if watermark is None else time.time() - watermark
        values["version"] = None if self._publisher is None else self._publisher.version
        page.values = dict(values)
        show({**values, "rows_per_second": speed, "away": self.away})
        figures = plain(self.session.metrics.figures())
        point = {"time": time.time(), "rows": rows, "rows_per_second": speed, "stream_time": watermark, "held": values["held"]}
        point |= {"lag": values["event_lag_seconds"], "models": {config.kind: {"progressive": figures, "window": figures}}}
        self._shown_at, self._rows = now, rows
        with self.setbacks.tolerating("writing the curves"):
            curves.append(point)
