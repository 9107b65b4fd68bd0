"""`pbodl serve`: one process follows the model, and worker processes answer requests. They share the model's memory and the socket.

    serve    bind the socket -> start workers -> load the model -> until a signal: announce new versions, replace dead workers, look
             for newer versions -> stop the workers
    worker   receive versions -> answer requests -> on a signal, finish the requests under way

The follower runs in its own process at a low priority, so that loading a delta does not slow down any request.
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
from pathlib import Path

import msgspec
import uvicorn

from pbodl.errors import InputError
from pbodl.serving.background import background
from pbodl.serving.follower import Follower, Version
from pbodl.serving.http_connection import CONNECTIONS, HttpConnection, Peers
from pbodl.serving.http_service import HttpService
from pbodl.serving.server_limits import Limits, Token
from pbodl.serving.server_metrics import FOLDER
from pbodl.serving.shared_versions import Announced, ServingWorker
from pbodl.system.process_memory import process_memory
from pbodl.system.stop_signals import StopRequest, stop_signals

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
POLL_EVERY = 0.25  # seconds between looks for a newer version in a local folder
ASK_EVERY = 1.0  # seconds between looks into an object store, where every look costs money
GRACE = 10.0  # seconds that requests under way have to finish
SWITCH = 0.0005  # seconds that the thread which loads a new version may hold up a request
OTHER_FILES = 128  # that a worker may have open beside its connections
PAUSE = 1.0  # seconds between the death of a worker and the start of another
logger = logging.getLogger("pbodl.serving")


class ServeSettings(msgspec.Struct, frozen=True):
    """How to serve a run.

    run         a run folder, or a model folder (a local path, or an address such as s3://bucket/models/live)
    host, port  address to listen on; port 0 picks a free port
    workers     processes that answer requests
    token_file  a file with the token that requests must send; None: no token is required
    """

    run: str
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    token_file: str | None = None
    limits: Limits = Limits()


def serve(settings: ServeSettings, tell: Callable[[str], None] = print) -> None:
    """Serve until a signal arrives, then finish the requests under way."""
    if settings.workers < 1:
        raise InputError(f"workers is {settings.workers}; it must be at least 1")
    if "://" not in settings.run and not Path(settings.run).is_dir():
        raise InputError(f"there is no folder {settings.run}; give the folder that `pbodl train --out` or a publisher writes")
    Token.from_file(settings.token_file)
    listening = _bind(settings.host, settings.port)
    with listening, process_memory("pbodl-serve-") as memory, stop_signals() as stop:
        os.makedirs(counted := f"{memory}/metrics")
        # Workers read these when they load their libraries. One thread each: more would only wait for each other.
        os.environ.update({name: "1" for name in ONE_THREAD} | ({FOLDER: counted} if settings.workers > 1 else {}))
        _Supervisor(settings, listening, memory, tell).run(stop)


def _bind(host: str, port: int) -> socket.socket:
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
    """Follows the run, and keeps the workers running."""

    def __init__(self, settings: ServeSettings, listening: socket.socket, memory: str, tell: Callable[[str], None]) -> None:
        self._settings, self._listening, self._memory, self._tell = settings, listening, memory, tell
        self._follower = Follower(settings.run)
        self._poll_every = ASK_EVERY if "://" in settings.run else POLL_EVERY
        self._version: Version | None = None  # the newest in shared memory
        self._workers: dict[SpawnProcess, ServingWorker] = {}
        self._not_before = float("-inf")  # when the next worker may start
        # The main thread starts the workers: they must not inherit the low priority.
        self._background = background("follower")

    def run(self, stop: StopRequest) -> None:
        host, port = self._listening.getsockname()[:2]
        try:
            self._start_missing()
            self._follow()  # a model that cannot be served ends the server here; later it is only left out
            while self._version is not None and not stop and not all(worker.ready for worker in self._workers.values()):
                self._exchange()
                self._start_missing()
            self._tell(f"listening on http://{host}:{port} ({self._about()})")
            waiting = self._version is None
            while not stop:
                self._exchange()
                self._start_missing()
                if waiting and any(worker.ready for worker in self._workers.values()):
                    waiting = False
                    self._tell(f"ready: {self._about()}")
                self._poll()
        finally:
            self._end()

    def _about(self) -> str:
        version = self._version
        return f"no model in {self._settings.run} yet" if version is None else f"{version.model.kind}, version {version.number}"

    def _start_missing(self) -> None:
        """Replace workers that died, and start workers until there are enough."""
        for process in [process for process in self._workers if not process.is_alive()]:
            logger.error("worker %s ended with code %s; another one replaces it", process.pid, process.exitcode)
            self._workers.pop(process).connection.close()
            self._not_before = time.monotonic() + PAUSE
        while len(self._workers) < self._settings.workers and time.monotonic() >= self._not_before:
            self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        # While there is no model, one worker answers that. A later worker starts to answer when it has the model.
        at_once = not self._workers and self._version is None
        arguments = (self._settings, self._listening, theirs, self._memory, at_once)
        process = context.Process(target=_work, args=arguments, name="pbodl-worker")
        process.start()
        theirs.close()
        self._workers[process] = ServingWorker(ours)

    def _follow(self) -> None:
        """Look for a newer version, and move it into shared memory."""
        if self._follower.poll() and (version := self._follower.version) is not None:
            try:
                version.table.share(self._memory)
            except OSError as error:
                raise InputError(
                    f"version {version.number} does not fit into {Path(self._memory).parent} ({error.strerror}); make it"
                    " larger (in a container: --shm-size): it must hold the model twice"
                ) from error
            self._version = version

    def _poll(self) -> None:
        try:
            self._background.submit(self._follow).result()
        except InputError as error:
            logger.error("%s; still serving the version before", error)
        except Exception:
            logger.exception("following %s failed; still serving the version before", self._settings.run)

    def _exchange(self) -> None:
        """Announce the newest version to the workers, and receive their reports, until it is time to look for a newer one."""
        version = self._version
        troubles = {"damaged": self._follower.damaged, "missing": self._follower.missing}
        deadline = time.monotonic() + self._poll_every
        while (left := deadline - time.monotonic()) > 0:
            for worker in self._workers.values():
                try:
                    if version is not None:
                        worker.tell(version, self._memory, troubles)
                    worker.hear()
                except (OSError, EOFError):  # it is dying, and `_start_missing` replaces it
                    time.sleep(min(left, 0.05))
                    return
            wait([worker.connection for worker in self._workers.values()], left)

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


def _work(settings: ServeSettings, listening: socket.socket, follower: Connection, memory: str, at_once: bool) -> None:
    """Run a worker process; it answers at once, or when it has a model."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # what clients get wrong is counted, not logged
    warnings.simplefilter("default")
    # The web server handles signals while it runs, and then raises them again for the handlers before it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH)
    source = Announced(follower)
    if not at_once:
        source.changed.wait()
    service = HttpService(source, settings.limits, Token.from_file(settings.token_file), settings.run)
    config = uvicorn.Config(
        service, http=functools.partial(HttpConnection, service, Peers(_most_connections())), ws="none", log_config=None,  # type: ignore[arg-type]
        access_log=False, server_header=False, proxy_headers=False, lifespan="on", timeout_graceful_shutdown=int(GRACE),
    )  # fmt: skip
    server = uvicorn.Server(config)

    def leave() -> None:
        source.gone.wait()
        server.should_exit = True
        follows = multiprocessing.parent_process()
        if follows is not None and not follows.is_alive():  # it was killed, and left its files; mapped memory stays
            shutil.rmtree(memory, ignore_errors=True)

    threading.Thread(target=leave, daemon=True).start()
    server.run(sockets=[listening])
