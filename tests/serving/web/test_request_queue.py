"""The queue of requests: turns, refusals by number and by age, slices, and memory."""

import asyncio
import itertools
import time

import pytest

from pbodl.serving.web import request_queue
from pbodl.serving.web.http_messages import RequestError
from pbodl.serving.web.request_queue import BODIES, RequestQueue
from pbodl.serving.web.server_limits import Limits


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set."""
    moment = [100.0]
    monkeypatch.setattr(request_queue, "now", lambda: moment[0])
    return moment


def test_the_oldest_request_tells_how_slow_the_queue_is(clock):
    queue = RequestQueue(Limits(patience=4.0))
    slow, first = queue.ticket(), queue.ticket()
    clock[0] += 100.0  # a body that takes long makes the queue no slower
    first.complete()
    clock[0] += 1.9
    queue.ticket().done()
    clock[0] += 0.2
    with pytest.raises(RequestError, match="its queue is slow") as refused:
        queue.ticket()
    assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
    first.done()
    queue.ticket().done()
    slow.done()
    assert (queue.open, len(queue.in_flight)) == (0, 0)


def test_a_ticket_counts_once():
    queue = RequestQueue(Limits(concurrent=1, waiting=1))
    ticket = queue.ticket()
    for _ in range(2):
        ticket.complete()
    assert len(queue.in_flight) == 1
    for _ in range(2):
        ticket.done()
        ticket.complete()
    assert (queue.open, len(queue.in_flight)) == (0, 0)


def test_turns_are_taken_in_order_and_in_slices(clock):
    """Each work takes 4 ms of a slice of 10: three run in a row, then the event loop has its turn."""
    queue, done = RequestQueue(Limits()), []

    async def ask(number):
        def work():
            clock[0] += 0.004
            done.append(number)
            return number

        return await queue.run(queue.ticket(), work)

    async def run():
        tasks = [asyncio.create_task(ask(number)) for number in range(12)]
        passes = []
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            passes.append(len(done))
        return await asyncio.gather(*tasks), passes

    answers, passes = asyncio.run(run())
    assert answers == done == list(range(12))
    assert passes[0] == 3
    assert max(after - before for before, after in itertools.pairwise(passes)) <= 3


def test_slices_grow_under_a_flood(clock):
    """While other work takes 10 ms between two slices, a slice takes eight times as much."""
    queue, done = RequestQueue(Limits()), []

    async def ask(number):
        def work():
            clock[0] += 0.004
            done.append(number)

        await queue.run(queue.ticket(), work)

    async def run():
        tasks = [asyncio.create_task(ask(number)) for number in range(60)]
        passes = [0]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            passes.append(len(done))
            clock[0] += 0.01
        return [after - before for before, after in itertools.pairwise(passes)]

    assert max(asyncio.run(run())) in (20, 21, 22)


def test_what_waited_too_long_is_refused_and_not_scored(clock):
    queue, done = RequestQueue(Limits(patience=1.0)), []

    async def ask(seconds):
        def work():
            clock[0] += seconds
            done.append(seconds)

        await queue.run(queue.ticket(), work)

    async def run():
        return await asyncio.gather(*map(ask, (0.5, 1.2, 0.7)), return_exceptions=True)

    first, second, third = asyncio.run(run())
    assert (first, second, done) == (None, None, [0.5, 1.2])
    assert isinstance(third, RequestError)
    assert (third.status, third.headers) == (503, {"Retry-After": "1"})
    assert "within 1 s" in third.message


def test_errors_are_the_callers():
    queue = RequestQueue(Limits())

    def fail():
        time.sleep(0.02)
        raise ZeroDivisionError

    async def ask():
        await queue.run(queue.ticket(), fail)

    async def run():
        return await asyncio.gather(ask(), ask(), return_exceptions=True)

    assert [type(error) for error in asyncio.run(run())] == 2 * [ZeroDivisionError]


def test_large_bodies_share_the_memory_and_small_ones_pass():
    queue = RequestQueue(Limits(body=1000))
    large = [queue.ticket() for _ in range(BODIES)]
    for ticket in large:
        ticket.hold(1000)
    small = queue.ticket()
    small.hold(100)
    another = queue.ticket()
    with pytest.raises(RequestError, match="too many large bodies") as refused:
        another.hold(1000)
    assert refused.value.status == 503
    for ticket in (*large, small, another):
        ticket.done()
    assert (queue.open, queue.held) == (0, 0)
