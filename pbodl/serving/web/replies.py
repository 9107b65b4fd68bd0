"""Answers over HTTP: their headers, and what errors look like."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pbodl.serving.web.http_messages import JSON, MSGPACK, SECURITY, RequestError, echoed

Send = Callable[[Any], Awaitable[None]]
SECURE = [(name.lower().encode(), value.encode()) for name, value in SECURITY.items()]
OUR_MISTAKE = RequestError(500, "internal", "internal error of the server; see its log")


def content_type_of(headers: dict[bytes, bytes]) -> str:
    """The type of a request's body; RequestError if it is none that is read here."""
    given = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestError(415, "content_encoding", "compressed bodies are not supported; send the body uncompressed")
    if given == JSON or given in MSGPACK:
        return given
    message = f"the content type is {echoed(given or 'not given')!r}; send {JSON} or {MSGPACK[0]}"
    raise RequestError(415, "content_type", message, "Content-Type")


async def reply(send: Send, status: int, content_type: str, body: bytes, headers: dict[str, str]) -> None:
    """Send a whole answer."""
    told = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *SECURE]
    told += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})


def json_answer(answer: Any) -> Response:
    """An answer as JSON."""
    return Response(msgspec.json.encode(answer), media_type=JSON)


async def request_error(request: Request, error: Any) -> Response:
    return Response(error.body(), error.status, error.headers, JSON)


async def http_error(request: Request, error: Any) -> Response:
    codes = {404: "not_found", 405: "method"}
    message = f"there is no {echoed(request.url.path)}; see /docs" if error.status_code == 404 else str(error.detail)
    told = RequestError(error.status_code, codes.get(error.status_code, "http"), message, headers=dict(error.headers or {}))
    return await request_error(request, told)


async def unexpected_error(request: Request, error: Exception) -> Response:
    return await request_error(request, OUR_MISTAKE)
