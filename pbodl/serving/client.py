"""Clients of the server, for threads (`Client`) and for asyncio (`AsyncClient`). They keep connections, and retry after failures.

Scoring changes nothing on the server, and a ranking has its id from the client, so a retry is safe. The clients retry after a
broken connection, a time-out, and the answers 502, 503 and 504. The pause before a retry doubles each time, and is at least as
long as the server asks for.
"""

import asyncio
import itertools
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.serving.ranking.rank_messages import RankAnswer
from pbodl.serving.web.http_messages import MSGPACK, ScoreAnswer

AGAIN = (502, 503, 504)
Row = Mapping[str, Any]


class ServerError(Exception):
    """The server answered with an error: `status`, `code`, `message`, and the `field` that it is about."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(f"{message} ({status}, {code})")
        self.status, self.code, self.message, self.field = status, code, message, field


class Answer(NamedTuple):
    """The scores of a request's candidates, in their order; mean and variance if `detail` was requested."""

    model: int
    ctr: NDArray[np.float64]
    std: NDArray[np.float64]
    mean: NDArray[np.float64] | None
    variance: NDArray[np.float64] | None
    explore: str = "none"  # the rule that made `ctr`


class _Protocol:
    """What both clients send and understand; they differ in waiting alone."""

    def __init__(self, url: str, token: str | None, timeout: float, retries: int, pause: float) -> None:
        self._retries, self._pause = retries, pause
        self._options: dict[str, Any] = {
            "base_url": url, "timeout": timeout, "headers": {} if token is None else {"Authorization": f"Bearer {token}"}
        }  # fmt: skip

    def _pause_after(self, attempt: int, response: httpx.Response | None = None) -> float | None:
        """Seconds to wait before the next attempt; None if this one was the last. No response: the connection failed."""
        if attempt == self._retries or (response is not None and response.status_code not in AGAIN):
            return None
        asked = response.headers.get("Retry-After", "") if response is not None else ""
        doubled = self._pause * 2**attempt * random.uniform(0.5, 1.0)
        return max(float(asked), doubled) if asked.isdigit() else doubled


def _body(*values: Any, explore_key: str | int | None, spread: float) -> dict[str, Any]:
    names = ("user", "context", "candidates", "explore", "seed", "c", "detail")
    asked = dict(zip(names, values, strict=True))
    # Only if given: servers of an earlier version refuse fields that they do not know.
    asked |= {} if explore_key is None else {"explore_key": explore_key}
    asked |= {} if spread == 1.0 else {"spread": spread}
    return {"content": msgspec.msgpack.encode(asked), "headers": {"Content-Type": MSGPACK[0]}}


def _scores(response: httpx.Response) -> Answer:
    told = msgspec.msgpack.decode(_checked(response).content, type=ScoreAnswer)
    mean, variance = (None if column is None else np.array(column) for column in (told.mean, told.variance))
    return Answer(told.model, np.array(told.ctr), np.array(told.std), mean, variance, told.explore)


def _rank_body(user: Row, context: Row, candidates: Sequence[Row], asked: Mapping[str, Any]) -> dict[str, Any]:
    body = {"user": user, "context": context, "candidates": candidates, **asked}
    # A retry must not become another decision.
    body.setdefault("request_id", uuid.uuid4().hex)
    return {"content": msgspec.msgpack.encode(body), "headers": {"Content-Type": MSGPACK[0]}}


def _ranking(response: httpx.Response) -> RankAnswer:
    return msgspec.msgpack.decode(_checked(response).content, type=RankAnswer)


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {"code": "http", "message": response.text[:200] or response.reason_phrase}
    raise ServerError(response.status_code, error["code"], error["message"], error.get("field"))


class Client(_Protocol):
    """Asks a server for scores.

    url      address of the server, such as http://127.0.0.1:8080
    token    the server's token, if it requires one
    timeout  seconds for one attempt
    retries  further attempts after a failure
    pause    seconds before the first retry

        with Client("http://127.0.0.1:8080") as client:
            answer = client.score({"user_id": 7}, {"site": "a"}, [{"ad_id": 1}, {"ad_id": 2}])
            answer.ctr, answer.std
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 1.0, retries: int = 2, pause: float = 0.05) -> None:
        super().__init__(url, token, timeout, retries, pause)
        self._http = httpx.Client(**self._options)

    def score(
        self, user: Row, context: Row, candidates: Sequence[Row], explore: str = "none", seed: int | None = None, c: float = 1.0,
        detail: bool = False, explore_key: str | int | None = None, spread: float = 1.0,
    ) -> Answer:  # fmt: skip
        """The CTR of every candidate, with its standard deviation."""
        more: dict[str, Any] = {"explore_key": explore_key, "spread": spread}
        return _scores(self._send("POST", "/v1/score", **_body(user, context, candidates, explore, seed, c, detail, **more)))

    def rank(self, user: Row, context: Row, candidates: Sequence[Row], **asked: Any) -> RankAnswer:
        """Which candidates get the slots: `policy`, `slots`, `bids` and the other keys of `/v1/rank`."""
        return _ranking(self._send("POST", "/v1/rank", **_rank_body(user, context, candidates, asked)))

    def model(self) -> dict[str, Any]:
        """What the server reports about its model."""
        return _checked(self._send("GET", "/v1/model")).json()

    def ready(self) -> bool:
        """Whether the server has a model."""
        return self._http.get("/readyz").status_code == 200

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        for attempt in itertools.count():
            try:
                response = self._http.request(method, path, **content)
                pause = self._pause_after(attempt, response)
            except httpx.TransportError:
                if (pause := self._pause_after(attempt)) is None:
                    raise
            if pause is None:
                break
            time.sleep(pause)
        return response

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient(_Protocol):
    """As `Client`, for asyncio: `async with AsyncClient(url) as client: await client.score(...)`."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 1.0, retries: int = 2, pause: float = 0.05) -> None:
        super().__init__(url, token, timeout, retries, pause)
        self._http = httpx.AsyncClient(**self._options)

    async def score(
        self, user: Row, context: Row, candidates: Sequence[Row], explore: str = "none", seed: int | None = None, c: float = 1.0,
        detail: bool = False, explore_key: str | int | None = None, spread: float = 1.0,
    ) -> Answer:  # fmt: skip
        """The CTR of every candidate, with its standard deviation."""
        more: dict[str, Any] = {"explore_key": explore_key, "spread": spread}
        return _scores(await self._send("POST", "/v1/score", **_body(user, context, candidates, explore, seed, c, detail, **more)))

    async def rank(self, user: Row, context: Row, candidates: Sequence[Row], **asked: Any) -> RankAnswer:
        """Which candidates get the slots: `policy`, `slots`, `bids` and the other keys of `/v1/rank`."""
        return _ranking(await self._send("POST", "/v1/rank", **_rank_body(user, context, candidates, asked)))

    async def model(self) -> dict[str, Any]:
        """What the server reports about its model."""
        return _checked(await self._send("GET", "/v1/model")).json()

    async def ready(self) -> bool:
        """Whether the server has a model."""
        return (await self._http.get("/readyz")).status_code == 200

    async def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        for attempt in itertools.count():
            try:
                response = await self._http.request(method, path, **content)
                pause = self._pause_after(attempt, response)
            except httpx.TransportError:
                if (pause := self._pause_after(attempt)) is None:
                    raise
            if pause is None:
                break
            await asyncio.sleep(pause)
        return response

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
