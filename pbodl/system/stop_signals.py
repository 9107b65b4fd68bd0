"""The one way to handle SIGINT and SIGTERM: they ask a process to stop, and it does so when its work is in order."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

Handler = Callable[[int, FrameType | None], None] | signal.Handlers
NUMBERS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether this process was asked to stop.

    number  the first signal that arrived; None before
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._arrived = threading.Condition()  # reentrant: a signal may interrupt `wait` anywhere

    def __bool__(self) -> bool:
        return self.number is not None

    def wait(self, seconds: float) -> bool:
        """Wait for a signal, at most so long; returns whether there was one."""
        with self._arrived:
            return self._arrived.wait_for(self.__bool__, seconds)

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Take a signal."""
        with self._arrived:
            self.number = self.number or number
            self._arrived.notify_all()


@contextlib.contextmanager
def stop_signals(*numbers: int) -> Iterator[StopRequest]:
    """Within the block, these signals (by default SIGINT and SIGTERM) are noted instead of ending the process."""
    stop = StopRequest()
    with handling(stop.note, *(numbers or NUMBERS)):
        yield stop


@contextlib.contextmanager
def handling(handler: Handler, *numbers: int) -> Iterator[None]:
    """Within the block, `handler` handles these signals; only the main thread gets signals, elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
