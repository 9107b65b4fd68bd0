"""The clients: what they ask and understand, what they try again, and when they give up."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from pbodl.serving import AsyncClient, Client, client
from pbodl.serving.client import ServerError
from pbodl.system.extras import install_line
from tests.serving.services import CANDIDATES, CONTEXT, USER

GOOD = (200, {"Content-Type": "application/msgpack"}, msgspec.msgpack.encode({"model": 4, "ctr": [0.25], "std": [0.125]}))
BUSY = (503, {"Retry-After": "7"}, b'{"error": {"code": "busy", "message": "busy", "field": null}}')
WRONG = (422, {}, b'{"error": {"code": "unknown_field", "message": "no such field", "field": "user.usr"}}')
STRANGE = (502, {}, b"<html>a proxy's page</html>")
DROP, SLOW = (0, {}, b""), (-1, {}, b"")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.headers, body))
        status, headers, content = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        if status <= 0:
            if status < 0:
                self.server.over.wait(30)
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def scripted(*script: tuple) -> Iterator[Any]:
    """A server that answers by a script, and repeats its last line."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.script, server.seen, server.over = list(script), [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


# No attempt fails for the machine's sake.
PATIENT = {"timeout": 300.0}


def ask_sync(url: str, **options: Any) -> Any:
    with Client(url, **PATIENT | options) as asking:
        return asking.score(USER, CONTEXT, CANDIDATES, explore="ucb", seed=3, c=2.0, detail=True)


def ask_async(url: str, **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(url, **PATIENT | options) as asking:
            return await asking.score(USER, CONTEXT, CANDIDATES, explore="ucb", seed=3, c=2.0, detail=True)

    return asyncio.run(run())


@pytest.fixture(params=[ask_sync, ask_async])
def ask(request, monkeypatch):
    """Asks; pauses are noted instead of made."""
    request.param.pauses = []
    own, sleep, sleep_long = threading.current_thread(), asyncio.sleep, time.sleep

    async def note(seconds: float) -> None:
        request.param.pauses.append(seconds)
        await sleep(0)

    def note_own(seconds: float) -> None:
        if threading.current_thread() is own:
            request.param.pauses.append(seconds)
        else:  # a thread of another test
            sleep_long(seconds)

    monkeypatch.setattr(client.time, "sleep", note_own)
    monkeypatch.setattr(client.asyncio, "sleep", note)
    return request.param


def test_what_is_asked_and_answered(ask):
    with scripted(GOOD) as server:
        answer = ask(server.url, token="secret")
        (headers, body), *_ = server.seen
    assert headers["Authorization"] == "Bearer secret"
    asked = {"user": USER, "context": CONTEXT, "candidates": CANDIDATES, "explore": "ucb", "seed": 3, "c": 2.0, "detail": True}
    assert msgspec.msgpack.decode(body) == asked
    assert (answer.model, answer.mean) == (4, None)
    np.testing.assert_array_equal(answer.ctr, [0.25])
    np.testing.assert_array_equal(answer.std, [0.125])
    assert ask.pauses == []


def test_how_to_explore_is_asked_for_only_if_given():
    with scripted(GOOD, GOOD) as server:
        with Client(server.url, **PATIENT) as asking:
            assert asking.score(USER, CONTEXT, CANDIDATES).explore == "none"
            asking.score(USER, CONTEXT, CANDIDATES, explore="thompson", explore_key="user 3", spread=0.5)
        first, second = (msgspec.msgpack.decode(body) for _, body in server.seen)
    assert not {"explore_key", "spread"} & first.keys()
    assert (second["explore_key"], second["spread"]) == ("user 3", 0.5)


@pytest.mark.parametrize("trouble", [DROP, BUSY, STRANGE])
def test_trouble_is_tried_again(ask, trouble):
    with scripted(trouble, trouble, GOOD) as server:
        assert ask(server.url, pause=0.5).model == 4
        assert len(server.seen) == 3
    assert len(ask.pauses) == 2
    if trouble is BUSY:
        assert ask.pauses == [7.0, 7.0]  # as the server asks
    else:
        assert 0.25 <= ask.pauses[0] <= 0.5 <= ask.pauses[1] <= 1.0  # doubled, and not all clients at once


def test_a_slow_answer_is_tried_again(ask):
    with scripted(SLOW, GOOD) as server:
        # A busy machine may need more than one attempt more, and the pauses between them are not made.
        assert ask(server.url, timeout=0.5, retries=100).model == 4
        assert len(server.seen) >= 2


def test_there_is_an_end(ask):
    with scripted(BUSY, BUSY, BUSY) as server:
        with pytest.raises(ServerError, match="busy") as caught:
            ask(server.url, retries=1)
        assert len(server.seen) == 2
    assert (caught.value.status, caught.value.code) == (503, "busy")
    with scripted(DROP) as server, pytest.raises(httpx.TransportError):
        ask(server.url, retries=0)
    with scripted(STRANGE) as server, pytest.raises(ServerError, match="a proxy's page"):
        ask(server.url, retries=0)


def test_an_error_of_the_request_is_not_tried_again(ask):
    with scripted(WRONG, GOOD) as server:
        with pytest.raises(ServerError, match="no such field") as caught:
            ask(server.url)
        assert len(server.seen) == 1
    assert (caught.value.status, caught.value.code, caught.value.field) == (422, "unknown_field", "user.usr")


def test_nobody_there(ask):
    with pytest.raises(httpx.TransportError):
        ask("http://127.0.0.1:9", retries=1)
    assert len(ask.pauses) == 1


def test_without_the_extra_a_person_is_told_what_to_install():
    """In a process in which the web's libraries cannot be found."""
    program = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("httpx", "uvicorn") else found(name, *rest)
from pbodl.serving.scoring.predictor import Predictor
try:
    from pbodl.serving import Client
except ValueError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told == f"serving needs httpx, uvicorn, which are not installed; run: {install_line('serve')}\n"
