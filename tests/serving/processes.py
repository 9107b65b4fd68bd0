"""Real servers: `pbodl serve` in processes of its own."""

import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import psutil

from tests.patience import PATIENCE, until


class ServerProcess:
    """A server of a run, or another command that serves, listening; ended with all its workers at the end."""

    def __init__(self, run: Path | str, *options: str, command: str = "serve") -> None:
        with tempfile.NamedTemporaryFile(prefix="pbodl-test-", suffix=".log", delete=False) as log:
            self._log = Path(log.name)
            given = [command, *([str(run)] if run else []), "--port", "0", *options]
            self.process = subprocess.Popen([sys.executable, "-m", "pbodl.cli", *given], stdout=log, stderr=log)
        self.url = ""

    def __enter__(self) -> "ServerProcess":
        until(lambda: "listening on" in self.log() or self.process.poll() is not None, "listening")
        assert self.process.poll() is None, self.log()
        self.url = re.findall(r"listening on (\S+)", self.log())[0]
        return self

    def wait_until_ready(self) -> None:
        with httpx.Client(base_url=self.url, timeout=PATIENCE) as client:
            until(lambda: client.get("/readyz").status_code == 200, "being ready")

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            for process in [*self.children(), psutil.Process(self.process.pid)]:
                process.kill()
            self.process.wait()
        self._log.unlink()

    def log(self) -> str:
        return self._log.read_text()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def workers(self) -> list[psutil.Process]:
        alive = [child for child in self.children() if child.status() != psutil.STATUS_ZOMBIE]
        return [child for child in alive if "spawn_main" in " ".join(child.cmdline())]

    def shared_files(self) -> list[set[str]]:
        """The memory files that each worker maps."""
        return [set(re.findall(r"\S*/pbodl-serve-\S+", Path(f"/proc/{worker.pid}/maps").read_text())) for worker in self.workers()]

    def memory_folder(self) -> Path:
        """The server's folder of those files."""
        files = " ".join(set().union(*self.shared_files()))
        (folder,) = set(re.findall(r"\S*/pbodl-serve-[^/\s]+", files))
        return Path(folder)
