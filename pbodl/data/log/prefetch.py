"""Making things ahead of their use, in a background thread."""

import queue
import threading
from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 0.05  # seconds between looks whether somebody still wants more


def prefetch(items: Generator[T, None, None], depth: int) -> Generator[T, None, None]:
    """The items of a generator, up to `depth` of them made before they are asked for.

    What it raises is raised here, after the items before it. Closing this generator stops the thread, and with
    it closes `items`; both have ended when `close` returns.
    """
    made: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
    unwanted = threading.Event()

    def put(what: str, content: Any = None) -> bool:
        while not unwanted.is_set():
            try:
                made.put((what, content), timeout=PATIENCE)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    break
            put("end")
        except BaseException as error:
            put("error", error)
        finally:
            items.close()

    thread = threading.Thread(target=work, name="pbodl-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            what, content = made.get()
            if what == "end":
                return
            if what == "error":
                raise content
            yield content
    finally:
        unwanted.set()
        thread.join()
