"""Faults for which nobody needs rights: a cut or slow connection, a file system that takes no more, a clock that jumps."""

import contextlib
import ctypes
import os
import resource
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

PIDFD_GETFD = 438  # the number of this system call on all Linux architectures


class TcpProxy:
    """Passes on connections to `target`, a port of the loopback. `cut` breaks them and refuses new ones; `heal` ends that."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.target = 0
        self.delay = 0.0  # seconds by which everything arrives later
        self.cuts = 0
        self._is_cut = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Returns how many connections there were."""
        with self._lock:
            self._is_cut, cut = True, list(self._open)
            self._open.clear()
        for one in cut:
            _shut(one)
        self.cuts += len(cut) // 2
        return len(cut) // 2

    def heal(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target), timeout=5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                with self._lock:
                    if not self._is_cut:
                        self._open |= {near, far}
                if near not in self._open:
                    _shut(near)
                    _shut(far)
                    continue
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := one.recv(65536):
                time.sleep(self.delay)
                other.sendall(content)
        for end in (one, other):
            _shut(end)
        with self._lock:
            self._open -= {one, other}


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def cut_between(callers: list[psutil.Process], servers: list[psutil.Process]) -> int:
    """Break the TCP connections from some processes to others, of which neither takes part; returns how many."""
    ports = {one.laddr.port for server in servers for one in server.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    cut = 0
    for caller in callers:
        for one in caller.net_connections("tcp"):
            if one.raddr and one.raddr.port in ports:
                with _borrowed(caller.pid, one.fd) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
                    cut += 1
    return cut


def cut_from_node(process: psutil.Process) -> None:
    """Break the connections of a process to the Ray node that started it: the node then believes that the process is dead."""
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(entry).startswith("socket:"):
                with _borrowed(process.pid, int(entry.name)) as connection:
                    if connection.family == socket.AF_UNIX:
                        connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _borrowed(pid: int, number: int) -> Iterator[socket.socket]:
    """The socket that is file `number` of another process."""
    libc, process = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid)
    try:
        own = libc.syscall(PIDFD_GETFD, process, number, 0)
        if own < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        with socket.socket(fileno=own) as connection:
            yield connection
    finally:
        os.close(process)


def journal_of(shard: psutil.Process, run: Path) -> Path | None:
    """The log that a shard of a run writes to."""
    logs = set(run.glob("shards/*/*/*.log"))
    try:
        return next((Path(one.path) for one in shard.open_files() if Path(one.path) in logs), None)
    except psutil.Error:
        return None


@contextlib.contextmanager
def no_room(process: psutil.Process, journal: Path, bytes_left: int) -> Iterator[None]:
    """Within the block, the journal can grow by a few bytes only, so that a record is cut off in the middle; then writing fails."""
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (journal.stat().st_size + bytes_left, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
/* What Python's time.time() asks. Others keep their clock: they wait by it, which the kernel does, too. */
static double *offset;
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result || clock != CLOCK_REALTIME) return result;
    Dl_info caller;
    if (!dladdr(__builtin_return_address(0), &caller) || !caller.dli_fname) return result;
    const char *name = strrchr(caller.dli_fname, '/');
    name = name ? name + 1 : caller.dli_fname;
    if (strncmp(name, "python", 6) && strncmp(name, "libpython", 9)) return result;
    if (!offset) {
        int file = open(getenv("PBODL_TEST_CLOCK"), O_RDONLY);
        offset = mmap(0, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
        close(file);
    }
    now->tv_sec += (time_t)*offset;
    return result;
}
"""


class JumpingClock:
    """The clock of all processes that are started with `environment`; `jump` sets it to so many seconds beside the true time."""

    possible = shutil.which("cc") is not None

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.jump(0.0)
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "PBODL_TEST_CLOCK": str(self._file)}

    def jump(self, seconds: float) -> None:
        mode = "r+b" if self._file.exists() else "w+b"
        with self._file.open(mode) as file:
            file.write(struct.pack("<d", seconds))
