"""`pbodl up`: the whole system at once, in three processes.

    trainer   generates traffic, lets three models learn, writes figures and publications to the run folder; at low priority
    server    runs `pbodl serve` on that folder: scores and the dashboard
    up        starts both, sends the server a few requests per second, reports if one of them ends, stops both

The trainer saves when it is stopped; the next start continues from there.
"""

import json
import multiprocessing
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import msgspec

from pbodl._jit import compiled_before
from pbodl.errors import InputError
from pbodl.experiments.live_training import train_live
from pbodl.experiments.visitors import Visitors
from pbodl.models.snapshot import snapshots
from pbodl.serving.serve import ServeSettings, serve
from pbodl.system.failures import report
from pbodl.system.folder_lock import FolderLock, writing
from pbodl.system.stop_signals import StopRequest, handling, stop_signals

HOST = "127.0.0.1"
NICE = 5  # the server takes precedence
GRACE = 30.0  # seconds for saving and for requests in flight


class UpSettings(msgspec.Struct, frozen=True):
    """The options of `pbodl up`.

    out   run folder
    port  dashboard port; 0 picks a free one
    rate  generated rows per second
    rows  total number of rows; None: as the run began
    """

    out: str = "runs/live"
    port: int = 8080
    rate: float = 5000.0
    rows: int | None = None


def up(settings: UpSettings, tell: Callable[[str], None] = print) -> int:
    """Run until a signal arrives or a process fails; returns the exit code."""
    if settings.rate <= 0:
        raise InputError(f"the rate is {settings.rate:g} rows per second; it must be above 0")
    folder = Path(settings.out)
    port = free_port(settings.port)
    with writing(folder, "pbodl up") as lock, stop_signals() as stop:
        begun = "continuing" if snapshots(folder) else "starting"
        wait = "in a few seconds" if compiled_before() else "when the kernels are compiled, once on this machine, in about a minute"
        tell(f"{begun} in {folder}: http://{HOST}:{port} opens {wait} ...")
        started: dict[str, tuple[Any, ...]] = {"server": (serve_run, settings, port), "trainer": (_train, settings, lock)}
        with child_processes(started) as children:
            done = "the trainer has learned all traffic; the server continues with its last model"
            return watch_children(children, Visitors(f"http://{HOST}:{port}"), stop, tell, "trainer", done)


def watch_children(
    children: dict[str, SpawnProcess], visitors: Visitors, stop: StopRequest, tell: Callable[[str], None], ends: str, done: str
) -> int:
    """Wait for a signal; returns early if a process fails. The one that `ends` may; then `done` is told."""
    over = False
    with visitors:
        while not stop.wait(0.2):
            if (request := visitors.take_example()) is not None:
                tell(_welcome(visitors.url, request))
            for name, process in children.items():
                if process.is_alive() or (over and name == ends):
                    continue
                if name == ends and process.exitcode == 0:
                    over = True
                    tell(done)
                    continue
                tell(f"the {name} ended with code {process.exitcode}; stopping")
                return 2 if process.exitcode == 2 else 1
    tell("stopping; the next start continues from here ...")
    return 0


def _welcome(url: str, request: dict[str, Any]) -> str:
    curl = f"curl -s {url}/v1/score -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(request))}"
    return f"\n  dashboard   {url}\n  try it      {curl}\n  stop        Ctrl-C; the next start continues where this one stopped\n"


def free_port(port: int) -> int:
    """The port, or a free one for 0; raises an error before anything starts if the port is taken."""
    try:
        with socket.create_server((HOST, port)) as listening:
            return listening.getsockname()[1]
    except OSError as error:
        raise InputError(f"cannot listen on {HOST}:{port}: {error.strerror or error}; choose another --port") from error


@contextmanager
def child_processes(started: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, SpawnProcess]]:
    """Processes by name: a function, which first gets the id of this process, and what else it gets. They end with this context."""
    context = multiprocessing.get_context("spawn")
    children = {name: context.Process(target=work, args=(os.getpid(), *given)) for name, (work, *given) in started.items()}
    # Ctrl-C reaches all processes of the terminal, but these wait for a SIGTERM. They inherit that SIGINT is ignored.
    with handling(signal.SIG_IGN, signal.SIGINT):
        for process in children.values():
            process.start()
    try:
        yield children
    finally:
        for process in children.values():
            process.terminate()
        deadline = time.monotonic() + GRACE
        for process in children.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def serve_run(parent: int, settings: UpSettings, port: int) -> None:
    """The process of the server."""
    with in_prose(parent):
        serve(ServeSettings(settings.out, HOST, port), lambda text: None)


def _train(parent: int, settings: UpSettings, lock: FolderLock) -> None:
    slow_down = iter([NICE])

    def stopped(seconds: float) -> bool:
        os.nice(next(slow_down, 0))  # only once there is something to learn, so that the start is quick
        return stop.wait(seconds)

    with stop_signals(signal.SIGTERM) as stop, in_prose(parent):
        train_live(settings.out, settings.rows, settings.rate, stopped)
        if stop:
            sys.exit(128 + signal.SIGTERM)  # 0 means that the traffic has ended


@contextmanager
def in_prose(parent: int) -> Iterator[None]:
    """Report errors in prose and with an exit code; if `parent` is killed, end this process as well."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except Exception as error:
        told, code = report(error)
        print(f"error: {told}", file=sys.stderr)
        sys.exit(code)
