"""Making things ahead: order, errors, and stopping."""

import threading

import pytest

from pbodl.data.log.prefetch import prefetch


def counting(n, closed: threading.Event, made: list | None = None, error: Exception | None = None):
    try:
        for i in range(n):
            if made is not None:
                made.append(i)
            yield i
        if error is not None:
            raise error
    finally:
        closed.set()


def threads() -> int:
    return sum(thread.name == "pbodl-prefetch" for thread in threading.enumerate())


def test_all_items_in_order():
    closed = threading.Event()
    assert list(prefetch(counting(100, closed), 3)) == list(range(100))
    assert closed.is_set()
    assert threads() == 0


def test_errors_come_after_the_items_before_them():
    closed = threading.Event()
    items = prefetch(counting(5, closed, error=ValueError("the end")), 2)
    found = []
    with pytest.raises(ValueError, match="the end"):
        found.extend(items)
    assert found == list(range(5))
    assert closed.is_set()
    assert threads() == 0


def test_not_more_than_wanted_is_made():
    closed, made = threading.Event(), []
    items = prefetch(counting(1000, closed, made), 3)
    assert [next(items) for _ in range(4)] == [0, 1, 2, 3]
    items.close()
    # Three in the queue, one in the hand.
    assert len(made) <= 4 + 3 + 1
    assert closed.is_set()
    assert threads() == 0


def test_forgetting_it_stops_the_thread():
    closed = threading.Event()
    items = prefetch(counting(1000, closed), 1)
    next(items)
    del items
    assert closed.wait(10)
