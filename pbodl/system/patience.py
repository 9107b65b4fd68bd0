"""Waiting: for a call that may hang, such as one to a server that has stopped, without hanging with it; for room on a disk."""

import errno
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pbodl.system.stop_signals import StopRequest

T = TypeVar("T")
logger = logging.getLogger(__name__)
LOOK_EVERY = 0.05  # seconds between looks at the signal
AGAIN = 0.5  # seconds before something is written again for which there was no room
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Stopped(Exception):
    """A signal arrived before the call had returned."""


def unless_stopped(call: Callable[[], T], stop: StopRequest) -> T:
    """The result of a call. If a signal arrives first, the call is left to itself in its thread, and `Stopped` is raised."""
    outcome = _started(call)
    while not outcome.ended.wait(LOOK_EVERY):
        if stop:
            raise Stopped
    return outcome.result()


def at_most(seconds: float, call: Callable[[], Any]) -> bool:
    """Call, and wait at most so long; returns whether the call has returned."""
    outcome = _started(call)
    if not outcome.ended.wait(seconds):
        return False
    outcome.result()
    return True


def when_there_is_room(write: Callable[[], T], what: str) -> T:
    """The result of a call that writes to a disk and may be repeated; waits while the disk is full."""
    told = False
    while True:
        try:
            return write()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if not told:
                logger.warning("%s waits for room on the disk: %s", what, error)
            told = True
            time.sleep(AGAIN)


class _Outcome:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.ended = threading.Event()
        self._call, self._result = call, None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # raised again by `result`, in the thread that waits
            self._error = error
        finally:
            self.ended.set()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


def _started(call: Callable[[], Any]) -> _Outcome:
    outcome = _Outcome(call)
    threading.Thread(target=outcome.run, name="pbodl-call", daemon=True).start()
    return outcome
