"""Calls that hang do not hang their caller."""

import signal
import threading

import pytest

from pbodl.system.patience import Stopped, at_most, unless_stopped
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
