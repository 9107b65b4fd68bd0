"""Limits of a server: the size of requests, how many run or wait at a time, and who may send them."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from pbodl.errors import InputError
from pbodl.serving.http_messages import RequestError

Receive = Callable[[], Awaitable[Any]]


class Limits(msgspec.Struct, frozen=True):
    """What a worker allows.

    body        bytes in a request's body
    candidates  candidates in a request
    concurrent  requests that are read and scored at a time
    waiting     requests that wait for their turn; further ones are refused with 503
    patience    seconds that a request may wait for its turn, and that its body may take to arrive
    """

    body: int = 8 * 2**20
    candidates: int = 10_000
    concurrent: int = 16
    waiting: int = 64
    patience: float = 5.0

    def __post_init__(self) -> None:
        for name, least in (("body", 1), ("candidates", 1), ("concurrent", 1), ("waiting", 0), ("patience", 0.001)):
            if not getattr(self, name) >= least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")


class Gate:
    """Limits how many requests run, and how many wait, at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.concurrent)
        self.inside = self.waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a request's turn; RequestError if the queue is full, or the wait was too long."""
        if self._turns.locked():
            await self._wait()
        else:
            await self._turns.acquire()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            self._turns.release()

    async def _wait(self) -> None:
        if self.waiting >= self._limits.waiting:
            raise _busy("the server is busy, and its queue is full; try again in a second")
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                await self._turns.acquire()
        except TimeoutError:
            raise _busy(f"the server was busy for {self._limits.patience:g} s; try again in a second") from None
        finally:
            self.waiting -= 1


def _busy(message: str) -> RequestError:
    return RequestError(503, "busy", message, headers={"Retry-After": "1"})


class Token:
    """A secret that requests must send, as `Authorization: Bearer ...`; if it is None, all requests pass."""

    def __init__(self, secret: str | None) -> None:
        self._digest = None if secret is None else _digest(secret.encode())

    @classmethod
    def from_file(cls, path: str | Path | None) -> "Token":
        """The token in the first line of a file."""
        if path is None:
            return cls(None)
        try:
            secret = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token file {path} cannot be read: {error}") from error
        if not secret or "\n" in secret or not secret.isascii():
            raise InputError(f"the token file {path} must contain the token as its only line, in ASCII")
        return cls(secret)

    @property
    def required(self) -> bool:
        return self._digest is not None

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise RequestError unless the token is right. The time taken tells nothing about the token."""
        if self._digest is None:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(_digest(given.strip()), self._digest):
            raise RequestError(
                401, "unauthorized", "authentication required: send the header `Authorization: Bearer TOKEN`",
                headers={"WWW-Authenticate": "Bearer"},
            )  # fmt: skip


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, limits: Limits) -> bytes:
    """Read the body of a request; RequestError if it is too large, or takes too long."""
    too_large = RequestError(413, "too_large", f"the body is larger than the {limits.body:,} bytes that this server accepts")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > limits.body:
        raise too_large
    pieces, size = [], 0
    try:
        async with asyncio.timeout(limits.patience):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionResetError("the client left before its request was complete")
                size += len(message.get("body", b""))
                if size > limits.body:
                    raise too_large
                pieces.append(message.get("body", b""))
                if not message.get("more_body", False):
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    except TimeoutError:
        raise RequestError(408, "timeout", f"the body did not arrive within {limits.patience:g} s") from None
