"""Reading and decoding in a background thread, a few packs ahead of the learner, which meanwhile has other things to tend to."""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
PATIENCE = 0.05  # seconds between looks whether somebody still wants more


class ReadAhead(Generic[T]):
    """The items of a generator, up to `depth` of them made before they are asked for; None where there is none for a while.

    The generator gives None, too, when it has nothing for a while: between its items it can be stopped.

    Unlike `data.log.prefetch` it never waits long: a source may want something done before it gives the next item.
    """

    def __init__(self, items: Generator[T | None, None, None], depth: int, wait: float) -> None:
        self._items, self._wait = items, wait
        self._made: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
        self._unwanted = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pbodl-read-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T | None]:
        while True:
            try:
                item, error = self._made.get(timeout=self._wait)
            except queue.Empty:
                yield None
                continue
            if error is not None:
                raise error
            if item is None:
                return
            yield item

    @property
    def waiting(self) -> int:
        """Items that are made and not yet taken."""
        return self._made.qsize()

    def close(self) -> None:
        """Stop reading; the thread has ended when this returns."""
        self._unwanted.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            for item in self._items:
                if self._unwanted.is_set() or (item is not None and not self._put(item, None)):
                    return
            self._put(None, None)
        except BaseException as error:
            self._put(None, error)
        finally:
            self._items.close()

    def _put(self, item: T | None, error: BaseException | None) -> bool:
        while not self._unwanted.is_set():
            try:
                self._made.put((item, error), timeout=PATIENCE)
                return True
            except queue.Full:
                continue
        return False
