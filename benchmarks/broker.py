"""Processes for the benchmarks of streams: a Redis server and pbodl commands, which are started, awaited and ended."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """The address of a durable Redis server, started here."""
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is not installed")
    port = free_port()
    process = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    time.sleep(1.0)
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def command(log: Path, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """`pbodl ...` in a separate process; its output goes to a file and is shown if it fails."""
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "pbodl.cli", *arguments], stdout=file, stderr=file)
    try:
        yield process
    finally:
        failed = process.poll() is not None
        process.terminate()
        process.wait()
        if failed or "Traceback" in log.read_text():
            print(log.read_text(), file=sys.stderr)
