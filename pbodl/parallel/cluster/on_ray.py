"""Parallel training on Ray (`pbodl train --engine ray`): starts the processes, and nothing else.

Shards (`durable_shard`) and workers (`worker_slot`) are actors. The coordinator (`coordinator`) runs in the process that reads the
log. Ray places the actors by the CPUs they request, restarts them when their process or node dies, and knows their addresses.
They talk over their own sockets (`remote_calls`) and repeat calls that were not answered; (source, sequence) numbers ensure that a
repeated call takes effect once.

On one machine, everything listens on 127.0.0.1 alone. Start a cluster with `ray start`: docs/guide/scaling.md.
"""

import contextlib
import logging
import os
import secrets
import shutil
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.models.clock import Duration
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.coordinator import Coordinator, schedule_of, source_of
from pbodl.parallel.cluster.dispatch import SocketDispatcher
from pbodl.parallel.cluster.durable_shard import DurableShard, write_first
from pbodl.parallel.cluster.ledger import Ledger, check
from pbodl.parallel.cluster.remote_calls import TOKEN, Address, CallClients, CallServer
from pbodl.parallel.cluster.sharding import deal, empty_part, join
from pbodl.parallel.cluster.work_format import decode_work, encode_done
from pbodl.parallel.cluster.worker_slot import DEPTH, WorkerSlot
from pbodl.parallel.cluster_prior import adapts, take_prior
from pbodl.parallel.merge import DEFAULT
from pbodl.parallel.message import encode
from pbodl.parallel.shard import Shard
from pbodl.system.extras import install_line
from pbodl.system.tensors import Bytes, unpack
from pbodl.training.run import Run

# Request half of the cluster's CPUs, at most one per actor: if half of the nodes die, their actors fit on the others.
ASKED = 0.5
PATIENCE = 180  # seconds for all actors to start
# Ray listens on all interfaces, unless it believes that this machine cannot be part of a cluster.
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


class RaySettings(NamedTuple):
    """The options of the command line."""

    workers: int = 1
    shards: int = 1
    rows: int | None = None  # of a minibatch
    merge: str = DEFAULT
    burn_in: Duration | None = None
    half: bool = True  # messages travel in 16 bits
    address: str | None = None


class ShardActor:
    """A shard in its own process; a new process continues from the journal."""

    def __init__(self, recipe: bytes, number: int, shards: int, folder: str, sync: bool, token: bytes) -> None:
        import ray

        self._shard = shard = DurableShard(empty_part(_model(recipe), shards), number, folder, sync)
        self._lock = threading.Lock()
        methods: dict[str, Callable[..., Bytes]] = {"pull": shard.pull, "push": shard.push, "evidence": shard.evidence}
        self._server = CallServer(
            {name: self._alone(method) for name, method in methods.items()}, ray.util.get_node_ip_address(), token
        )

    def address(self) -> Address:
        return self._server.address

    def state(self) -> bytes:
        with self._lock:
            return self._shard.state()

    def _alone(self, method: Callable[..., Bytes]) -> Callable[..., Bytes]:
        def call(*given: Bytes) -> Bytes:
            with self._lock:
                return method(*given)

        return call


class WorkerActor:
    """A worker slot in its own process, which keeps no state that the shards do not have."""

    def __init__(self, recipe: bytes, source: str, names: Sequence[str], merge: str, half: bool, token: bytes) -> None:
        import ray

        # By name: handles passed as arguments could be lost with the node that keeps them.
        shards: list[Any] = [ray.get_actor(name) for name in names]
        find: Callable[[int], Any] = lambda number: ray.get(shards[number].address.remote())  # noqa: E731
        clients = CallClients(len(shards), find, token)
        self._slot = WorkerSlot(_model(recipe), source, len(shards), clients.ask, merge, half)
        self._server = CallServer({"learn": self._learn}, ray.util.get_node_ip_address(), token)

    def address(self) -> Address:
        return self._server.address

    def _learn(self, content: Bytes) -> Bytes:
        return encode_done(self._slot.learn(decode_work(content)))


class OnRay:
    """Learns for a run instead of its model (`training.run.LogLearner`)."""

    def __init__(self, model: DeepProbit, folder: Path, settings: RaySettings) -> None:
        import ray

        self._model, self._read, self._shards = model, 0, settings.shards
        recipe = msgspec.json.encode({"kind": model.kind, "schema": model.schema, "spec": model.spec})
        cpus = min(1.0, int(1e4 * ASKED * ray.cluster_resources().get("CPU", 1.0) / (settings.workers + settings.shards)) / 1e4)
        options = {"num_cpus": cpus, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
        make_shard: Any = ray.remote(ShardActor)
        make_worker: Any = ray.remote(WorkerActor)
        # On one machine no sync is needed: a crash ends this process, too, and the run then resumes from its last snapshot.
        sync = settings.address is not None
        token = secrets.token_bytes(TOKEN)
        self.shards, names = [], []
        for shard in deal(model, settings.shards):
            place = folder / str(shard.number)
            write_first(shard, place)
            names.append(f"pbodl-{uuid.uuid4().hex}-shard-{shard.number}")
            made = make_shard.options(name=names[-1], **options)
            self.shards.append(made.remote(recipe, shard.number, settings.shards, str(place), sync, token))
        make_worker = make_worker.options(**options)
        rest = names, settings.merge, settings.half, token
        self.workers = [make_worker.remote(recipe, source_of(n), *rest) for n in range(settings.workers)]
        self._started(cpus, settings)
        rows = minibatch(settings.workers) if settings.rows is None else settings.rows
        schedule = schedule_of(settings.workers, rows, settings.burn_in)
        self.dispatcher = SocketDispatcher(settings.workers, lambda worker: _get(self.workers[worker].address.remote()), token)
        self._clients = CallClients(settings.shards, lambda shard: _get(self.shards[shard].address.remote()), token)
        adapt = self._adapt if adapts(model, settings.workers, settings.merge) else None
        self.coordinator = Coordinator(self.dispatcher, schedule, settings.workers, model.rows_learned, adapt)
        self._moments = 0

    def _started(self, cpus: float, settings: RaySettings) -> None:
        """Wait for all actors."""
        import ray

        try:
            ray.get([actor.address.remote() for actor in (*self.workers, *self.shards)], timeout=PATIENCE)
        except ray.exceptions.GetTimeoutError as error:
            raise InputError(
                f"{settings.workers} workers and {settings.shards} shards did not start within {PATIENCE} s; each requests {cpus} "
                "CPUs; run `ray status` to see what the cluster has left"
            ) from error
        except ray.exceptions.RayActorError as error:
            raise InputError(f"an actor could not start: {error}") from error

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        self._read += len(batch)
        return self.coordinator.learn(batch)

    def _adapt(self) -> None:
        self._moments += 1
        evidence = [unpack(answer)["evidence"] for answer in self._clients.ask([("evidence", ())] * self._shards)]
        content = encode(take_prior(self._model, evidence, self._moments))
        self._clients.ask([("push", (content,))] * self._shards)

    def close(self) -> None:
        """Stop waiting and shut down."""
        self.dispatcher.close()
        self._clients.close()

    def gather(self) -> None:
        self._model.load_state(join(self._states()).state())

    def ledger(self) -> Ledger:
        """Compare what the shards applied with what was read."""
        return check(self.coordinator.accounts, [shard.ledger for shard in self._states()], self._read)

    def summary(self) -> dict[str, Any]:
        ledger, staleness = self.ledger(), np.array(self.coordinator.staleness or [0])
        return {
            "ledger": ledger.asdict(), "lost_predictions": self.coordinator.lost_predictions,
            "staleness": {"mean": float(staleness.mean()), "most": int(staleness.max())},
        }  # fmt: skip

    def _states(self) -> list[Shard]:
        parts = []
        for number, shard in enumerate(self.shards):
            part = Shard(empty_part(self._model, self._shards), number)
            part.load_state(unpack(_get(shard.state.remote())))
            parts.append(part)
        return parts


def minibatch(workers: int) -> int:
    """Rows of a minibatch, so that about 4096 rows are under way: more cost accuracy, fewer cost messages."""
    return 1024 if workers == 1 else max(64, min(1024, 4096 // (DEPTH * workers)))


def ray_for(settings: RaySettings) -> Callable[[Run], contextlib.AbstractContextManager[OnRay]]:
    """A context manager that starts Ray and the actors for a run, as the options say, and stops them at its end."""
    schedule_of(settings.workers, settings.rows or 1, settings.burn_in)  # report wrong options before anything starts
    if not 1 <= settings.shards <= 4096:
        raise InputError(f"shards is {settings.shards}; it must be a whole number from 1 to 4096")

    @contextlib.contextmanager
    def engine(run: Run) -> Iterator[OnRay]:
        if not isinstance(run.model, DeepProbit):
            raise InputError(f"the engine is 'ray', but a {run.model.kind!r} model learns in one process only; leave --engine out")
        if settings.burn_in is not None and not settings.burn_in.in_rows and run.model.counts_rows:
            raise InputError("a burn-in given as time needs a schema with a time column; give it in rows, such as 100k")
        folder = (run.folder / "shards").absolute()
        shutil.rmtree(folder, ignore_errors=True)
        with _connected(settings.address):
            learner = OnRay(run.model, folder, settings)
            try:
                yield learner
            finally:
                learner.close()
                _stop([*learner.workers, *learner.shards])
        shutil.rmtree(folder, ignore_errors=True)

    return engine


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """A connection to the cluster at `address`, or to a local one that ends with the training."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None or address.startswith(("127.0.0.1:", "localhost:")):
        os.environ.setdefault(LOOPBACK, "0")
    try:
        import ray
    except ImportError as error:
        raise InputError(f"the engine 'ray' needs Ray, which is not installed; run: {install_line('cluster')}") from error
    if ray.is_initialized():
        yield
        return
    _reach(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
    try:
        ray.init(address=address or "local", **options)
    except (ConnectionError, ValueError) as error:
        raise InputError(
            f"cannot connect to the Ray cluster at {address}: {error}. Start one with `ray start --head`; if it requires a token, "
            "set RAY_AUTH_MODE=token"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str | None) -> None:
    """Fail at once if nothing listens on host:port; Ray would retry for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise InputError(f"there is no Ray cluster at {address}: {error}. Start one with `ray start --head`") from error


def _get(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayActorError as error:
        raise InputError(f"an actor died and could not be restarted, so the training failed: {error}") from error


def _stop(actors: Sequence[Any]) -> None:
    import ray

    for actor in actors:
        ray.kill(actor, no_restart=True)


def _model(recipe: bytes) -> DeepProbit:
    """An empty model of the kind that is being trained."""
    import pbodl.baselines
    import pbodl.models.pair_fm  # noqa: F401  both register kinds of models

    given = msgspec.json.decode(recipe)
    kind = Model.kinds[given["kind"]]
    model = kind.from_spec(msgspec.convert(given["schema"], Schema), msgspec.convert(given["spec"], kind.Spec))
    assert isinstance(model, DeepProbit)
    return model
