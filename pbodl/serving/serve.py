"""`pbodl serve`: one process follows the models, and workers answer requests. They share the models' memory and the socket.

    serve    bind the socket -> start workers -> load the models -> until a signal: announce new versions, replace dead workers,
             look for newer versions and for changes in the file of models -> stop the workers
    worker   receive versions -> answer requests -> on a signal, finish the requests under way

The followers run in their own process at a low priority, so that loading a delta does not slow down any request.
"""

import functools
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import msgspec
import uvicorn

from pbodl.errors import InputError
from pbodl.serving.models.followed_models import PAUSE, POLL_EVERY, FollowedModel, WorkerLink, check_folder, followed
from pbodl.serving.models.models_file import WatchedPlan, plan_of
from pbodl.serving.models.parts_follower import WHOLE, RowShare
from pbodl.serving.models.served_models import ONLY
from pbodl.serving.models.worker_models import WorkerModels
from pbodl.serving.ranking.decision_log import DecisionLog, OpenTarget, open_file_only
from pbodl.serving.sharing.share_service import ShareService
from pbodl.serving.web.http_connection import CONNECTIONS, HttpConnection, Peers
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.server_limits import Limits, Token
from pbodl.serving.web.server_metrics import FOLDER
from pbodl.system.process_memory import process_memory
from pbodl.system.stop_signals import StopRequest, stop_signals

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
GRACE = 10.0  # seconds that requests under way have to finish
SWITCH = 0.0005  # seconds that the thread which loads a new version may hold up a request
OTHER_FILES = 128  # that a worker may have open beside its connections
logger = logging.getLogger("pbodl.serving")


class ServeSettings(msgspec.Struct, frozen=True):
    """How to serve runs.

    run         a run folder, or a model folder (a local path, or an address such as s3://bucket/models/live); None: see `models`
    host, port  address to listen on; port 0 picks a free port
    workers     processes that answer requests
    token_file  a file with the token that requests must send; None: no token is required
    models      several runs instead of one, as NAME=RUN
    models_file a file that names several runs, and is watched
    log         where decisions are logged: a .jsonl file, or what the opener of logs knows besides; None: nowhere
    shard       share of the model's rows, such as 0/4, to serve to a router; None: the whole model, to everybody
    """

    run: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    token_file: str | None = None
    limits: Limits = Limits()
    models: tuple[str, ...] = ()
    models_file: str | None = None
    log: str | None = None
    shard: str | None = None

    @property
    def share(self) -> RowShare:
        return WHOLE if self.shard is None else RowShare.parse(self.shard)


def serve(settings: ServeSettings, tell: Callable[[str], None] = print, open_log: OpenTarget = open_file_only) -> None:
    """Serve until a signal arrives, then finish the requests under way. `open_log` opens the log of decisions in every worker."""
    if settings.workers < 1:
        raise InputError(f"workers is {settings.workers}; it must be at least 1")
    if settings.shard is not None and (settings.run is None or settings.log is not None):
        raise InputError("--shard serves rows of one run to a router: give a run folder, and leave out --log-decisions")
    settings.share  # noqa: B018  InputError, if it is none
    plan = plan_of(settings.run, settings.models, settings.models_file)
    for run in plan.runs.values():
        check_folder(run)
    Token.from_file(settings.token_file)
    if settings.log is not None:
        open_log(settings.log).close()  # what is wrong with it is told now
    listening = bind(settings.host, settings.port)
    with listening, process_memory("pbodl-serve-") as memory, stop_signals() as stop:
        os.makedirs(counted := f"{memory}/metrics")
        # Workers read these when they load their libraries. One thread each: more would only wait for each other.
        os.environ.update({name: "1" for name in ONE_THREAD} | ({FOLDER: counted} if settings.workers > 1 else {}))
        _Supervisor(settings, WatchedPlan(plan, settings.models_file), listening, memory, tell, open_log).run(stop)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there; InputError if that cannot be."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except (OSError, UnicodeError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}:{port}: {told}; choose another --host or --port") from error
    return listening


class _Supervisor:
    """Follows the runs, and keeps the workers running."""

    def __init__(
        self, settings: ServeSettings, plan: WatchedPlan, listening: socket.socket, memory: str, tell: Callable[[str], None],
        open_log: OpenTarget,
    ) -> None:  # fmt: skip
        self._settings, self._plan, self._listening, self._memory, self._tell = settings, plan, listening, memory, tell
        self._open_log = open_log
        self._models: dict[str, FollowedModel] = {}
        self._workers: dict[SpawnProcess, WorkerLink] = {}
        self._not_before = float("-inf")  # when the next worker may start

    def run(self, stop: StopRequest) -> None:
        host, port = self._listening.getsockname()[:2]
        try:
            self._follow_plan(prepared=False)
            self._start_missing()
            self._first_look()
            while self._loaded and not stop and not all(worker.ready(self._models) for worker in self._workers.values()):
                self._exchange()
                self._start_missing()
            self._tell(f"listening on http://{host}:{port} ({self._about()})")
            waiting = not self._loaded
            while not stop:
                self._exchange()
                self._start_missing()
                if waiting and self._loaded and any(worker.ready(self._models) for worker in self._workers.values()):
                    waiting = False
                    self._tell(f"ready: {self._about()}")
                self._watch_plan()
                for model in self._models.values():
                    model.poll()
        finally:
            self._end()

    @property
    def _loaded(self) -> bool:
        return any(model.version is not None for model in self._models.values())

    def _about(self) -> str:
        if list(self._models) == [ONLY]:
            return self._models[ONLY].about()
        return "; ".join(f"{name}: {model.about()}" for name, model in self._models.items())

    def _first_look(self) -> None:
        """Load all models. If the only one cannot be served, the server ends here; later, or beside others, it is left out."""
        if len(self._models) == 1:
            next(iter(self._models.values())).look()
            return
        for model in self._models.values():
            model.poll()
        for model in self._models.values():
            model.told()

    def _watch_plan(self) -> None:
        """Add and remove models as their file says."""
        try:
            if self._plan.changed():
                self._follow_plan(prepared=True)
                self._tell(f"models: {self._about()}")
        except InputError as error:
            logger.error("%s; the models stay as they are", error)

    def _follow_plan(self, prepared: bool) -> None:
        runs, models = self._plan.plan.runs, {}
        for name, run in runs.items():
            before = self._models.get(name)
            try:
                models[name] = (
                    before
                    if before is not None and before.run == run
                    else followed(name, run, self._memory, prepared, self._settings.share)
                )
            except InputError as error:
                if not prepared:  # at the start, it is told to whoever starts the server
                    raise
                logger.error("model %s is not served: %s", name, error)
        for name, model in self._models.items():
            if models.get(name) is not model:
                model.end()
        replaced = {name for name in models if name in self._models and models[name] is not self._models[name]}
        self._models = models
        for worker in self._workers.values():
            worker.forget(replaced)

    def _start_missing(self) -> None:
        """Replace workers that died, and start workers until there are enough."""
        for process in [process for process in self._workers if not process.is_alive()]:
            logger.error("worker %s ended with code %s; another one replaces it", process.pid, process.exitcode)
            self._workers.pop(process).close()
            self._not_before = time.monotonic() + PAUSE
        while len(self._workers) < self._settings.workers and time.monotonic() >= self._not_before:
            self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        # While there is no model, one worker answers that. A later worker starts to answer when it has a model.
        at_once = not self._workers and not self._loaded
        arguments = (self._settings, self._listening, theirs, self._memory, at_once, self._open_log)
        process = context.Process(target=_work, args=arguments, name="pbodl-worker")
        process.start()
        theirs.close()
        self._workers[process] = WorkerLink(ours)

    def _exchange(self) -> None:
        """Announce the newest versions to the workers, and receive their reports, until it is time to look for newer ones."""
        deadline = time.monotonic() + POLL_EVERY
        while (left := deadline - time.monotonic()) > 0:
            for worker in self._workers.values():
                try:
                    worker.exchange(self._models, self._plan.plan.traffic)
                except (OSError, EOFError):  # it is dying, and `_start_missing` replaces it
                    time.sleep(min(left, 0.05))
                    return
            connections = [connection for worker in self._workers.values() for connection in worker.connections]
            if connections:
                wait(connections, left)
            else:
                time.sleep(min(left, 0.05))

    def _end(self) -> None:
        """Accept no more requests, let the workers finish those under way, and end them."""
        self._listening.close()
        for process in self._workers:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE + 2.0
        for process in self._workers:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _most_connections() -> int:
    """The number of connections that a worker accepts: as many as the system allows, and no more than it is built for."""
    if sys.platform == "win32":
        return CONNECTIONS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - OTHER_FILES)
    return CONNECTIONS


def web_server(service: HttpService) -> uvicorn.Server:
    """The web server in front of a service."""
    config = uvicorn.Config(
        service, http=functools.partial(HttpConnection, service, Peers(_most_connections())), ws="none", log_config=None,  # type: ignore[arg-type]
        access_log=False, server_header=False, proxy_headers=False, lifespan="on", timeout_graceful_shutdown=int(GRACE),
    )  # fmt: skip
    return uvicorn.Server(config)


def _work(
    settings: ServeSettings, listening: socket.socket, control: Connection, memory: str, at_once: bool, open_log: OpenTarget
) -> None:
    """Run a worker process; it answers at once, or when it has a model."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # what clients get wrong is counted, not logged
    warnings.simplefilter("default")
    # The web server handles signals while it runs, and then raises them again for the handlers before it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH)
    models = WorkerModels(control, keeps=settings.shard is not None)
    if not at_once:
        models.begun.wait()
    log = None if settings.log is None else DecisionLog(settings.log, open_log)
    token = Token.from_file(settings.token_file)
    if settings.shard is not None:
        service: HttpService = ShareService(models, settings.share, settings.limits, token)
    else:
        service = HttpService(models, settings.limits, token, log=log)
    server = web_server(service)

    def leave() -> None:
        models.gone.wait()
        server.should_exit = True
        follows = multiprocessing.parent_process()
        if follows is not None and not follows.is_alive():  # it was killed, and left its files; mapped memory stays
            shutil.rmtree(memory, ignore_errors=True)

    threading.Thread(target=leave, daemon=True).start()
    server.run(sockets=[listening])
    if log is not None:
        log.close()
