"""The processes of a cluster that learns from a stream: started from a snapshot, asked, paused, saved and stopped.

The coordinator calls every worker by a thread of its own, so that one that hangs does not hold up the others. A worker that does
not answer for HUNG seconds is killed, and Ray starts it again. Should it live on somewhere, the shards refuse what it sends. Shards
that hang are replaced, too (`shard_watch`).
"""

import logging
import secrets
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pbodl.errors import InputError
from pbodl.models.adaptation import next_moment
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.snapshot import Snapshot, WrittenShards, load_share, save_written, shard_part, write_part
from pbodl.parallel.cluster.durable_shard import AboutShard, counters_of, decode_about
from pbodl.parallel.cluster.on_ray import adapt_shards, recipe_of, start_shards
from pbodl.parallel.cluster.ray_actors import Actors
from pbodl.parallel.cluster.remote_calls import TOKEN, CallClients
from pbodl.parallel.cluster.shard_watch import ShardWatch
from pbodl.parallel.cluster.sharding import empty_part
from pbodl.parallel.cluster_prior import adapts
from pbodl.streaming.cluster.cluster_snapshot import VoidSnapshot, check_cut, check_sound, entries_of, priors_of, restored_shard
from pbodl.streaming.cluster.partition_list import Partition
from pbodl.streaming.cluster.stream_actor import PARTITIONS, ActorReport, ActorTask, StreamActor, decode_report, part_of_partition
from pbodl.streaming.cluster.stream_worker import WorkerSettings
from pbodl.streaming.watchdog import StretchEvidence, Watchdog
from pbodl.system.forked_work import CopyFailed
from pbodl.system.tensors import Arrays, Bytes
from pbodl.training.stream_metrics import StreamMetrics

logger = logging.getLogger(__name__)
HUNG = 60.0  # seconds without an answer after which a worker counts as dead
VOID = (VoidSnapshot, CopyFailed, OSError)


class SessionPlan(NamedTuple):
    """What a session is started with."""

    snapshot: Snapshot  # without weights
    partitions: list[Partition]
    task: ActorTask  # of a worker; each gets its own partitions
    settings: WorkerSettings
    sync: bool  # journals survive a crash of a machine
    shard_timeout: float  # seconds after which a shard that does not answer is replaced


class ClusterSession:
    """Shards and workers that have started. `model` is empty, and says what kind of model they hold."""

    def __init__(self, plan: SessionPlan) -> None:
        model = plan.snapshot.model
        assert isinstance(model, DeepProbit)
        self.model, self.plan = model, plan
        facts, settings = plan.snapshot.facts, plan.settings
        self.metrics, self.watchdog = StreamMetrics(), Watchdog(model)
        self.metrics.load_state(plan.snapshot.parts["metrics"])
        self.watchdog.load_state(facts["watchdog"], plan.snapshot.parts["watchdog"])
        self.reports: list[ActorReport | None] = [None] * settings.workers
        self._numbers = [0] * settings.workers  # of the last report of each worker
        self._epochs = [0] * settings.workers
        self._priors, self.seen = priors_of(facts["entries"]), plan.snapshot.counters["rows_learned"]
        self._adapts = adapts(model, settings.workers, settings.merge)
        self.limit = next_moment(self.seen) if self._adapts else float("inf")  # rows at which the workers stop for a new prior
        self._saving: threading.Thread | None = None
        self._start(secrets.token_bytes(TOKEN))

    def _start(self, token: bytes) -> None:
        plan, settings, session = self.plan, self.plan.settings, Path(self.plan.task.session)
        shutil.rmtree(session.parent, ignore_errors=True)
        self.actors = actors = Actors(settings.workers + settings.shards)
        facts, path = plan.snapshot.facts, plan.snapshot.path
        shards = (
            restored_shard(
                _loaded(self.model, path, number, settings.shards), number, facts["entries"], facts["variance"]
            )
            for number in range(settings.shards)
        )  # fmt: skip
        self._shard_names = start_shards(actors, shards, settings.shards, recipe_of(self.model), session, plan.sync, token)
        recipe = recipe_of(self.model)  # with what the snapshot says of layers that a migration carried
        self._worker_names = []
        for number in range(settings.workers):
            own = tuple((name, address) for name, address in plan.partitions[number :: settings.workers])
            task = plan.task._replace(recipe=recipe, partitions=own, settings=tuple(settings), shard_timeout=plan.shard_timeout)
            self._worker_names.append(actors.start(StreamActor, f"stream-{number}", tuple(task), self._shard_names, token))
        actors.wait()
        self._shards = CallClients(settings.shards, actors.finder(self._shard_names), token)
        self._savers = CallClients(settings.shards, actors.finder(self._shard_names), token)  # for the thread that saves
        self._publishers = CallClients(settings.shards, actors.finder(self._shard_names), token)  # for the thread that publishes
        callers = [self._shards, self._savers, self._publishers]
        self.watch = ShardWatch(actors, self._shard_names, token, plan.shard_timeout, callers)
        names = self._worker_names
        self._workers = [CallClients(1, actors.finder([name]), token) for name in names]
        self._pool = ThreadPoolExecutor(settings.workers, "pbodl-coordinator")

    def _ask_workers(self, *calls: tuple[str, tuple[Bytes, ...]]) -> list[Bytes]:
        """One call to each worker, or the same to all."""
        asked = calls if len(calls) == len(self._workers) else calls * len(self._workers)
        futures = [self._pool.submit(client.ask, [call]) for client, call in zip(self._workers, asked, strict=True)]
        _, hung = wait(futures, HUNG)
        for number, future in enumerate(futures):
            if future in hung:
                logger.warning("worker %d has not answered for %.0f s, and is started again", number, HUNG)
                self.actors.restart(self._worker_names[number])
                self._workers[number].ask_again()  # on a machine that hangs as a whole, nothing ends the connection
        return [future.result()[0] for future in futures]

    def poll(self, saving: bool = False) -> str | None:
        """Ask all workers how far they are; returns what the watchdog finds abnormal. InputError if one of them has failed.

        saving  processes that have just started stay held, and those that have failed may be saved as they are
        """
        limit = str(self.limit).encode()
        calls = [("report", (str(number + 1).encode(), limit)) for number in self._numbers]
        abnormal = None
        for worker, answer in enumerate(self._ask_workers(*calls)):
            report, metrics, evidence = decode_report(answer)
            if report.failure is not None and not saving:
                told = f"worker {worker} failed: {report.failure}"
                raise InputError(report.failure) if report.is_input_error else RuntimeError(told)
            if evidence is None:
                continue
            if report.epoch != self._epochs[worker] and not saving:
                # The figures that died with its predecessor are left out.
                self._epochs[worker] = report.epoch
                self._workers[worker].ask([("resume", ())])
            self._numbers[worker] = report.number
            self.reports[worker] = report
            abnormal = self._gather(metrics, evidence) or abnormal
            self.seen = max(self.seen, report.seen)
        return abnormal

    def _gather(self, metrics: Arrays, evidence: StretchEvidence) -> str | None:
        if metrics["sums"][0] > 0:
            self.metrics.merge(metrics)
        return self.watchdog.gather(evidence) if evidence.rows else None

    @property
    def done(self) -> bool:
        """Whether all sources have ended, and nothing is left to learn."""
        return all(report is not None and report.done for report in self.reports)

    @contextmanager
    def paused(self, keeping: bool = False) -> Iterator[None]:
        """Within the block, no minibatch is under way; with `keeping`, the workers keep the records of this moment."""
        while not all(self._ask_workers(("pause", (b"1" if keeping else b"0",)))):
            pass  # a worker may have to wait for a shard that is being restarted
        try:
            yield
        finally:
            self._ask_workers(("resume", ()))

    def adapt_when_due(self) -> bool:
        """Adapt the prior, if enough rows were learned since the last time."""
        if not self._adapts or self.seen < self.limit:
            return False
        with self.paused():
            self._priors = adapt_shards(self._shards, self.model, self.plan.settings.shards, self._priors)
            self.seen = self.about()[0].counters["rows_learned"]
            self.limit = next_moment(self.seen)
        self.poll()  # tells the workers how far they may go now
        return True

    def about(self) -> list[AboutShard]:
        """What the shards say about themselves."""
        return decode_about(self._shards.ask([("about", ())] * self.plan.settings.shards))

    def begin_publish(self, request: bytes) -> None:
        """Have all shards copy what they will publish (`PartRequest`)."""
        self._shards.ask([("begin_publish", (request,))] * self.plan.settings.shards)

    def publish(self, version: int) -> list[str]:
        """Have all shards write it; returns the lineages of their parts. For one thread at a time."""
        answers = self._publishers.ask([("publish", (str(version).encode(),))] * self.plan.settings.shards)
        return [answer.decode() for answer in answers]

    @property
    def saving(self) -> bool:
        """Whether a snapshot is being written."""
        return self._saving is not None and self._saving.is_alive()

    def save(self, facts: dict[str, Any], wait_for_it: bool = False) -> None:
        """Take a snapshot: returns when the cut is made and the workers go on, or, if asked to, when all is written."""
        if self._saving is not None:
            self._saving.join()
        cut = threading.Event()
        failures: list[Exception] = []

        def work() -> None:
            try:
                save_written(self.model, self.plan.task.run, lambda folder: self._write(folder.absolute(), facts, cut))
            except VOID as error:
                failures.append(error)
                logger.warning("a snapshot was given up, and will be taken again: %s", error)
            except Exception as error:
                failures.append(error)
                logger.exception("a snapshot failed")
            finally:
                cut.set()

        self._saving = threading.Thread(target=work, daemon=True)
        self._saving.start()
        if wait_for_it:
            self._saving.join()
            if failures:
                raise failures[0]
        cut.wait()

    def _write(self, folder: Path, facts: dict[str, Any], cut: threading.Event) -> WrittenShards:
        shards, place = self.plan.settings.shards, str(folder).encode()
        with self.paused(keeping=True):
            self.poll(saving=True)
            about = decode_about(self._savers.ask([("begin_save", (place,))] * shards))
            reports = [report for report in self.reports if report is not None]
            watchdog, watched = self.watchdog.state()
            arrays = {"metrics": self.metrics.state(), "watchdog": watched}
        found = {name: own for report in reports for name, own in report.partitions.items()}
        ledger = check_cut({name: own.ledger for name, own in found.items()}, about)
        self.ledger = ledger
        cut.set()
        check_sound(ledger)
        written = decode_about(self._savers.ask([("saved", (place,))] * shards))
        files = {shard_part(number): shard.file or {} for number, shard in enumerate(written)}
        for answer in self._ask_workers(("write", (place,))):
            files |= msgspec.json.decode(answer)
        if missing := [partition.name for partition in self.plan.partitions if part_of_partition(partition.name) not in files]:
            raise VoidSnapshot(f"the worker of partition {missing[0]!r} was started again")
        files |= {part: write_part(folder, part, own) for part, own in arrays.items()}
        own_facts = {
            PARTITIONS: {name: own.facts for name, own in found.items()}, "entries": entries_of(about), "ledger": ledger,
            "variance": about[0].variance, "watchdog": watchdog, "rows": sum(own.counters["events"] for own in found.values()),
        }  # fmt: skip
        return WrittenShards(shards, counters_of(about), facts | own_facts, files)

    def close(self) -> None:
        """Stop everything."""
        self.watch.close()
        for client in (self._shards, self._savers, self._publishers, *self._workers):
            client.close()
        self._pool.shutdown(wait=False)
        self.actors.stop()
        shutil.rmtree(Path(self.plan.task.session).parent, ignore_errors=True)


def _loaded(model: DeepProbit, path: Path, number: int, shards: int) -> DeepProbit:
    """A part of a snapshot. MODIFIES: model, which learns where forgetting leads its layers."""
    part = empty_part(model, shards)
    part.load_state(load_share(path, number, shards))
    model.dense.start[:], model.carried = part.dense.start, part.carried
    return part


def no_figures() -> Arrays:
    """The metrics of a run that has not begun."""
    return {name: np.asarray(array) for name, array in StreamMetrics().state().items()}
