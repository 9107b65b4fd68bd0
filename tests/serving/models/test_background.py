"""A thread of low priority leaves the others as they are."""

import os
import sys
import threading

import pytest

from pbodl.serving.models.background import STEPS_BACK, background


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own here")
def test_a_thread_of_low_priority_leaves_the_others_alone():
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with background("test") as thread:
        niceness = thread.submit(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())).result()
        policy = thread.submit(lambda: os.sched_getscheduler(threading.get_native_id())).result()
    assert niceness == min(19, before + STEPS_BACK)
    assert policy == os.SCHED_BATCH
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
