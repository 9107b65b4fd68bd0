"""Sends each answer in one write.

The web server writes the head of an answer, and then its body. A client on the same machine would wake up for the head alone, and
could take the processor from the worker that still has to write the body.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD = b"HTTP/"


class WholeAnswers(AutoHTTPProtocol):  # type: ignore[valid-type, misc]  # one of two classes, whichever is installed
    """The web server's HTTP protocol, with heads that wait for their bodies."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(Joining(transport, asyncio.get_running_loop()))


class Joining:
    """A transport that holds the head of an answer until the next write, or until the event loop's next turn."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(HEAD):
            self._held = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Write the head that is held."""
        if self._held:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
