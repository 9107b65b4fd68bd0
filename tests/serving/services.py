"""Services around small models, and requests for them."""

import asyncio
import copy
from typing import Any

import httpx
import msgspec
import numpy as np

from pbodl.data.table.feature_table import Table
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.serving.follower import Version
from pbodl.serving.http_messages import JSON, MSGPACK
from pbodl.serving.http_service import HttpService
from pbodl.serving.scoring.packed_rows import COLUMN, unpack
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.server_limits import Limits, Token
from tests.click_log import START
from tests.publishing.published import LOG, MODELS

USER = {"user": 3, "tags": ["tag0", "tag2", "tag2"], "age": 31.5}
CONTEXT = {"site": "site1", "time": START + 7000.0}
CANDIDATES: list[dict[str, Any]] = [
    {"ad": "ad1", "price": 3.0},
    {"ad": "ad2", "price": None},
    {"ad": "never seen", "price": -1e9},
    {"price": 0.5},
    {"ad": 7},
]
REQUEST = {"user": USER, "context": CONTEXT, "candidates": CANDIDATES}


class Fixed:
    """A predictor source whose predictor stays."""

    def __init__(self, predictor: Predictor | None) -> None:
        self.predictor = predictor
        self.troubles = {"damaged": 0, "missing": 0}


def state_of(version: Version) -> State:
    """The whole state of a version, as the trainer's `model.state()` was."""
    packed, whole = version.table, copy.copy(version.model)
    columns = unpack(packed.column(COLUMN), packed.layout)
    whole.table = Table({name: array.shape[1] for name, array in columns.items()})
    whole.table.load_state({**{name: array for name, array in packed.state().items() if name != COLUMN}, **columns})
    return whole.state()


class Asking:
    """Asks a service in this process."""

    def __init__(self, service: HttpService) -> None:
        self._transport = httpx.ASGITransport(service, raise_app_exceptions=False)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return asyncio.run(self._request("GET", path, **more))

    def post(self, path: str, **more: Any) -> httpx.Response:
        return asyncio.run(self._request("POST", path, **more))

    async def _request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport, base_url="http://test") as client:
            return await client.request(method, path, **more)


def trained(name: str = "fm") -> DeepProbit:
    model = MODELS[name]()
    model.learn(LOG)
    return model


def rows_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The request's candidates as rows of a log."""
    missing = {"user": None, "tags": None, "age": None, "site": None, "ad": None, "price": None}
    return [{**missing, **request["user"], **request["context"], **candidate} for candidate in request["candidates"]]


def client_of(model: DeepProbit | None, limits: Limits | None = None, token: str | None = None) -> Asking:
    predictor = None if model is None else Predictor.of(model)
    return Asking(HttpService(Fixed(predictor), limits, Token(token)))


def ask(client: Asking, request: Any, kind: str = JSON, **headers: str) -> Any:
    encode = msgspec.json.encode if kind == JSON else msgspec.msgpack.encode
    return client.post("/v1/score", content=encode(request), headers={"Content-Type": kind, **headers})


def answer(client: Asking, request: Any, kind: str = JSON) -> dict[str, Any]:
    response = ask(client, request, kind)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == kind
    decode = msgspec.json.decode if kind == JSON else msgspec.msgpack.decode
    told = decode(response.content)
    return {name: value if name == "model" else np.array(value) for name, value in told.items()}


BOTH = (JSON, MSGPACK[0])
