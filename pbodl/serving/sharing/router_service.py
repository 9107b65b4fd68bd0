"""The router (`pbodl route`): the public interface of a server, for a model whose rows are on several servers.

It reads a request, fetches the rows of its features that it does not have yet, and scores with the kernels of any server: the
answers are, bit for bit, those of one server with the whole model. All rows of a request are of one version. If a shard has just
given that version up, the request starts again with a newer one.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from pbodl.serving.ranking.deciding import Deciding
from pbodl.serving.ranking.decision_events import Decided
from pbodl.serving.ranking.decision_log import DecisionLog
from pbodl.serving.sharing.routed_model import RoutedModel
from pbodl.serving.sharing.share_client import ShareDown, VersionGone
from pbodl.serving.web.http_messages import RequestError
from pbodl.serving.web.http_service import AskedScores, HttpService
from pbodl.serving.web.model_choice import Addressed
from pbodl.serving.web.request_queue import RETRY, Ticket
from pbodl.serving.web.server_limits import Limits, Token

LOOK_EVERY = 0.1  # seconds
PAUSE = 0.02  # seconds before a request starts again
Asked = TypeVar("Asked", AskedScores, Deciding)


class RouterService(HttpService):
    """As `HttpService`, for a model whose rows are elsewhere."""

    def __init__(
        self, model: RoutedModel, limits: Limits | None = None, token: Token | None = None, log: DecisionLog | None = None
    ) -> None:
        super().__init__(model, limits, token, log=log)
        self.model = model

    async def answer(self, ticket: Ticket, where: Addressed, content_type: str, body: bytes) -> tuple[bytes, Decided | None]:
        if where.endpoint == "rank":
            ranking = await self._with_rows(ticket, lambda: self.asked_ranking(where.name, content_type, body))
            return await self.counted(ticket, await self.queue.run(ticket, ranking.decided, last=False))
        asked = await self._with_rows(ticket, lambda: self.asked_scores(where.name, content_type, body))
        return await self.queue.run(ticket, lambda: self.scores(asked)), None

    async def _with_rows(self, ticket: Ticket, read: Callable[[], Asked]) -> Asked:
        """A request that was read, with all its rows here."""
        while True:
            asked = await self.queue.run(ticket, read, last=False)
            try:
                await self.model.fetch(asked.predictor, asked.shared, asked.own)
                return asked
            except ShareDown as error:
                raise unavailable(str(error)) from None
            except VersionGone:
                if ticket.left < PAUSE:
                    raise unavailable("the shards are at different versions of the model") from None
                await asyncio.sleep(PAUSE)
                await self.model.look()

    async def _ready(self, request: Request) -> Response:
        if self.model.waiting and (self.predictor is None or not self.model.lenient):
            raise unavailable(self.model.waiting)
        return await super()._ready(request)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._look())
        try:
            async with super()._lifespan(app):
                yield
        finally:
            looking.cancel()
            for client in self.model.clients:
                client.close()

    async def _look(self) -> None:
        while True:
            began = time.monotonic()
            await self.model.look()
            await asyncio.sleep(max(LOOK_EVERY / 10, LOOK_EVERY - (time.monotonic() - began)))


def unavailable(why: str) -> RequestError:
    """The answer while a shard is away."""
    return RequestError(503, "shard_unavailable", f"{why}; try again in a second", headers=RETRY)
