"""A router's connections to the server of one share: HTTP/1.1, kept open, one request at a time on each."""

import asyncio
import contextlib
import ssl
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.serving.models.shared_versions import Announcement
from pbodl.serving.sharing.share_messages import GONE, MODEL, ROWS, STATE, FoundRows, RowsAsked, ShareState, found_rows
from pbodl.serving.web.http_messages import MSGPACK

LARGEST = 2**30  # bytes of an answer
HEAD = 2**14
IDLE = 64  # connections that are kept
Told = TypeVar("Told", ShareState, Announcement)


class ShareDown(Exception):
    """The server does not answer, or not as it should; the message says why."""


class VersionGone(Exception):
    """The server answers, but does not have this version."""


class ShareClient:
    """Asks the server of a share.

    url      such as http://127.0.0.1:8081
    token    that it wants; None: none
    seconds  to wait for an answer
    down     why it does not answer, while that lasts; set by whoever watches it
    """

    def __init__(self, url: str, token: str | None = None, seconds: float = 2.0) -> None:
        parts = urlsplit(url)
        plain = parts.path in ("", "/") and not parts.query and parts.username is None
        try:
            port = parts.port
        except ValueError:
            plain, port = False, None
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            raise InputError(f"--shard is {url!r}; write the address of a server, such as http://127.0.0.1:8081")
        self.url, self._host, self._seconds = url, parts.hostname, seconds
        self._port = port or (443 if parts.scheme == "https" else 80)
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._head = f"Host: {parts.netloc}\r\n" + ("" if token is None else f"Authorization: Bearer {token}\r\n")
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.down: str | None = "it was not asked yet"

    async def state(self, using: int | None) -> ShareState:
        """Which share this is, and which versions it has."""
        answer = await self._ask("GET", f"{STATE}?using={'' if using is None else using}")
        return _decoded(answer, ShareState)

    async def model(self, version: int) -> Announcement:
        """The model of a version, without its rows."""
        return _decoded(await self._ask("GET", f"{MODEL}?version={version}"), Announcement)

    async def rows(self, version: int, keys: NDArray[np.uint64], width: int) -> FoundRows:
        """The rows of some keys in a version."""
        asked = msgspec.msgpack.encode(RowsAsked(version, keys.astype("<u8", copy=False).tobytes()))
        answer = await self._ask("POST", ROWS, asked)
        try:
            return found_rows(answer, version, keys, width)
        except InputError as error:
            raise ShareDown(str(error)) from error

    async def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        try:
            async with asyncio.timeout(self._seconds):
                status, answer = await self._exchange(method, path, body)
        except TimeoutError:
            raise ShareDown(f"no answer within {self._seconds:g} s") from None
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise ShareDown(str(error) or type(error).__name__) from error
        if status == 200:
            return answer
        told = answer[:300].decode("utf-8", "replace")
        raise VersionGone(told) if status == GONE else ShareDown(f"it answers {status}: {told}")

    async def _exchange(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        about = f"Content-Type: {MSGPACK[0]}\r\nContent-Length: {len(body)}\r\n" if body else ""
        request = f"{method} {path} HTTP/1.1\r\n{self._head}{about}\r\n".encode() + body
        while self._idle:  # a connection that was idle may have been ended meanwhile; then another one is tried
            with contextlib.suppress(OSError, EOFError):
                return await self._on(self._idle.pop(), request)
        return await self._on(await asyncio.open_connection(self._host, self._port, ssl=self._ssl, limit=HEAD), request)

    async def _on(self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes) -> tuple[int, bytes]:
        reader, writer = connection
        try:
            writer.write(request)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:-2])
            length = int(headers["content-length"])
            if not 0 <= length <= LARGEST:
                raise ValueError(f"an answer of {length} bytes")
            answer = await reader.readexactly(length)
        except KeyError as error:
            writer.close()
            raise ValueError("an answer without a length") from error
        except BaseException:
            writer.close()
            raise
        if headers.get("connection") == "close" or len(self._idle) >= IDLE:
            writer.close()
        else:
            self._idle.append(connection)
        return int(lines[0].split()[1]), answer

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()


def _decoded(answer: bytes, kind: type[Told]) -> Told:
    try:
        return msgspec.msgpack.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise ShareDown(f"its answer cannot be read ({error})") from error
