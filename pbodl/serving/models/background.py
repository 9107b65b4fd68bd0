"""Background work: loading a new version leaves the processor to threads that answer requests."""

import contextlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

STEPS_BACK = 5  # niceness


def step_back() -> None:
    """Lower the priority of this thread, where the operating system supports that; it cannot be raised again.

    As a batch job, the thread does not interrupt others when it wakes up, either.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + STEPS_BACK)


def background(name: str) -> ThreadPoolExecutor:
    """One thread of low priority.

    Use it only in a process that answers no requests: if a low-priority thread holds the interpreter's lock while it waits for a
    processor, all other threads of its process wait, too.
    """
    return ThreadPoolExecutor(1, name, step_back)
