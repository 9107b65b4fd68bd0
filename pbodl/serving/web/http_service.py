"""The HTTP interface: a thin ASGI application around the newest predictors.

It answers `POST /v1/score` and `POST /v1/rank` directly on the event loop: handing a request to a thread would take longer than
scoring it. `/v1/models/NAME/score` asks a model by its name. Starlette handles all other requests. Garbage is collected when no
request is under way.
"""

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from pbodl.errors import InputError
from pbodl.serving.dashboard.routes import routes as dashboard_routes
from pbodl.serving.models.predictor_source import PredictorSource
from pbodl.serving.models.served_models import ServedModels
from pbodl.serving.ranking.deciding import Deciding
from pbodl.serving.ranking.decision_events import Decided
from pbodl.serving.ranking.decision_log import DecisionLog
from pbodl.serving.ranking.shadows import shadow_scores
from pbodl.serving.scoring.exploration import explore
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import Encoded
from pbodl.serving.web.http_connection import TICKET
from pbodl.serving.web.http_messages import (
    JSON,
    ListedModel,
    ModelAnswer,
    ModelsAnswer,
    Parsed,
    RequestError,
    echoed,
    invalid,
    wire_of,
    write_scores,
)
from pbodl.serving.web.model_choice import Addressed, addressed, choose
from pbodl.serving.web.openapi import document, page
from pbodl.serving.web.replies import (
    OUR_MISTAKE,
    SECURE,
    Send,
    content_type_of,
    http_error,
    json_answer,
    reply,
    request_error,
    unexpected_error,
)
from pbodl.serving.web.request_queue import Receive, RequestQueue, Ticket, read_body
from pbodl.serving.web.server_limits import Limits, Token
from pbodl.serving.web.server_metrics import ServerMetrics

OPEN = ("/healthz", "/readyz", "/openapi.json", "/docs")  # these require no token
COLLECT_EVERY = 1.0  # seconds
MOST_SHADOWED = 64  # decisions that wait for the scores of challengers
LONG = 0.001  # seconds that a collection should take at most
Endpoint = Callable[[Request], Awaitable[Response]]
logger = logging.getLogger("pbodl.serving")


class AskedScores(NamedTuple):
    """A request for scores that was read."""

    predictor: Predictor
    parsed: Parsed
    shared: Encoded
    own: Encoded
    name: str  # of the model, where there are several
    content_type: str


class HttpService:
    """The ASGI application: answers requests with the newest predictors of its models, and serves the dashboard.

    models  the models, or the source of the only one
    run     the run folder of the only one, from which the dashboard reads live figures and the names of features; None: it shows
            neither
    log     where decisions are logged; None: nowhere
    """

    def __init__(
        self, models: ServedModels | PredictorSource, limits: Limits | None = None, token: Token | None = None,
        run: str | None = None, log: DecisionLog | None = None,
    ) -> None:  # fmt: skip
        self.limits, self.token, self.log = limits or Limits(), token or Token(None), log
        self.models = models if isinstance(models, ServedModels) else ServedModels.only(models, run)
        self.metrics = ServerMetrics(self.models, log)
        self.queue = RequestQueue(self.limits)
        self._shadowing: set[asyncio.Task] = set()
        routes = [
            Route("/v1/model", self.guarded(self._model)),
            Route("/v1/models", self.guarded(self._models)),
            Route("/v1/models/{name}", self.guarded(self._model)),
            Route("/metrics", self.guarded(self._metrics)),
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            Route("/openapi.json", self._openapi),
            Route("/docs", self._docs),
            *self.more_routes(),
        ]
        handlers: dict[Any, Any] = {HTTPException: http_error, RequestError: request_error, Exception: unexpected_error}
        self._others = Starlette(routes=[*routes, *dashboard_routes(self)], exception_handlers=handlers, lifespan=self._lifespan)

    def more_routes(self) -> list[Route]:
        """Routes of a service of another kind."""
        return []

    @property
    def run(self) -> str | None:
        """The run folder of the default model."""
        return self.models.runs.get(self.models.traffic.default)

    @property
    def predictor(self) -> Predictor | None:
        """The newest predictor of the default model."""
        source = self.models.default
        return None if source is None else source.predictor

    def is_queued(self, path: bytes) -> bool:
        """Whether a request for this path needs a ticket."""
        return path == b"/v1/score" or self.addressed(path.decode("latin-1")) is not None

    def addressed(self, path: str) -> Addressed | None:
        """What a path asks for, if its requests wait for their turn."""
        return addressed(path)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        where = self.addressed(scope["path"]) if scope["type"] == "http" else None
        if where is not None:
            await self._queued(where, scope, receive, send)
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

    async def _queued(self, where: Addressed, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request for scores or for a ranking, right or wrong."""
        ticket: Ticket | None = scope.get(TICKET)
        headers: dict[str, str] = {}
        content_type, decided = JSON, None
        try:
            if ticket is None:
                ticket = self.admit(scope["headers"])
            given = dict(scope["headers"])
            if scope["method"] != "POST":
                raise RequestError(405, "method", f"{echoed(scope['path'])} accepts only POST", headers={"Allow": "POST"})
            content_type = content_type_of(given)
            asked = await read_body(given, receive, ticket)
            ticket.complete()
            status, (body, decided) = 200, await self.answer(ticket, where, content_type, asked)
        except RequestError as error:
            status, body, headers = error.status, error.body(), error.headers
        except ConnectionResetError:
            return
        except Exception:
            logger.exception("a %s request failed", where.endpoint)
            status, body = OUR_MISTAKE.status, OUR_MISTAKE.body()
        finally:
            if ticket is not None:
                ticket.done()
        await reply(send, status, content_type if status == 200 else JSON, body, headers)
        self.metrics.requests.labels(where.endpoint, status).inc()
        if status == 200 and ticket is not None:
            seconds = self.metrics.rank_seconds if where.endpoint == "rank" else self.metrics.seconds
            seconds.observe(time.perf_counter() - ticket.arrived)
        if decided is not None and self.log is not None:
            self._keep(decided)

    async def answer(self, ticket: Ticket, where: Addressed, content_type: str, body: bytes) -> tuple[bytes, Decided | None]:
        """The answer to the body of a request, and the decision for the log, if it is one."""
        if where.endpoint == "rank":
            ranking = await self.queue.run(ticket, lambda: self.asked_ranking(where.name, content_type, body).decided(), last=False)
            return await self.counted(ticket, ranking)
        return await self.queue.run(ticket, lambda: self.scores(self.asked_scores(where.name, content_type, body))), None

    def asked_scores(self, name: str | None, content_type: str, body: bytes) -> AskedScores:
        """Read the body of a request for scores."""
        chosen = choose(self.models, name, content_type, body)
        predictor, name = self._predictor(chosen.name), chosen.about.get("name", "")
        parsed = wire_of(predictor.schema).read(body, content_type, self.limits.candidates)
        if parsed.candidates > self.limits.candidates:
            message = f"{parsed.candidates:,} candidates are more than the {self.limits.candidates:,} that this server accepts"
            raise RequestError(413, "too_many_candidates", message, "candidates")
        try:
            shared = predictor.encoder.encode_shared(parsed.shared)
            own = parsed.own if isinstance(parsed.own, Encoded) else predictor.encoder.encode_own(parsed.own)
        except InputError as error:
            raise invalid(error) from None
        return AskedScores(predictor, parsed, shared, own, name, content_type)

    def scores(self, asked: AskedScores) -> bytes:
        """The answer to a request for scores."""
        predictor, parsed, shared, own, name, content_type = asked
        scores, ctr = explore(predictor, shared, own, parsed.explore)
        self.metrics.scored(len(own.keys), float(scores.ctr.sum()), name)
        scores = (predictor.recalibrated(scores) if parsed.detail else scores)._replace(ctr=ctr)
        return write_scores(predictor.version.number, scores, parsed.detail, content_type, parsed.explore.rule, name)

    def asked_ranking(self, name: str | None, content_type: str, body: bytes) -> Deciding:
        """Read the body of a request for a ranking."""
        chosen = choose(self.models, name, content_type, body)
        predictor = self._predictor(chosen.name)
        return Deciding(predictor, body, content_type, self.limits.candidates, chosen.about, self.log is not None)

    async def counted(self, ticket: Ticket, deciding: Deciding) -> tuple[bytes, Decided]:
        """Count the propensities of a decision; returns the answer, and the decision for the log."""
        while deciding.counts and not await self.queue.run(ticket, deciding.step, last=False):
            pass
        self.metrics.scored(deciding.candidates, deciding.ctr_sum, deciding.name)
        return deciding.finish()

    def _keep(self, decided: Decided) -> None:
        """Log a decision. Challengers score it first, when no request waits; under load the log does without their scores."""
        assert self.log is not None
        shadow = [name for name in self.models.traffic.shadow if name != decided.more.get("name")]
        if not shadow or len(self._shadowing) >= MOST_SHADOWED:
            self.log.add(decided)
            return
        shadows: dict[str, Any] = {}
        task = asyncio.create_task(self._shadowed(decided, shadow, shadows))
        self._shadowing.add(task)
        task.add_done_callback(lambda task: self._log_shadowed(task, decided._replace(shadows=shadows)))

    def _log_shadowed(self, task: asyncio.Task, decided: Decided) -> None:
        """Log a decision with the scores of challengers, also where the server's end cut them off."""
        self._shadowing.discard(task)
        if self.log is not None:
            self.log.add(decided)

    async def _shadowed(self, decided: Decided, names: list[str], shadows: dict[str, Any]) -> None:
        """Have challengers score a decision. MODIFIES: shadows."""
        for name in names:
            try:
                ticket = self.queue.ticket()
            except RequestError:
                break
            try:
                scored = await self.queue.run(ticket, lambda name=name: shadow_scores(self._predictor(name), decided))  # type: ignore[misc]
                shadows[name] = scored
            except (RequestError, InputError) as error:
                self.metrics.shadow_failures.labels(name).inc()
                logger.debug("the challenger %s did not score a request: %s", name, error)
            except Exception:
                self.metrics.shadow_failures.labels(name).inc()
                logger.exception("the challenger %s failed", name)
            finally:
                ticket.done()

    def _predictor(self, name: str | None = None) -> Predictor:
        source = self.models.sources.get(name or self.models.traffic.default)
        known = ", ".join(self.models.sources)  # empty in a worker that has just started, until it is told of its models
        if source is None and known:
            raise RequestError(404, "unknown_model", f"there is no model {echoed(str(name))!r}; the models are: {known}", "name")
        if source is None or source.predictor is None:
            raise RequestError(503, "not_ready", "no model is loaded yet; try again in a moment", headers={"Retry-After": "1"})
        return source.predictor

    async def _models(self, request: Request) -> Response:
        traffic = self.models.traffic
        listed = []
        for name, source in self.models.sources.items():
            version = None if source.predictor is None else source.predictor.version
            listed.append(
                ListedModel(
                    name, name == traffic.default, traffic.split.get(name), name in traffic.shadow,
                    None if version is None else version.number,
                    None if version is None else time.time() - version.published_at,
                    None if version is None else version.model.kind,
                    None if version is None else version.counters["rows_learned"],
                    None if version is None else version.counters["features"],
                    source.troubles,
                )
            )  # fmt: skip
        return json_answer(ModelsAnswer(listed))

    async def _model(self, request: Request) -> Response:
        version = self._predictor(request.path_params.get("name")).version
        counters = version.counters
        answer = ModelAnswer(
            version.number, time.time() - version.published_at, version.published_at, version.loaded_at, version.model.kind,
            counters["rows_learned"], counters["features"], counters,
            msgspec.to_builtins(version.model.schema), msgspec.to_builtins(version.model.spec),
        )  # fmt: skip
        return json_answer(answer)

    async def _metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _health(self, request: Request) -> Response:
        return json_answer({"status": "alive"})

    async def _ready(self, request: Request) -> Response:
        self._predictor()
        return json_answer({"status": "ready"})

    async def _openapi(self, request: Request) -> Response:
        return json_answer(self._document())

    async def _docs(self, request: Request) -> Response:
        text, policy = page(self._document(), str(request.base_url).rstrip("/"))
        return HTMLResponse(text, headers={"Content-Security-Policy": policy, "Cache-Control": "no-cache"})

    def _document(self) -> dict[str, Any]:
        predictor = self.predictor
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
                self.metrics.requests.labels("other", message["status"]).inc()
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

    def tidy(self) -> None:
        """Called about once a second."""

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(COLLECT_EVERY)
            self.tidy()
            for _ in range(100):
                if not self.queue.in_flight:
                    break
                await asyncio.sleep(0.001)
            began = time.perf_counter()
            gc.collect()
            if time.perf_counter() - began > LONG:
                gc.freeze()  # the many objects are there to stay, such as the code of a first model
