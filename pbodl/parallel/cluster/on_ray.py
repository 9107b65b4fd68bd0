"""Parallel training on Ray (`pbodl train --engine ray`): starts the processes, and nothing else.

Shards (`durable_shard`) and workers (`worker_slot`) are actors (`ray_actors`). The coordinator (`coordinator`) runs in the process
that reads the log. They talk over their own sockets (`remote_calls`) and repeat calls that were not answered; (source, sequence)
numbers ensure that a repeated call takes effect once.
"""

import contextlib
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.models.adaptation import home_of, settle_home
from pbodl.models.clock import Duration
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.snapshot import WrittenShards, save_written, shard_part, write_part
from pbodl.parallel.cluster.coordinator import Coordinator, schedule_of, source_of
from pbodl.parallel.cluster.dispatch import SocketDispatcher
from pbodl.parallel.cluster.durable_shard import AboutShard, DurableShard, counters_of, decode_about, write_first
from pbodl.parallel.cluster.ledger import Ledger, check
from pbodl.parallel.cluster.ray_actors import Actors, connected, finder, node_host
from pbodl.parallel.cluster.remote_calls import TOKEN, Address, CallClients, CallServer
from pbodl.parallel.cluster.shard_publisher import ShardPublisher
from pbodl.parallel.cluster.shard_watch import ShardWatch, check_limit
from pbodl.parallel.cluster.sharding import deal, empty_part
from pbodl.parallel.cluster.work_format import decode_work, encode_done
from pbodl.parallel.cluster.worker_slot import DEPTH, WorkerSlot
from pbodl.parallel.cluster_prior import adapt_cluster, adapts
from pbodl.parallel.engines import SHARD_TIMEOUT
from pbodl.parallel.merge import DEFAULT
from pbodl.parallel.message import encode
from pbodl.parallel.shard import Shard
from pbodl.system.tensors import Arrays, Bytes, unpack
from pbodl.training.run import Run
from pbodl.training.visits.reinforcement import refuse_reinforced


class RaySettings(NamedTuple):
    """The options of the command line."""

    workers: int = 1
    shards: int = 1
    rows: int | None = None  # of a minibatch
    merge: str = DEFAULT
    burn_in: Duration | None = None
    half: bool = True  # messages travel in 16 bits
    address: str | None = None
    shard_timeout: float = SHARD_TIMEOUT  # seconds after which a shard that does not answer is replaced


class ShardActor:
    """A shard in its own process; a new process continues from the journal."""

    def __init__(self, recipe: bytes, number: int, shards: int, folder: str, sync: bool, token: bytes) -> None:
        self._shard = shard = DurableShard(empty_part(model_of(recipe), shards), number, folder, sync)
        self._lock = threading.Lock()
        publisher = ShardPublisher(shard.shard)
        alone: dict[str, Callable[..., Bytes]] = {"pull": shard.pull, "push": shard.push, "evidence": shard.evidence}
        alone |= {"about": shard.about, "claim": shard.claim, "begin_save": shard.begin_save}
        alone |= {"begin_publish": publisher.begin, "alive": lambda: b""}
        served = {name: self._alone(method) for name, method in alone.items()}
        self._server = CallServer({**served, "saved": self._saved, "publish": publisher.publish}, node_host(), token)

    def address(self) -> Address:
        return self._server.address

    def _saved(self, folder: Bytes) -> Bytes:
        with self._lock:
            written = self._shard.saved(folder)
        return written()

    def _alone(self, method: Callable[..., Bytes]) -> Callable[..., Bytes]:
        def call(*given: Bytes) -> Bytes:
            with self._lock:
                self._shard.journal.check_owned()  # a caller may still be connected to a process that was replaced
                return method(*given)

        return call


class WorkerActor:
    """A worker slot in its own process, which keeps no state that the shards do not have."""

    def __init__(
        self, recipe: bytes, source: str, names: Sequence[str], merge: str, half: bool, token: bytes, limit: float
    ) -> None:
        clients = CallClients(len(names), finder(names), token, limit)
        self._slot = WorkerSlot(model_of(recipe), source, len(names), clients.ask, merge, half)
        self._server = CallServer({"learn": self._learn}, node_host(), token)

    def address(self) -> Address:
        return self._server.address

    def _learn(self, content: Bytes) -> Bytes:
        return encode_done(self._slot.learn(decode_work(content)))


class OnRay:
    """Learns for a run instead of its model (`training.run.LogLearner`)."""

    def __init__(self, model: DeepProbit, folder: Path, settings: RaySettings) -> None:
        self._model, self._read, self._shards = model, 0, settings.shards
        recipe = recipe_of(model)
        token = secrets.token_bytes(TOKEN)
        self._actors = actors = Actors(settings.workers + settings.shards)
        # On one machine no sync is needed: a crash ends this process, too, and the run then resumes from its last snapshot.
        shards, sync = deal(model, settings.shards), settings.address is not None
        self.shards = start_shards(actors, shards, settings.shards, recipe, folder, sync, token)
        rest = self.shards, settings.merge, settings.half, token, settings.shard_timeout
        self.workers = [actors.start(WorkerActor, f"worker-{n}", recipe, source_of(n), *rest) for n in range(settings.workers)]
        actors.wait()
        rows = minibatch(settings.workers) if settings.rows is None else settings.rows
        schedule = schedule_of(settings.workers, rows, settings.burn_in)
        self.dispatcher = SocketDispatcher(settings.workers, actors.finder(self.workers), token)
        self._clients = CallClients(settings.shards, actors.finder(self.shards), token)
        self._watch = ShardWatch(actors, self.shards, token, settings.shard_timeout, [self._clients])
        adapt = self._adapt if adapts(model, settings.workers, settings.merge) else None
        self.coordinator = Coordinator(self.dispatcher, schedule, settings.workers, model.rows_learned, adapt)
        self._priors = 0

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        self._read += len(batch)
        return self.coordinator.learn(batch)

    def _adapt(self) -> None:
        self._priors = adapt_shards(self._clients, self._model, self._shards, self._priors)

    def close(self) -> None:
        """Stop waiting and shut down."""
        self._watch.close()
        self.dispatcher.close()
        self._clients.close()
        self._actors.stop()

    def save(self, run: Path, facts: Mapping[str, Any], parts: Mapping[str, Arrays]) -> Path:
        """Every shard writes its part; no process gathers the model."""

        def write(folder: Path) -> WrittenShards:
            given = (str(folder.absolute()).encode(),)
            self._clients.ask([("begin_save", given)] * self._shards)
            shards = decode_about(self._clients.ask([("saved", given)] * self._shards))
            files = {shard_part(number): shard.file or {} for number, shard in enumerate(shards)}
            files |= {part: write_part(folder, part, arrays) for part, arrays in parts.items()}
            return WrittenShards(self._shards, counters_of(shards), facts, files)

        return save_written(self._model, run, write)

    def ledger(self) -> Ledger:
        """Compare what the shards applied with what was read."""
        return self._check(self._about())

    def summary(self) -> dict[str, Any]:
        shards, staleness = self._about(), np.array(self.coordinator.staleness or [0])
        return {
            "ledger": self._check(shards).asdict(), "lost_predictions": self.coordinator.lost_predictions,
            "staleness": {"mean": float(staleness.mean()), "most": int(staleness.max())}, "counters": counters_of(shards),
        }  # fmt: skip

    def _about(self) -> list[AboutShard]:
        return decode_about(self._clients.ask([("about", ())] * self._shards))

    def _check(self, shards: Sequence[AboutShard]) -> Ledger:
        return check(self.coordinator.accounts, [shard.ledger for shard in shards], self._read)


def start_shards(
    actors: Actors, shards: Iterable[Shard], count: int, recipe: bytes, folder: Path, sync: bool, token: bytes
) -> list[str]:
    """Start an actor for each of `count` shards, with a journal in `folder`; returns their names. Holds one shard at a time."""
    names = []
    for shard in shards:
        place = folder / str(shard.number)
        write_first(shard, place)
        given = recipe, shard.number, count, str(place), sync, token
        names.append(actors.start(ShardActor, f"shard-{shard.number}", *given))
    return names


def adapt_shards(clients: CallClients, model: DeepProbit, shards: int, sent: int) -> int:
    """Adapt the prior of all shards by their evidence (`adapt_cluster`); nothing may be under way."""

    def evidence() -> list[NDArray[np.float64]]:
        return [unpack(answer)["evidence"] for answer in clients.ask([("evidence", ())] * shards)]

    return adapt_cluster(model, evidence, lambda message: clients.ask([("push", (encode(message),))] * shards), sent)


def minibatch(workers: int) -> int:
    """Rows of a minibatch, so that about 4096 rows are under way: more cost accuracy, fewer cost messages."""
    return 1024 if workers == 1 else max(64, min(1024, 4096 // (DEPTH * workers)))


def ray_for(settings: RaySettings) -> Callable[[Run], contextlib.AbstractContextManager[OnRay]]:
    """A context manager that starts Ray and the actors for a run, as the options say, and stops them at its end."""
    schedule_of(settings.workers, settings.rows or 1, settings.burn_in)  # report wrong options before anything starts
    if not 1 <= settings.shards <= 4096:
        raise InputError(f"shards is {settings.shards}; it must be a whole number from 1 to 4096")
    check_limit(settings.shard_timeout)

    @contextlib.contextmanager
    def engine(run: Run) -> Iterator[OnRay]:
        if not isinstance(run.model, DeepProbit):
            raise InputError(f"the engine is 'ray', but a {run.model.kind!r} model learns in one process only; leave --engine out")
        refuse_reinforced(run.model.learning, "--engine")
        if settings.burn_in is not None and not settings.burn_in.in_rows and run.model.counts_rows:
            raise InputError("a burn-in given as time needs a schema with a time column; give it in rows, such as 100k")
        folder = (run.folder / "shards").absolute()
        shutil.rmtree(folder, ignore_errors=True)
        with connected(settings.address):
            learner = OnRay(run.model, folder, settings)
            try:
                yield learner
            finally:
                learner.close()
        shutil.rmtree(folder, ignore_errors=True)

    return engine


def recipe_of(model: DeepProbit) -> bytes:
    """What `model_of` needs to make an empty model of the same kind in another process."""
    home = {name: array.tobytes() for name, array in home_of(model).items()}
    return msgspec.json.encode({"kind": model.kind, "schema": model.schema, "spec": model.spec, "home": home})


def model_of(recipe: bytes) -> DeepProbit:
    """An empty model of the kind that is being trained."""
    import pbodl.baselines
    import pbodl.models.pair_fm  # noqa: F401  both register kinds of models

    given = msgspec.json.decode(recipe)
    kind = Model.kinds[given["kind"]]
    model = kind.from_spec(msgspec.convert(given["schema"], Schema), msgspec.convert(given["spec"], kind.Spec))
    assert isinstance(model, DeepProbit)
    home = {name: np.frombuffer(msgspec.convert(text, bytes), np.float32) for name, text in given["home"].items()}
    settle_home(model, home)
    return model
