"""Making items in a background thread, a few ahead of their use."""

import queue
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")
PATIENCE = 0.05  # seconds between two looks at whether anyone still wants more


class ReadAhead(Generic[T]):
    """Iterates over the items of a generator, and makes up to `depth` of them before they are asked for.

    An error of the generator is raised here, after the items before it. The generator may yield None while it has no item: the
    thread can be stopped there. It starts with the first item that is asked for; when `close` returns, it has ended and has closed
    the generator.
    """

    def __init__(self, items: Generator[T | None, None, None], depth: int) -> None:
        self._items = items
        self._made: queue.Queue[tuple[T] | BaseException] = queue.Queue(depth)
        self._unwanted = threading.Event()
        # The thread knows nothing of this object, so that forgetting the object stops the thread.
        arguments = (items, self._made, self._unwanted)
        self._thread = threading.Thread(target=_make, args=arguments, name="pbodl-read-ahead", daemon=True)
        weakref.finalize(self, self._unwanted.set)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._take(None)

    def polled(self, seconds: float) -> Iterator[T | None]:
        """The items, and None whenever none is ready within `seconds`."""
        while True:
            try:
                yield self._take(seconds)
            except queue.Empty:
                yield None
            except StopIteration:
                return

    @property
    def waiting(self) -> int:
        """Items that are made and not yet taken."""
        return self._made.qsize()

    def close(self, patience: float | None = None) -> None:
        """Stop making items. With `patience`, wait only so many seconds for a thread that hangs, and leave it to itself."""
        self._unwanted.set()
        if self._thread.ident is None:
            self._items.close()
        else:
            self._thread.join(patience)

    def _take(self, seconds: float | None) -> T:
        if self._unwanted.is_set():
            raise StopIteration
        if self._thread.ident is None:
            self._thread.start()
        made = self._made.get(timeout=seconds)
        if isinstance(made, BaseException):
            self.close()
            raise made
        return made[0]


def _make(items: Generator[T | None, None, None], made: queue.Queue, unwanted: threading.Event) -> None:
    """Put the items, each in a tuple, and at last a StopIteration or the error."""

    def put(what: tuple[T] | BaseException) -> None:
        while not unwanted.is_set():
            with suppress(queue.Full):
                made.put(what, timeout=PATIENCE)
                return

    try:
        for item in items:
            if item is not None:
                put((item,))
            if unwanted.is_set():
                return
        put(StopIteration())
    except BaseException as error:
        put(error)
    finally:
        items.close()
