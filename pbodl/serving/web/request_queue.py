"""Requests for scores, from the first byte to the answer: which are refused, whose turn it is, and how much memory they hold.

    first byte -> refused, or a ticket -> the body arrives, however slowly -> complete: queued -> its turn: scored -> answered

A request holds no turn while its body arrives. Scoring runs on the event loop, one request at a time, first come first served. It
runs in slices: between two slices the event loop reads from the network. So requests are refused or answered while many wait. Under
a flood of requests that must be refused, slices grow: most of the time goes into answers.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from pbodl.serving.web.http_messages import RequestError
from pbodl.serving.web.server_limits import Limits

SLICE, LONGEST = 0.01, 0.1  # seconds of scoring in a row; at most this, under a flood
SHARE = 8.0  # under a flood, a slice takes this many times what the event loop spent on other work before it
STALE = 0.5  # share of the patience: while the oldest complete request waits longer, new ones are refused
BODIES = 8  # bodies of the largest size that may be in memory at a time
RETRY = {"Retry-After": "1"}
Receive = Callable[[], Awaitable[Any]]
Result = TypeVar("Result")
now = time.perf_counter


class Ticket:
    """A request that was not refused. It counts as in flight from when its body is complete until it is `done`."""

    __slots__ = ("_done", "_queue", "arrived", "completed", "held")

    def __init__(self, queue: "RequestQueue", arrived: float) -> None:
        self._queue, self.arrived = queue, arrived
        self.completed: float | None = None
        self.held = 0  # bytes of its body
        self._done = False
        queue.open += 1

    @property
    def limits(self) -> Limits:
        return self._queue.limits

    @property
    def left(self) -> float:
        """Seconds until the patience ends."""
        return self.arrived + self.limits.patience - now()

    def hold(self, size: int) -> None:
        """Count bytes of the body. When memory is short, bodies larger than a fair share are refused, and small ones go on."""
        queue = self._queue
        self.held += size
        queue.held += size
        most = BODIES * queue.limits.body
        if queue.held > most and self.held * queue.open > most:
            raise RequestError(503, "busy", "too many large bodies arrive at the same time; try again in a second", headers=RETRY)

    def complete(self) -> None:
        """The body is complete; from now on the request is in flight."""
        if self.completed is None and not self._done:
            self.completed = now()
            self._queue.in_flight[self] = None

    def done(self) -> None:
        if not self._done:
            self._done = True
            self._queue.open -= 1
            self._queue.held -= self.held
            self._queue.in_flight.pop(self, None)


class RequestQueue:
    """The requests of a worker."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open = 0  # tickets that are not done
        self.held = 0  # bytes of their bodies
        self.in_flight: dict[Ticket, None] = {}  # oldest first
        self._waiting: deque[tuple[Ticket, Callable[[], object], asyncio.Future, bool]] = deque()
        self._until: float | None = None  # end of this slice; None: the event loop has looked at the network since the last one
        self._ended: float | None = None  # when the last slice ended, if requests were left waiting

    def ticket(self, arrived: float | None = None) -> Ticket:
        """A ticket for a request whose first byte arrived then (by default now); RequestError if the server is too busy for it."""
        flying = self.in_flight
        if len(flying) >= self.limits.concurrent + self.limits.waiting:
            raise RequestError(503, "busy", "the server is busy, and its queue is full; try again in a second", headers=RETRY)
        for oldest in flying:
            if oldest.completed is not None and now() - oldest.completed > STALE * self.limits.patience:
                raise RequestError(503, "busy", "the server is busy, and its queue is slow; try again in a second", headers=RETRY)
            break
        return Ticket(self, now() if arrived is None else arrived)

    async def run(self, ticket: Ticket, work: Callable[[], Result], last: bool = True) -> Result:
        """What `work` returns, called when it is this request's turn; RequestError if that takes too long.

        A request whose work comes in several parts goes to the end of the queue between them; only its last part completes it.
        """
        if not self._waiting and self._may_run():
            return work()
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((ticket, work, future, last))
        return await future

    def _may_run(self) -> bool:
        """Whether this slice has time left; opens one if there is none."""
        moment = now()
        if self._until is None:
            outside = 0.0 if self._ended is None else moment - self._ended
            self._until = moment + min(LONGEST, max(SLICE, SHARE * outside))
            asyncio.get_running_loop().call_soon(self._next_slice)
            return True
        return moment < self._until

    def _next_slice(self) -> None:
        self._until = None
        while self._waiting and self._may_run():
            ticket, work, future, last = self._waiting.popleft()
            if future.done():  # the server stops
                continue
            if ticket.left < 0:
                late = f"the server was too busy to answer within {self.limits.patience:g} s; try again in a second"
                future.set_exception(RequestError(503, "busy", late, headers=RETRY))
                continue
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
            if last:
                ticket.done()  # its task wakes up later; until then, this must not keep others out
        self._ended = now() if self._waiting else None


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, ticket: Ticket) -> bytes:
    """Read the body of a request; RequestError if it is too large, or takes too long."""
    limits = ticket.limits
    too_large = RequestError(413, "too_large", f"the body is larger than the {limits.body:,} bytes that this server accepts")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18 or int(length) > limits.body:
        raise too_large
    pieces = []
    try:
        # Waiting costs a timer; most bodies are complete when they get here.
        async with contextlib.nullcontext() if ticket.completed else asyncio.timeout(max(0.0, ticket.left)):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionResetError("the client left before its request was complete")
                piece = message.get("body", b"")
                if ticket.held + len(piece) > limits.body:
                    raise too_large
                ticket.hold(len(piece))
                pieces.append(piece)
                if not message.get("more_body", False):
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    except TimeoutError:
        slow = f"the body did not arrive within {limits.patience:g} s"
        raise RequestError(408, "timeout", slow, headers={"Connection": "close"}) from None
