"""Killing the processes of a training while it runs."""

import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil


def actors(kind: str) -> list[psutil.Process]:
    """Our descendants that are actors of that class."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith(f"ray::{kind}"):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
    return found


def kill_one(kind: str, chance: random.Random) -> bool:
    """SIGKILL for one actor of that class, if there is one."""
    found = sorted(actors(kind), key=lambda process: process.pid)
    if not found:
        return False
    chance.choice(found).send_signal(signal.SIGKILL)
    return True


class Chaos(threading.Thread):
    """Does `strike` again and again until it is stopped; `strikes` counts those that hit."""

    def __init__(self, ready: Callable[[int], bool], strike: Callable[[int], bool]) -> None:
        super().__init__(daemon=True)
        self._ready, self._strike, self._stop_now = ready, strike, threading.Event()
        self.strikes = 0

    def run(self) -> None:
        while not self._stop_now.is_set():
            if self._ready(self.strikes) and self._strike(self.strikes):
                self.strikes += 1
            time.sleep(0.02)

    def __enter__(self) -> "Chaos":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop_now.set()
        self.join()


def journalled(run: Path) -> int:
    """Bytes in the journals of a run's shards: how far the training is."""
    total = 0
    for path in run.glob("shards/*/*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
