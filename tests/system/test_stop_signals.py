"""A signal is noted instead of ending the process, and afterwards everything is as before."""

import os
import signal
import threading

import pytest

from pbodl.system.stop_signals import handling, stop_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted(number):
    before = signal.getsignal(number)
    with stop_signals() as stop:
        assert not stop and stop.number is None and not stop.wait(0.0)
        os.kill(os.getpid(), number)
        assert stop.wait(300.0) and stop and stop.number == number
    assert signal.getsignal(number) is before


def test_the_first_signal_counts():
    with stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(300.0)
    assert stop.number == signal.SIGTERM


def test_a_signal_ends_a_wait():
    with stop_signals(signal.SIGTERM) as stop:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        assert stop.wait(300.0)
        timer.join()


def test_other_signals_are_left_alone():
    before = signal.getsignal(signal.SIGINT)
    with stop_signals(signal.SIGTERM):
        assert signal.getsignal(signal.SIGINT) is before


def test_handlers_come_back_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError), handling(signal.SIG_IGN, signal.SIGINT):
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError
    assert signal.getsignal(signal.SIGINT) is before
