"""The HTTP interface: a thin ASGI application around the newest predictor.

It answers `POST /v1/score` directly on the event loop: handing a request to a thread would take longer than scoring it. Starlette
handles all other requests. Garbage is collected when no request is under way.
"""

import asyncio
import contextlib
import gc
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from pbodl.errors import InputError
from pbodl.serving.dashboard.routes import routes as dashboard_routes
from pbodl.serving.http_connection import TICKET
from pbodl.serving.http_messages import JSON, MSGPACK, SECURITY, ModelAnswer, RequestError, echoed, wire_of, write_scores
from pbodl.serving.openapi import document, page
from pbodl.serving.predictor_source import PredictorSource
from pbodl.serving.request_queue import Receive, RequestQueue, Ticket, read_body
from pbodl.serving.scoring.exploration import explore
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import Encoded
from pbodl.serving.server_limits import Limits, Token
from pbodl.serving.server_metrics import ServerMetrics

SCORE = "/v1/score"
OPEN = ("/healthz", "/readyz", "/openapi.json", "/docs")  # these require no token
COLLECT_EVERY = 1.0  # seconds
LONG = 0.001  # seconds that a collection should take at most
Send = Callable[[Any], Awaitable[None]]
Endpoint = Callable[[Request], Awaitable[Response]]
SECURE = [(name.lower().encode(), value.encode()) for name, value in SECURITY.items()]
OUR_MISTAKE = RequestError(500, "internal", "internal error of the server; see its log")
logger = logging.getLogger("pbodl.serving")


class HttpService:
    """The ASGI application: scores requests with the newest predictor of `source`, and serves the dashboard.

    run  the run folder, from which the dashboard reads live figures and the names of features; None: it shows neither
    """

    def __init__(
        self, source: PredictorSource, limits: Limits | None = None, token: Token | None = None, run: str | None = None
    ) -> None:
        self.source, self.limits, self.token, self.run = source, limits or Limits(), token or Token(None), run
        self.metrics = ServerMetrics(source)
        self.queue = RequestQueue(self.limits)
        self.path = SCORE.encode()
        routes = [
            Route("/v1/model", self.guarded(self._model)),
            Route("/metrics", self.guarded(self._metrics)),
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            Route("/openapi.json", self._openapi),
            Route("/docs", self._docs),
        ]
        handlers = {HTTPException: _http_error, RequestError: _request_error, Exception: _unexpected}
        self._others = Starlette(routes=[*routes, *dashboard_routes(self)], exception_handlers=handlers, lifespan=self._lifespan)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == SCORE:
            await self._score(scope, receive, send)
        else:
            await self._others(scope, receive, self._counted(scope, send))

    def admit(self, headers: list[tuple[bytes, bytes]], arrived: float | None = None) -> Ticket:
        """A ticket for a request whose head is here; RequestError if its token is wrong, or the server is too busy."""
        if self.token.required:
            self.token.check(dict(headers))
        return self.queue.ticket(arrived)

    def refused(self, endpoint: str, status: int) -> None:
        """Count an answer that the connection gave."""
        self.metrics.requests.labels(endpoint, status).inc()

    async def _score(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request for scores, right or wrong."""
        ticket: Ticket | None = scope.get(TICKET)
        headers: dict[str, str] = {}
        content_type = JSON
        try:
            if ticket is None:
                ticket = self.admit(scope["headers"])
            given = dict(scope["headers"])
            if scope["method"] != "POST":
                raise RequestError(405, "method", f"{SCORE} accepts only POST", headers={"Allow": "POST"})
            content_type = _content_type(given)
            asked = await read_body(given, receive, ticket)
            ticket.complete()
            status, body = 200, await self.queue.run(ticket, lambda: self._answer(content_type, asked))
        except RequestError as error:
            status, body, headers = error.status, error.body(), error.headers
        except ConnectionResetError:
            return
        except Exception:
            logger.exception("a score request failed")
            status, body = OUR_MISTAKE.status, OUR_MISTAKE.body()
        finally:
            if ticket is not None:
                ticket.done()
        await _reply(send, status, content_type if status == 200 else JSON, body, headers)
        self.metrics.requests.labels("score", status).inc()
        if status == 200 and ticket is not None:
            self.metrics.seconds.observe(time.perf_counter() - ticket.arrived)

    def _answer(self, content_type: str, body: bytes) -> bytes:
        """The answer to the body of a request."""
        predictor = self._predictor()
        parsed = wire_of(predictor.schema).read(body, content_type, self.limits.candidates)
        if parsed.candidates > self.limits.candidates:
            message = f"{parsed.candidates:,} candidates are more than the {self.limits.candidates:,} that this server accepts"
            raise RequestError(413, "too_many_candidates", message, "candidates")
        try:
            shared = predictor.encoder.encode_shared(parsed.shared)
            own = parsed.own if isinstance(parsed.own, Encoded) else predictor.encoder.encode_own(parsed.own)
        except InputError as error:
            field = re.search(r"(?:field|column) '([^']+)'", str(error))
            raise RequestError(422, "invalid", str(error)[:1000], field[1] if field else None) from None
        scores, ctr = explore(predictor, shared, own, parsed.explore)
        self.metrics.scored(len(own.keys), float(scores.ctr.sum()))
        return write_scores(predictor.version.number, scores._replace(ctr=ctr), parsed.detail, content_type, parsed.explore.rule)

    def _predictor(self) -> Predictor:
        predictor = self.source.predictor
        if predictor is None:
            raise RequestError(503, "not_ready", "no model is loaded yet; try again in a moment", headers={"Retry-After": "1"})
        return predictor

    async def _model(self, request: Request) -> Response:
        version = self._predictor().version
        counters = version.counters
        answer = ModelAnswer(
            version.number, time.time() - version.published_at, version.published_at, version.loaded_at, version.model.kind,
            counters["rows_learned"], counters["features"], counters,
            msgspec.to_builtins(version.model.schema), msgspec.to_builtins(version.model.spec),
        )  # fmt: skip
        return _json(answer)

    async def _metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _health(self, request: Request) -> Response:
        return _json({"status": "alive"})

    async def _ready(self, request: Request) -> Response:
        self._predictor()
        return _json({"status": "ready"})

    async def _openapi(self, request: Request) -> Response:
        return _json(self._document())

    async def _docs(self, request: Request) -> Response:
        text, policy = page(self._document(), str(request.base_url).rstrip("/"))
        return HTMLResponse(text, headers={"Content-Security-Policy": policy, "Cache-Control": "no-cache"})

    def _document(self) -> dict[str, Any]:
        predictor = self.source.predictor
        return document(None if predictor is None else predictor.schema, self.limits, self.token.required)

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """An endpoint that requires the token, if there is one."""

        async def guarded(request: Request) -> Response:
            self.token.check(dict(request.scope["headers"]))
            return await endpoint(request)

        return guarded

    def _counted(self, scope: Any, send: Send) -> Send:
        """`send` that also counts the answer, and adds the headers that every answer has."""

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                endpoint = "score" if scope["path"] == SCORE else "other"
                self.metrics.requests.labels(endpoint, message["status"]).inc()
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(header for header in SECURE if header[0] not in own)]
            await send(message)

        return counted

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """While the server runs, garbage is collected between requests: during a request it would cost milliseconds."""
        gc.collect()
        gc.freeze()
        gc.disable()
        task = asyncio.create_task(self._collect())
        try:
            yield
        finally:
            task.cancel()
            gc.enable()
            gc.unfreeze()

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(COLLECT_EVERY)
            for _ in range(100):
                if not self.queue.in_flight:
                    break
                await asyncio.sleep(0.001)
            began = time.perf_counter()
            gc.collect()
            if time.perf_counter() - began > LONG:
                gc.freeze()  # the many objects are there to stay, such as the code of a first model


def _content_type(headers: dict[bytes, bytes]) -> str:
    given = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestError(415, "content_encoding", "compressed bodies are not supported; send the body uncompressed")
    if given == JSON or given in MSGPACK:
        return given
    message = f"the content type is {echoed(given or 'not given')!r}; send {JSON} or {MSGPACK[0]}"
    raise RequestError(415, "content_type", message, "Content-Type")


async def _reply(send: Send, status: int, content_type: str, body: bytes, headers: dict[str, str]) -> None:
    told = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *SECURE]
    told += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type=JSON)


async def _request_error(request: Request, error: Any) -> Response:
    return Response(error.body(), error.status, error.headers, JSON)


async def _http_error(request: Request, error: Any) -> Response:
    codes = {404: "not_found", 405: "method"}
    message = f"there is no {echoed(request.url.path)}; see /docs" if error.status_code == 404 else str(error.detail)
    told = RequestError(error.status_code, codes.get(error.status_code, "http"), message, headers=dict(error.headers or {}))
    return await _request_error(request, told)


async def _unexpected(request: Request, error: Exception) -> Response:
    return await _request_error(request, OUR_MISTAKE)
