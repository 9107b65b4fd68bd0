"""Services around small models, and requests for them."""

import asyncio
import contextlib
import copy
import functools
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import numpy as np
import uvicorn
from uvicorn.server import ServerState

from pbodl.data.table.feature_table import Table
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring.packed_rows import COLUMN, unpack
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_connection import HttpConnection, Peers
from pbodl.serving.web.http_messages import JSON, MSGPACK
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.server_limits import Limits, Token
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


@contextlib.asynccontextmanager
async def listening(service: HttpService, most: int = 100) -> AsyncIterator[int]:
    """The service behind a socket of this process, as a worker runs it; gives the port."""
    config = uvicorn.Config(service, log_config=None, lifespan="off", ws="none")
    config.load()
    make = functools.partial(HttpConnection, service, Peers(most), config=config, server_state=ServerState(), app_state={})
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class RawClient:
    """A connection on which a test decides about every byte."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "RawClient":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        async with asyncio.timeout(300.0):
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
            headers = dict(line.split(": ", 1) for line in lines)
            return int(first.split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def ended(self) -> bytes:
        """What is left to read until the server ends the connection."""
        async with asyncio.timeout(300.0):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


def head(body: bytes, **headers: str) -> bytes:
    """The head of a request for scores."""
    told = {"Host": "test", "Content-Type": JSON, "Content-Length": str(len(body))} | headers
    return b"POST /v1/score HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in told.items()).encode() + b"\r\n"


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
