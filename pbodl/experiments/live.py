"""`pbodl up`: everything at once, each in a process of its own.

    trainer   generated traffic -> three models learn -> figures and publications into the run folder; at a low priority
    server    `pbodl serve` of that folder: scores, and the dashboard
    up        starts both, sends the server a few requests a second, says so if one of them ends, stops both

The trainer saves when it is stopped, and goes on from there at the next start.
"""

import fcntl
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
from typing import IO, Any

import msgspec

from pbodl.errors import InputError
from pbodl.experiments.live_training import train_live
from pbodl.experiments.visitors import Visitors
from pbodl.models.snapshot import snapshots
from pbodl.serving.serve import ServeSettings, serve
from pbodl.system.stop_signals import StopRequest, handling, stop_signals

HOST = "127.0.0.1"
NICE = 5  # the server goes first
GRACE = 30.0  # seconds for saving and for requests under way
LOCK = ".lock"


class UpSettings(msgspec.Struct, frozen=True):
    """What `pbodl up` is told.

    out   the run folder
    port  of the dashboard; 0 takes a free one
    rate  rows of traffic a second
    rows  of the traffic in all; None: as many as the run began with
    """

    out: str = "runs/live"
    port: int = 8080
    rate: float = 5000.0
    rows: int | None = None


def up(settings: UpSettings, tell: Callable[[str], None] = print) -> int:
    """Run until a signal comes, or a process fails; returns the exit code."""
    if settings.rate <= 0:
        raise InputError(f"the rate is {settings.rate:g} rows a second; it must be above 0")
    folder = Path(settings.out)
    folder.mkdir(parents=True, exist_ok=True)
    port = _free(settings.port)
    with _alone(folder), stop_signals() as stop:
        tell(f"{'going on in' if snapshots(folder) else 'starting in'} {folder}: http://{HOST}:{port} opens in a few seconds ...")
        with _children(settings, port) as children:
            return _watch(children, Visitors(f"http://{HOST}:{port}"), stop, tell)


def _watch(children: dict[str, SpawnProcess], visitors: Visitors, stop: StopRequest, tell: Callable[[str], None]) -> int:
    """Wait for a signal; returns early if a process fails."""
    over = False
    with visitors:
        while not stop.wait(0.2):
            if (request := visitors.take_example()) is not None:
                tell(_welcome(visitors.url, request))
            for name, process in children.items():
                if process.is_alive() or (over and name == "trainer"):
                    continue
                if name == "trainer" and process.exitcode == 0:
                    over = True
                    tell("the trainer has learned all of the traffic; the server goes on with its last model")
                    continue
                tell(f"the {name} ended with code {process.exitcode}; stopping")
                return 2 if process.exitcode == 2 else 1
    tell("stopping; the next start goes on from here ...")
    return 0


def _welcome(url: str, request: dict[str, Any]) -> str:
    curl = f"curl -s {url}/v1/score -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(request))}"
    return f"\n  dashboard   {url}\n  try it      {curl}\n  stop        Ctrl-C; the next start goes on where this one stopped\n"


def _free(port: int) -> int:
    """The port, or a free one for 0; refused if it is taken, before anything is started."""
    try:
        with socket.create_server((HOST, port)) as listening:
            return listening.getsockname()[1]
    except OSError as error:
        raise InputError(f"cannot listen on {HOST}:{port}: {error.strerror or error}; choose another --port") from error


@contextmanager
def _alone(folder: Path) -> Iterator[IO]:
    """While in here, no other `pbodl up` runs in the folder."""
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another `pbodl up` runs in {folder}; stop it, or choose another --out") from None
        yield file


@contextmanager
def _children(settings: UpSettings, port: int) -> Iterator[dict[str, SpawnProcess]]:
    """The server and the trainer, ended on the way out."""
    context = multiprocessing.get_context("spawn")
    targets = {"server": _serve, "trainer": _train}
    children = {name: context.Process(target=target, args=(settings, port, os.getpid())) for name, target in targets.items()}
    # A Ctrl-C reaches all processes of the terminal, but these are to wait until they are told. What is ignored stays so in them.
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


def _serve(settings: UpSettings, port: int, parent: int) -> None:
    with _prose(parent):
        serve(ServeSettings(settings.out, HOST, port), lambda text: None)


def _train(settings: UpSettings, port: int, parent: int) -> None:
    slow_down = iter([NICE])

    def stopped(seconds: float) -> bool:
        os.nice(next(slow_down, 0))  # not before there is something to learn: starting is to be quick
        return stop.wait(seconds)

    with stop_signals(signal.SIGTERM) as stop, _prose(parent):
        train_live(settings.out, settings.rows, settings.rate, stopped)
        if stop:
            sys.exit(128 + signal.SIGTERM)  # 0 is for traffic that came to its end


@contextmanager
def _prose(parent: int) -> Iterator[None]:
    """Errors in the input become prose and exit code 2; if `parent` is killed, this process ends as well."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
