"""A stream worker in a process of its own: reads in the background, learns in a thread, and answers the coordinator over a socket.

    pause        hold as soon as no minibatch is under way, and keep the records of this moment
    resume       go on
    write        write the records that `pause` kept into the folder of a snapshot
    report       how far it is, and its figures since the last report

A process that is started again, by Ray, continues from the records of the newest snapshot. If it finds that it has a successor
(`Fenced`), or fails for a reason that no person can mend, it ends.
"""

import os
import threading
import time
import tomllib
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.models.snapshot import load_parts, snapshots, write_part
from pbodl.parallel.cluster.on_ray import model_of
from pbodl.parallel.cluster.ray_actors import finder, node_host
from pbodl.parallel.cluster.remote_calls import Address, CallClients, CallServer
from pbodl.parallel.shard import Fenced
from pbodl.streaming.cluster.partition_learner import PartitionLearner
from pbodl.streaming.cluster.stream_worker import PartitionLane, StreamWorker, WorkerSettings
from pbodl.streaming.dead_letters import DeadLetters
from pbodl.streaming.events import EventDecoder
from pbodl.streaming.same_run import StreamOptions
from pbodl.streaming.sources.event_source import StreamPosition, open_source
from pbodl.streaming.stream_reader import AHEAD, ReadStep, StreamReader
from pbodl.streaming.watchdog import StretchEvidence
from pbodl.system.patience import when_there_is_room
from pbodl.system.read_ahead import ReadAhead
from pbodl.system.tensors import Bytes, pack, unpack
from pbodl.training.config import check_config

BUSY = 2.0  # seconds that the coordinator waits for the end of a minibatch before it asks again
IDLE = 0.01  # seconds to wait where nothing is to be learned
PARTITIONS = "partitions"  # the fact of a snapshot that has the plain data of their records


class ActorTask(NamedTuple):
    """What a stream worker is started with, as plain data."""

    recipe: bytes  # of the model
    config: str  # TOML
    options: dict[str, Any]  # `StreamOptions`
    partitions: tuple[tuple[str, str], ...]  # names and addresses
    fresh: dict[str, Any]  # where partitions begin that no snapshot has yet
    run: str  # folder
    session: str  # folder of this start of the cluster
    dead_letters: str
    accept_gap: bool
    until_end: bool
    settings: tuple[Any, ...]  # `WorkerSettings`
    shard_timeout: float | None = None  # seconds that a shard may be silent before it is asked anew


class RecordStart(NamedTuple):
    """The facts that `ActorReport` gives for a partition."""

    facts: dict[str, Any]
    ledger: dict[str, int]
    counters: dict[str, int]
    watermark: float | None
    lag: int | None
    away: str | None


class ActorReport(NamedTuple):
    """What a worker says about itself, as JSON; `metrics` and `evidence` travel beside it, as arrays."""

    epoch: int
    number: int
    partitions: dict[str, RecordStart]
    seen: int
    brakes: int
    lost_predictions: int
    done: bool  # all its sources have ended, and nothing is left to learn
    failure: str | None
    is_input_error: bool


class StreamActor:
    """The actor. It starts held, until the coordinator's first `resume`."""

    def __init__(self, task: ActorTask, shards: Sequence[str], token: bytes) -> None:
        task = ActorTask(*task)
        self._epoch = when_there_is_room(lambda: new_epoch(Path(task.session) / "epochs"), "a stream worker")
        self._turn = threading.Condition()
        self._held, self._resting = True, False
        self._failure: tuple[str, bool] | None = None
        self._report, self._number = b"", 0
        self._records: dict[str, dict[str, Any]] = {}
        self._lanes: list[tuple[PartitionLane, StreamReader, ReadAhead[ReadStep]]] = []
        self._worker: StreamWorker | None = None
        self._clients = CallClients(len(shards), finder(shards), token, task.shard_timeout)
        threading.Thread(target=self._run, args=(task,), daemon=True).start()
        methods: dict[str, Callable[..., Bytes]] = {
            "pause": self.pause,
            "resume": self.resume,
            "write": self.write,
            "report": self.report,
        }
        self._server = CallServer(methods, node_host(), token)

    def address(self) -> Address:
        return self._server.address

    def _start(self, task: ActorTask) -> StreamWorker:
        model, config = model_of(task.recipe), check_config(tomllib.loads(task.config))
        options, settings = StreamOptions(**task.options), WorkerSettings(*task.settings)
        newest = snapshots(task.run)[-1]
        found, arrays = load_parts(newest, [part_of_partition(name) for name, _ in task.partitions])
        for name, address in task.partitions:
            facts = found[PARTITIONS].get(name) or task.fresh[name]
            learner = PartitionLearner(name, config, model, options, StreamPosition.of(facts["position"]))
            if part_of_partition(name) in arrays:
                learner.continue_record(facts, arrays[part_of_partition(name)])
            else:
                learner.continue_from(facts)
            learner.forgive()
            target = task.dead_letters if "://" in task.dead_letters else Path(task.dead_letters) / f"{name}.jsonl"
            letters = DeadLetters(target, address, learner.bad)
            lane = PartitionLane(learner, task.accept_gap, letters.write)
            decoder = EventDecoder(config.schema, model.spec.capacity, options.outcome)
            reader = StreamReader(open_source(address), decoder, task.accept_gap, task.until_end)
            self._lanes.append((lane, reader, ReadAhead(reader.steps(learner.position), AHEAD)))
        return StreamWorker(model, [lane for lane, _, _ in self._lanes], settings, self._epoch, self._clients.ask)

    def _run(self, task: ActorTask) -> None:
        try:
            self._worker = self._start(task)
            while True:
                self._rest()
                if not self._step():
                    time.sleep(IDLE)
        except Fenced:
            os._exit(1)
        except InputError as error:
            self._failure = str(error), True
        except Exception:
            self._failure = traceback.format_exc(), False
        with self._turn:  # what was learned until then is sound, and may be saved
            self._resting = True
            self._turn.notify_all()

    def _rest(self) -> None:
        """Between two minibatches: hold, if the coordinator wants that."""
        with self._turn:
            self._resting = True
            self._turn.notify_all()
            self._turn.wait_for(lambda: not self._held)
            self._resting = False

    def _step(self) -> bool:
        """Join what was read, and learn one minibatch of each partition; returns whether there was anything to do."""
        assert self._worker is not None
        worked = False
        for lane, _, ahead in self._lanes:
            while not lane.ended and lane.learner.pending < self._worker.settings.rows:
                step, lane.ended = _poll(ahead)
                if step is None:
                    break
                lane.take(step)
                worked = True
            if (learned := self._worker.begin(lane)) is not None:
                self._worker.finish(learned)
                worked = True
        return worked

    def pause(self, keeping: Bytes) -> Bytes:
        """Hold, and return b"1"; b"" if a minibatch is still under way. If `keeping` is b"1", keep the records for `write`."""
        with self._turn:
            self._held = True
            if not self._turn.wait_for(lambda: self._resting, BUSY):
                return b""
        if keeping == b"1" and self._worker is not None:
            self._records = {lane.learner.name: lane.learner.record()[1] for lane, _, _ in self._lanes}
        return b"1"

    def resume(self) -> Bytes:
        with self._turn:
            self._held = False
            self._turn.notify_all()
        return b""

    def write(self, folder: Bytes) -> Bytes:
        """Write the records of the last `pause`; returns what the manifest says about them."""
        place, records = folder.decode(), self._records
        return msgspec.json.encode(
            {part_of_partition(name): write_part(place, part_of_partition(name), arrays) for name, arrays in records.items()}
        )

    def report(self, number: Bytes, limit: Bytes) -> Bytes:
        """Report `number`, with the figures since the one before; the same number again gives the same answer."""
        worker = self._worker
        if worker is None:
            return self._nothing()
        worker.limit = float(limit)
        if int(number) != self._number:
            with self._turn:  # not while a minibatch is counted
                held, self._held = self._held, True
                resting = self._turn.wait_for(lambda: self._resting, BUSY)
                if resting:
                    self._report, self._number = self._figures(worker, int(number)), int(number)
                self._held = held
                self._turn.notify_all()
            if not resting:
                return self._nothing()
        return self._report

    def _nothing(self) -> bytes:
        """A report that only says that the process is alive: it has yet to start, or waits for a shard that is being restarted."""
        failure, is_input_error = self._failure or (None, False)
        return pack({"report": _text(ActorReport(self._epoch, 0, {}, 0, 0, 0, False, failure, is_input_error))})

    def _figures(self, worker: StreamWorker, number: int) -> bytes:
        metrics, evidence = worker.take_evidence()
        failure, is_input_error = self._failure or (None, False)
        partitions = {}
        for lane, reader, _ in self._lanes:
            learner, mark = lane.learner, lane.learner.join.watermark
            counters = learner.join.metrics() | {"events": learner.events, "bad": learner.bad, "gaps": learner.gaps}
            facts = learner.record_facts()
            watermark = mark if mark == mark else None
            partitions[learner.name] = RecordStart(facts, learner.ledger(), counters, watermark, reader.lag, reader.source.away)
        done = all(lane.done for lane, _, _ in self._lanes)
        about = ActorReport(
            self._epoch, number, partitions, worker.seen, worker.schedule.brakes, worker.lost_predictions, done, failure,
            is_input_error,
        )  # fmt: skip
        arrays = {f"metrics.{name}": array for name, array in metrics.items()}
        arrays |= {"evidence.sums": evidence.sums, "evidence.missing": evidence.missing}
        return pack(arrays | {"evidence.rows": np.array([evidence.rows]), "report": _text(about)})


def _poll(ahead: ReadAhead[ReadStep]) -> tuple[ReadStep | None, bool]:
    """The next pack, if one is ready, and whether the stream has ended."""
    for step in ahead.polled(0.0):
        return step, False
    return None, True


def _text(report: ActorReport) -> NDArray[np.uint8]:
    return np.frombuffer(msgspec.json.encode(report), np.uint8)


def decode_report(content: Bytes) -> tuple[ActorReport, dict[str, NDArray], StretchEvidence | None]:
    """A report, the state of its metrics, and the watchdog's evidence; without the latter two if the worker has yet to start."""
    arrays = unpack(content)
    report = msgspec.json.decode(arrays.pop("report").tobytes(), type=ActorReport)
    if "evidence.rows" not in arrays:
        return report, {}, None
    evidence = StretchEvidence(arrays["evidence.sums"], arrays["evidence.missing"], int(arrays["evidence.rows"][0]))
    return report, {name.removeprefix("metrics."): array for name, array in arrays.items() if name.startswith("metrics.")}, evidence


def part_of_partition(name: str) -> str:
    """The part of a snapshot that holds the record of a partition."""
    return f"partition-{name}"


def new_epoch(folder: Path) -> int:
    """A number above all that were given out before; no two processes get the same."""
    folder.mkdir(parents=True, exist_ok=True)
    number = max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=0) + 1
    while True:
        try:
            os.close(os.open(folder / str(number), os.O_CREAT | os.O_EXCL))
            return number
        except FileExistsError:
            number += 1
