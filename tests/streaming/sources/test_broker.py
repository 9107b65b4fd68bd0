"""Waiting for a broker is told, reminded of, and ends by a signal."""

import logging
import signal
import threading

import pytest

from pbodl.streaming.sources.broker import Broker
from pbodl.streaming.sources.event_source import Away
from pbodl.system.patience import Stopped
from pbodl.system.stop_signals import StopRequest


class Moody:
    """Does not answer the first few times."""

    name = "redis://host/s"

    def __init__(self, moods: int) -> None:
        self.moods, self.away = moods, None

    def start(self) -> str:
        if self.moods > 0:
            self.moods -= 1
            self.away = f"{self.name} does not answer"
            raise Away(self.away)
        self.away = None
        return "here"


def test_it_is_waited_for_and_told_once(caplog, monkeypatch):
    monkeypatch.setattr("pbodl.streaming.sources.broker.PAUSE", 0.01)
    source = Moody(5)
    broker = Broker(source, StopRequest())
    with caplog.at_level(logging.WARNING):
        assert broker.ask(source.start) == "here"
    first, last = (record.getMessage() for record in caplog.records)
    assert first == "waiting: redis://host/s does not answer (Ctrl-C or SIGTERM stops)"
    assert last.startswith("redis://host/s answers again after")


def test_a_signal_ends_it():
    stop, source = StopRequest(), Moody(10**9)
    threading.Timer(0.1, lambda: stop.note(signal.SIGINT)).start()
    with pytest.raises(Stopped):
        Broker(source, stop).ask(source.start)


def test_it_is_reminded_of(caplog, monkeypatch):
    monkeypatch.setattr("pbodl.streaming.sources.broker.REMIND", 0.0)
    source = Moody(0)
    source.away = "gone"
    broker = Broker(source, StopRequest())
    with caplog.at_level(logging.WARNING):
        broker.tell(), broker.tell()
    assert len(caplog.records) == 2
