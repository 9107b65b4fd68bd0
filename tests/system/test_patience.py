"""Calls that hang do not hang their caller; a full disk is waited for."""

import errno
import signal
import threading

import pytest

from pbodl.system.patience import Stopped, at_most, unless_stopped, when_there_is_room
from pbodl.system.stop_signals import StopRequest


def test_results_and_errors_come_through():
    stop = StopRequest()
    assert unless_stopped(lambda: 7, stop) == 7
    with pytest.raises(ZeroDivisionError):
        unless_stopped(lambda: 1 / 0, stop)
    assert at_most(10.0, lambda: 7)
    with pytest.raises(ZeroDivisionError):
        at_most(10.0, lambda: 1 / 0)


def test_a_signal_ends_the_wait():
    stop, forever = StopRequest(), threading.Event()
    threading.Timer(0.1, lambda: stop.note(signal.SIGTERM)).start()
    with pytest.raises(Stopped):
        unless_stopped(forever.wait, stop)
    assert not at_most(0.01, forever.wait)
    forever.set()


def test_a_full_disk_is_waited_for_and_nothing_else_is(monkeypatch):
    monkeypatch.setattr("pbodl.system.patience.AGAIN", 0.0)
    left = [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "used up"), OSError(errno.EFBIG, "too large")]

    def write() -> str:
        if left:
            raise left.pop()
        return "written"

    assert when_there_is_room(write, "a test") == "written" and not left
    left = [OSError(errno.EACCES, "not yours")]
    with pytest.raises(PermissionError):
        when_there_is_room(write, "a test")
