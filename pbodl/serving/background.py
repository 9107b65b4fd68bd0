"""Work that nobody waits for: taking in a new version is to leave the processor to whoever answers a request."""

import contextlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

STEPS_BACK = 5  # of niceness


def step_back() -> None:
    """Lower the priority of this thread, where the system has one for each thread; it cannot be raised again.

    As a batch job it does not interrupt others when it wakes up, either.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + STEPS_BACK)


def background(name: str) -> ThreadPoolExecutor:
    """One thread of low priority.

    It is for a process that answers nobody: a thread of low priority that holds the interpreter's lock, and has to wait for a
    processor, makes all others of its process wait.
    """
    return ThreadPoolExecutor(1, name, step_back)
