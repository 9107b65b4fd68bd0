"""The server of a share (`pbodl serve --shard 0/4`): it gives rows to routers, and scores nothing itself.

While a router still uses the version before the newest, the server keeps it: the servers of a model load a new version each at its
own moment, and a request must find its version on all of them.
"""

import time
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pbodl.serving.models.parts_follower import RowShare
from pbodl.serving.models.predictor_source import PredictorSource
from pbodl.serving.models.served_models import ServedModels
from pbodl.serving.models.shared_versions import announcement
from pbodl.serving.ranking.decision_events import Decided
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.sharing.share_messages import GONE, MODEL, ROWS, STATE, RowsAsked, ShareState, rows_found
from pbodl.serving.web.http_messages import MSGPACK, RequestError
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.model_choice import Addressed
from pbodl.serving.web.request_queue import Ticket
from pbodl.serving.web.server_limits import Limits, Token

KEPT = 1.0  # seconds that an older version stays after a router last named it
SHARE_ROWS = "rows"


class ShareService(HttpService):
    """As `HttpService`, for a share of the rows."""

    def __init__(
        self, models: ServedModels | PredictorSource, share: RowShare, limits: Limits | None = None, token: Token | None = None
    ) -> None:
        self.share, self._named = share, float("-inf")
        self._kept_since: tuple[Any, float] = (None, 0.0)
        super().__init__(models, limits, token)

    def more_routes(self) -> list[Route]:
        return [Route(STATE, self.guarded(self._state)), Route(MODEL, self.guarded(self._model_of))]

    def addressed(self, path: str) -> Addressed | None:
        return Addressed(SHARE_ROWS, None) if path == ROWS else super().addressed(path)

    async def answer(self, ticket: Ticket, where: Addressed, content_type: str, body: bytes) -> tuple[bytes, Decided | None]:
        if where.endpoint != SHARE_ROWS:
            share = f"share {self.share.number} of {self.share.shares}"
            raise RequestError(421, "share", f"this server holds {share} of a model's rows; ask the router (`pbodl route`)")
        return await self.queue.run(ticket, lambda: self._rows(content_type, body)), None

    def _rows(self, content_type: str, body: bytes) -> bytes:
        if content_type not in MSGPACK:
            raise RequestError(415, "content_type", f"rows are asked for in {MSGPACK[0]}", "Content-Type")
        try:
            asked = msgspec.msgpack.decode(body, type=RowsAsked)
            keys = np.frombuffer(asked.keys, "<u8")
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise RequestError(422, "invalid", f"this is no request for rows: {str(error)[:200]}") from None
        return rows_found(asked.version, self._version(asked.version).version.table, keys)

    def _version(self, number: int) -> Predictor:
        """The predictor of a version that is here."""
        for predictor in self._here():
            if predictor.version.number == number:
                if predictor is not self._predictor():
                    self._named = time.monotonic()
                return predictor
        versions = ", ".join(str(predictor.version.number) for predictor in self._here())
        raise RequestError(GONE, "version", f"version {number} is not here; this server has: {versions}")

    def _here(self) -> list[Predictor]:
        kept = getattr(self.models.default, "kept", None)
        return [self._predictor(), *([] if kept is None else [kept])]

    def tidy(self) -> None:
        """Let the older version go, once no router names it."""
        source = self.models.default
        kept = getattr(source, "kept", None)
        if kept is not self._kept_since[0]:
            self._kept_since = kept, time.monotonic()
        elif kept is not None and time.monotonic() - max(self._named, self._kept_since[1]) > KEPT:
            self._kept_since = None, 0.0
            source.kept = None  # type: ignore[union-attr]

    async def _state(self, request: Request) -> Response:
        using = request.query_params.get("using", "")
        here = self._here()
        if _is_number(using) and int(using) != here[0].version.number:
            self._named = time.monotonic()
        versions = [(predictor.version.number, predictor.version.published_at) for predictor in here]
        state = ShareState(*self.share, versions, here[0].version.table.size)
        return Response(msgspec.msgpack.encode(state), media_type=MSGPACK[0])

    async def _model_of(self, request: Request) -> Response:
        number = request.query_params.get("version", "")
        if not _is_number(number):
            raise RequestError(422, "invalid", "give the number of a version", "version")
        version = self._version(int(number)).version
        about = {"layout": list(version.table.layout), "counters": version.counters}
        return Response(announcement(version, about, {}), media_type=MSGPACK[0])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18
