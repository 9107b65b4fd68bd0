"""Wall time, CPU time and memory of a part of this process. Linux reports the memory."""

import time
from pathlib import Path


class Stopwatch:
    """`with Stopwatch() as watch: ...` gives `watch.seconds` and `watch.cpu_seconds` of the block."""

    def __enter__(self) -> "Stopwatch":
        self.seconds, self.cpu_seconds = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu_seconds = time.perf_counter() - self.seconds, time.process_time() - self.cpu_seconds


def resident() -> int:
    """Bytes that this process holds now; from now on, `peak` counts anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """The most bytes that this process held since `resident`."""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024
