"""Memory of dead processes is freed at the next start; that of living ones stays."""

import os
import signal
import subprocess
import sys

import pytest

from pbodl.system.process_memory import process_memory

HOLD = """
import sys, time
from pbodl.system.process_memory import process_memory
with process_memory("pbodl-x-") as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("pbodl.system.process_memory.memory_folder", lambda: str(tmp_path))


def test_the_dead_leave_nothing_and_the_living_keep_theirs(tmp_path):
    code = HOLD.replace("with", f"import pbodl.system.process_memory as m; m.memory_folder = lambda: {str(tmp_path)!r}\nwith", 1)
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    dead, alive = ((process.stdout.readline().strip() if process.stdout else "") for process in processes)
    try:
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        assert os.path.isdir(dead)
        with process_memory("pbodl-x-") as own:
            assert os.path.isdir(own) and os.path.isdir(alive) and not os.path.exists(dead)
        assert not os.path.exists(own)
    finally:
        processes[1].kill()
        processes[1].wait()


def test_a_folder_in_the_making_stays_for_a_while(tmp_path):
    young, old, other = (tmp_path / name for name in ("pbodl-x-young", "pbodl-x-old", "pbodl-y-old"))
    for folder in (young, old, other):
        folder.mkdir()
    os.utime(old, (0, 0))
    os.utime(other, (0, 0))
    with process_memory("pbodl-x-"):
        assert young.exists() and other.exists() and not old.exists()
