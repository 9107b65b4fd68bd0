"""A Redis server of a test's own: on a free port of the loopback, with an append-only file that is written at every command."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import redis

from tests.ports import free_port

PROGRAM = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not installed; `make test` installs it on Debian")
STARTED = 300.0  # seconds that a server has to start on a busy machine


class RedisServer:
    """Starts, stops, and is killed; what it answered is in its append-only file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.start()

    def address(self, stream: str) -> str:
        return f"redis://127.0.0.1:{self.port}/{stream}"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis("127.0.0.1", self.port)

    def start(self) -> None:
        assert PROGRAM is not None
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", str(self._folder)]
        command = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", *durable]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + STARTED
        while time.monotonic() < until and self._process.poll() is None:
            try:
                if self.client.ping():
                    return
            except redis.RedisError:
                time.sleep(0.025)
        raise RuntimeError("the Redis server did not start")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Let it hang: it keeps its connections, and answers nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()
