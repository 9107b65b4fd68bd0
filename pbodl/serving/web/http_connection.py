"""One connection of a client: the web server's HTTP protocol, bounded in size, number and time.

- The head of a request has a bounded size and number of headers, and must be complete within the patience.
- A request for scores is refused at the end of its head, before its body is read, if its token is wrong or the server is busy. That
  costs a fraction of an answer: no task, no parsing of the body.
- A connection ends when it is idle for long, when its client does not read the answers, and when others need it: at the largest
  number of connections, the one that was quiet for the longest time makes room.
- Each answer goes out in one write. The web server writes the head of an answer, and then its body. A client on the same machine
  would wake up for the head alone, and could take the processor from the worker that still has to write the body.
"""

import asyncio
import functools
import http
import math
import time
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pbodl.serving.web.http_messages import JSON, SECURITY, RequestError
from pbodl.serving.web.request_queue import Ticket
from pbodl.serving.web.server_limits import Limits

HEAD = b"HTTP/"
HEAD_BYTES, HEADERS = 2**14, 100  # of a request
KEEP_ALIVE = 75.0  # seconds that a connection may be idle: longer than clients keep theirs, so that they lose no request
UNREAD = 30.0  # seconds that a client may leave an answer unread
CONNECTIONS = 4096  # of a worker
TICKET = "pbodl.ticket"  # key of a request's ticket in its scope
CLOSE = {"Connection": "close"}


class Admitting(Protocol):
    """What a connection asks of the service behind it."""

    limits: Limits

    def is_queued(self, path: bytes) -> bool:
        """Whether a request for this path needs a ticket."""
        ...

    def admit(self, headers: list[tuple[bytes, bytes]], arrived: float) -> Ticket:
        """A ticket for a request with these headers, whose first byte arrived then; or RequestError."""
        ...

    def refused(self, endpoint: str, status: int) -> None:
        """Count an answer that the service did not give itself."""
        ...


class Peers:
    """The connections of a worker that have no request under way, quiet for the longest time first."""

    def __init__(self, most: int = CONNECTIONS) -> None:
        self.most = most
        self.quiet: dict[HttpConnection, None] = {}


class HttpConnection(HttpToolsProtocol):
    """The web server's HTTP protocol with bounds."""

    def __init__(self, service: Admitting, peers: Peers, **options: Any) -> None:
        super().__init__(**options)
        self._service, self._peers = service, peers
        self._patience = service.limits.patience
        # When the connection ends, by the clock of the event loop: for want of requests, and of a reader of the answers.
        self._until = self._unread = math.inf
        self._size = self._count = 0  # bytes and headers of the head so far ...
        self._more = 0  # ... and bytes of which the parser has not reported yet
        self._in_head = False
        self._in_message = False  # between the first byte of a request and its last
        self._skipped = False  # the request is answered already
        self._refused = False  # the connection is
        self._arrived = 0.0  # when the first byte of the request did
        self._ticket: Ticket | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._joining = Joining(transport, self.loop)
        super().connection_made(self._joining)  # type: ignore[arg-type]
        self._now_quiet(KEEP_ALIVE)
        self._watch()
        if len(self.connections) > self._peers.most:
            next(iter(self._peers.quiet)).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._peers.quiet.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def _now_quiet(self, seconds: float) -> None:
        self._until = self.loop.time() + seconds
        self._peers.quiet[self] = None

    def _watch(self) -> None:
        """End the connection when its time has come; looks now and then, because the time changes with every request."""
        moment = self.loop.time()
        if min(self._until, self._unread) <= moment:
            if not self._in_head or self._refused or self.flow.write_paused:
                self.transport.abort()
                return
            self._refuse(RequestError(408, "timeout", f"the head of the request did not arrive within {self._patience:g} s"))
        left = max(0.0, min(self._until, self._unread) - moment)
        self._timer = self.loop.call_later(min(left, 1.0, self._patience / 2) + 0.001, self._watch)

    # What the parser reports

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        in_head = self._in_head
        super().data_received(data)
        if in_head and self._in_head:
            self._more += len(data)
        if max(self._size, self._more) > HEAD_BYTES or self._count > HEADERS:
            message = f"the head of the request is larger than {HEAD_BYTES:,} bytes, or has more than {HEADERS} headers"
            self._refuse(RequestError(431, "head_too_large", message))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._size <= HEAD_BYTES and self._count <= HEADERS:
            self._size = self._count = 0
        self._more = 0
        self._in_head = self._in_message = True
        self._arrived = time.perf_counter()
        self._ticket = None
        if self.cycle is None or self.cycle.response_complete:
            self._until = self.loop.time() + self._patience

    def on_url(self, url: bytes) -> None:
        self._size += len(url)
        if self._size <= HEAD_BYTES:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        self._count += 1
        if self._size <= HEAD_BYTES and self._count <= HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._size > HEAD_BYTES or self._count > HEADERS:
            self._skipped = True
            return
        if self.cycle is None or self.cycle.response_complete:  # otherwise it waits for its turn behind an earlier one
            if self._service.is_queued(self.url) and not self.expect_100_continue:
                try:
                    self._ticket = self._service.admit(self.headers, self._arrived)
                except RequestError as error:
                    self._skip(error)
                    return
                self.scope[TICKET] = self._ticket  # type: ignore[literal-required]
            self._peers.quiet.pop(self, None)
            self._until = math.inf
        super().on_headers_complete()
        self._size = 0

    def _skip(self, error: RequestError) -> None:
        """Answer a request before its body is here, and read over the body."""
        self._skipped = True
        self._until = self.loop.time() + self._patience
        if self.flow.write_paused:  # the client sends, but does not read
            self._refused = True
            self.transport.abort()
            return
        self._service.refused(self.url.rpartition(b"/")[2].decode("latin-1"), error.status)
        self._joining.whole(self._answer(error, not self.parser.should_keep_alive()))

    def on_body(self, body: bytes) -> None:
        if not self._skipped:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        if self._skipped:
            self._skipped = False
            if not self.parser.should_keep_alive():
                self.transport.close()
            self._now_quiet(KEEP_ALIVE)
            return
        super().on_message_complete()
        if self._ticket is not None:
            self._ticket.complete()

    def on_response_complete(self) -> None:
        """As the web server does it, with the timer of the connection instead of a new one for each request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            task = self.loop.create_task(cycle.run_asgi(app))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
        else:
            self._now_quiet(self._patience if self._in_message else KEEP_ALIVE)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.time() + UNREAD

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread = math.inf

    # Answers without the service

    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestError(400, "malformed", "these bytes are not an HTTP request"))

    def _refuse(self, error: RequestError) -> None:
        """Answer if no other answer is under way, and end the connection."""
        self._refused, self._until = True, self.loop.time() + self._patience
        if self.cycle is None or self.cycle.response_complete:
            self._service.refused("other", error.status)
            self._joining.whole(self._answer(error, True))
        self.transport.close()

    def _answer(self, error: RequestError, close: bool) -> bytes:
        head, rest = _parts(error.status, error.body(), tuple({**error.headers, **(CLOSE if close else {})}.items()))
        date = [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        return b"".join([head, *date, rest])


@functools.lru_cache(maxsize=64)
def _parts(status: int, body: bytes, headers: tuple[tuple[str, str], ...]) -> tuple[bytes, bytes]:
    """The first line of an answer, and all that follows the headers that change."""
    told = {"Content-Type": JSON, "Content-Length": str(len(body)), **SECURITY, **dict(headers)}
    lines = "".join(f"{name.lower()}: {value}\r\n" for name, value in told.items())
    return f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n".encode(), f"{lines}\r\n".encode() + body


class Joining:
    """A transport that holds the head of an answer until the next write, or until the event loop's next turn.

    Answers to a client that has left go nowhere: the web server does not notice where a client sent several requests at once.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._transport.is_closing():
            self._held = b""
            return
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(HEAD):
            self._held = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def whole(self, data: bytes) -> None:
        """Write an answer that needs nothing more."""
        self.flush()
        if not self._transport.is_closing():
            self._transport.write(data)

    def flush(self) -> None:
        """Write the head that is held."""
        if self._held:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
