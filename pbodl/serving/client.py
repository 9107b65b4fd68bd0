"""A client of the server, for threads (`Client`) and for asyncio (`AsyncClient`): connections are kept, failures tried again.

Scoring changes nothing on the server, so that trying again is safe: after a connection that broke, a time-out, and an answer of
503, after a pause that doubles each time (or as long as the server asks for).
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.serving.http_messages import MSGPACK, ScoreAnswer

AGAIN = (502, 503, 504)


class ServerError(Exception):
    """The server's answer was an error: `status`, `code`, `message`, and the `field` that it is about."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(f"{message} ({status}, {code})")
        self.status, self.code, self.message, self.field = status, code, message, field


class Answer(NamedTuple):
    """The scores of a request's candidates, in their order; mean and variance if the detail was asked for."""

    model: int
    ctr: NDArray[np.float64]
    std: NDArray[np.float64]
    mean: NDArray[np.float64] | None
    variance: NDArray[np.float64] | None


class _Talk:
    """What both clients say and understand."""

    def __init__(self, url: str, token: str | None, timeout: float, retries: int, pause: float) -> None:
        self._retries, self._pause = retries, pause
        self._options: dict[str, Any] = {
            "base_url": url, "timeout": timeout, "headers": {} if token is None else {"Authorization": f"Bearer {token}"}
        }  # fmt: skip

    def _request(self, **body: Any) -> dict[str, Any]:
        return {"content": msgspec.msgpack.encode(body), "headers": {"Content-Type": MSGPACK[0]}}

    def _pause_before(self, attempt: int, response: httpx.Response | None) -> float:
        asked = response.headers.get("Retry-After", "") if response is not None else ""
        doubled = self._pause * 2**attempt * random.uniform(0.5, 1.0)
        return max(float(asked), doubled) if asked.isdigit() else doubled


def _scores(response: httpx.Response) -> Answer:
    told = msgspec.msgpack.decode(_checked(response).content, type=ScoreAnswer)
    arrays = [None if column is None else np.array(column) for column in (told.ctr, told.std, told.mean, told.variance)]
    return Answer(told.model, *arrays)  # type: ignore[arg-type]


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {"code": "http", "message": response.text[:200] or response.reason_phrase}
    raise ServerError(response.status_code, error["code"], error["message"], error.get("field"))


class Client(_Talk):
    """Asks a server for scores.

    url      of the server, such as http://127.0.0.1:8080
    token    that it wants, if it does
    timeout  seconds for one attempt
    retries  further attempts after a failure
    pause    seconds before the first of them

        with Client("http://127.0.0.1:8080") as client:
            answer = client.score({"user_id": 7}, {"site": "a"}, [{"ad_id": 1}, {"ad_id": 2}])
            answer.ctr, answer.std
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 1.0, retries: int = 2, pause: float = 0.05) -> None:
        super().__init__(url, token, timeout, retries, pause)
        self._http = httpx.Client(**self._options)

    def score(
        self,
        user: Mapping[str, Any],
        context: Mapping[str, Any],
        candidates: Sequence[Mapping[str, Any]],
        explore: str = "none",
        seed: int | None = None,
        c: float = 1.0,
        detail: bool = False,
    ) -> Answer:
        """The CTR of every candidate, with its standard deviation."""
        request = self._request(user=user, context=context, candidates=candidates, explore=explore, seed=seed, c=c, detail=detail)
        return _scores(self._send("POST", "/v1/score", **request))

    def model(self) -> dict[str, Any]:
        """What the server says of its model."""
        return _checked(self._send("GET", "/v1/model")).json()

    def ready(self) -> bool:
        """Whether the server has a model."""
        return self._http.get("/readyz").status_code == 200

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            response = None
            try:
                response = self._http.request(method, path, **content)
            except httpx.TransportError:
                if last:
                    raise
            if response is not None and (last or response.status_code not in AGAIN):
                return response
            time.sleep(self._pause_before(attempt, response))
        raise AssertionError("the last attempt answers or raises")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient(_Talk):
    """As `Client`, for asyncio: `async with AsyncClient(url) as client: await client.score(...)`."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 1.0, retries: int = 2, pause: float = 0.05) -> None:
        super().__init__(url, token, timeout, retries, pause)
        self._http = httpx.AsyncClient(**self._options)

    async def score(
        self,
        user: Mapping[str, Any],
        context: Mapping[str, Any],
        candidates: Sequence[Mapping[str, Any]],
        explore: str = "none",
        seed: int | None = None,
        c: float = 1.0,
        detail: bool = False,
    ) -> Answer:
        """The CTR of every candidate, with its standard deviation."""
        request = self._request(user=user, context=context, candidates=candidates, explore=explore, seed=seed, c=c, detail=detail)
        return _scores(await self._send("POST", "/v1/score", **request))

    async def model(self) -> dict[str, Any]:
        """What the server says of its model."""
        return _checked(await self._send("GET", "/v1/model")).json()

    async def ready(self) -> bool:
        """Whether the server has a model."""
        return (await self._http.get("/readyz")).status_code == 200

    async def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            response = None
            try:
                response = await self._http.request(method, path, **content)
            except httpx.TransportError:
                if last:
                    raise
            if response is not None and (last or response.status_code not in AGAIN):
                return response
            await asyncio.sleep(self._pause_before(attempt, response))
        raise AssertionError("the last attempt answers or raises")

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
