"""Reading ahead: order, errors, and stopping."""

import threading

import pytest

from pbodl.system.read_ahead import ReadAhead


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
    return sum(thread.name == "pbodl-read-ahead" for thread in threading.enumerate())


def test_all_items_in_order():
    closed = threading.Event()
    assert list(ReadAhead(counting(100, closed), 3)) == list(range(100))
    assert closed.is_set()
    assert threads() == 0


def test_errors_come_after_the_items_before_them():
    closed = threading.Event()
    items = ReadAhead(counting(5, closed, error=ValueError("the end")), 2)
    found = []
    with pytest.raises(ValueError, match="the end"):
        found.extend(items)
    assert found == list(range(5))
    assert closed.is_set()
    assert threads() == 0


def test_not_more_than_wanted_is_made():
    closed, made = threading.Event(), []
    items = ReadAhead(counting(1000, closed, made), 3)
    assert [next(items) for _ in range(4)] == [0, 1, 2, 3]
    items.close()
    # Three in the queue, one in the hand.
    assert len(made) <= 4 + 3 + 1
    assert closed.is_set()
    assert threads() == 0


def test_forgetting_it_stops_the_thread():
    closed = threading.Event()
    items = ReadAhead(counting(1000, closed), 1)
    next(items)
    del items
    assert closed.wait(300)


def test_an_item_that_is_late_is_not_waited_for():
    closed, late = threading.Event(), threading.Event()

    def items():
        yield 1
        while not late.is_set():
            yield None
        yield 2
        closed.set()

    ahead = ReadAhead(items(), 2)
    found = []
    for item in ahead.polled(0.01):
        found.append(item)
        if item is None:
            late.set()
    assert found[0] == 1 and found[1] is None and found[-1] == 2
    assert closed.is_set() and ahead.waiting == threads() == 0


def test_closing_ends_the_polling():
    closed = threading.Event()
    ahead = ReadAhead(counting(1000, closed), 2)
    items = ahead.polled(1.0)
    assert next(items) == 0
    ahead.close()
    assert list(items) == [] and closed.is_set()
