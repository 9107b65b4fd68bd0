"""One writer to a folder: the second is told who the first is, the dead hold nothing, readers need nothing."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pbodl.errors import InputError
from pbodl.system.folder_lock import FILE, FolderLock, writing

HOLD = """
import sys, time
from pbodl.system.folder_lock import FolderLock
lock = FolderLock(sys.argv[1], "pbodl online")
print("held", flush=True)
time.sleep(600)
"""


def holder(folder: Path) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_the_second_writer_is_told_who_the_first_is(tmp_path):
    process = holder(tmp_path / "run")
    try:
        with pytest.raises(InputError) as refused:
            FolderLock(tmp_path / "run", "pbodl train")
        for words in ("`pbodl online`", f"process {process.pid}", f"on {socket.gethostname()}", "stop that first"):
            assert words in str(refused.value)
        # By another path, it is the same folder.
        (tmp_path / "link").symlink_to(tmp_path / "run")
        with pytest.raises(InputError):
            FolderLock(tmp_path / "link", "pbodl train")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with writing(tmp_path / "run", "pbodl train"):  # the dead hold nothing
        assert json.loads((tmp_path / "run" / FILE).read_text())["pid"] == os.getpid()


def test_writers_of_one_process_share_it(tmp_path):
    first, second = FolderLock(tmp_path, "one"), FolderLock(tmp_path, "two")
    first.release()
    first.release()
    assert not free(tmp_path)
    second.release()
    assert free(tmp_path)


def free(folder: Path) -> bool:
    code = "import sys; from pbodl.system.folder_lock import FolderLock; FolderLock(sys.argv[1], 'x')"
    return subprocess.run([sys.executable, "-c", code, str(folder)], stderr=subprocess.DEVNULL).returncode == 0


def hold_on(lock: FolderLock, ready, done) -> None:
    ready.set()
    done.wait()


def test_a_spawned_child_holds_it_as_well(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    with writing(tmp_path, "pbodl up") as lock:
        child = context.Process(target=hold_on, args=(lock, ready, done))
        child.start()
        assert ready.wait(60)
    assert not free(tmp_path)
    done.set()
    child.join()
    assert free(tmp_path)


def test_taking_it_removes_what_the_dead_left_and_nothing_else(tmp_path):
    host = socket.gethostname()
    gone = [".writing-000000000007", ".writing-metrics.jsonl-17", f".writing-names.parquet@{host}-999999999"]
    stays = [f".writing-ctr.parquet@{host}-{os.getppid()}", ".writing-ctr.csv@other-host-17", "metrics.jsonl", ".other"]
    (tmp_path / "snapshots" / ".writing-000000000008").mkdir(parents=True)
    (tmp_path / "snapshots" / ".writing-000000000008" / "model.safetensors").write_bytes(b"x" * 1000)
    for name in (*gone, *stays):
        (tmp_path / name).write_bytes(b"x")
    with writing(tmp_path, "pbodl train"):
        assert {path.name for path in tmp_path.iterdir()} == {FILE, "snapshots", *stays}
        assert not list((tmp_path / "snapshots").iterdir())
        (tmp_path / ".writing-000000000009").write_bytes(b"x")
        with writing(tmp_path, "pbodl train"):  # a second writer of this process sweeps nothing
            assert (tmp_path / ".writing-000000000009").exists()
