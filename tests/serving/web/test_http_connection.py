"""A connection: bounds of heads, times and numbers, refusals before the body, and answers in one write."""

import asyncio
import json

import pytest

from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web import http_connection
from pbodl.serving.web.http_connection import HEADERS, Joining
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.server_limits import Limits, Token
from tests.serving.services import REQUEST, Fixed, RawClient, head, listening, trained

BODY = json.dumps(REQUEST).encode()


@pytest.fixture(scope="module")
def predictor():
    return Predictor.of(trained())


def service_of(predictor, token=None, **limits):
    return HttpService(Fixed(predictor), Limits(**{"patience": 30.0} | limits), Token(token))


def asked(service, ask, most=100):
    """What `ask(port)` returns."""

    async def run():
        async with listening(service, most) as port:
            return await ask(port)

    return asyncio.run(run())


def test_requests_are_answered_one_after_the_other(predictor):
    async def ask(port):
        async with RawClient(port) as client:
            client.send(head(BODY) + BODY)
            first = await client.answer()
            client.send(2 * (head(BODY) + BODY) + b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")  # pipelined
            return [first, *[await client.answer() for _ in range(3)]]

    first, second, third, health = asked(service := service_of(predictor), ask)
    assert [first[0], second[0], third[0], health[0]] == [200] * 4
    assert first[2] == second[2] == third[2]
    assert json.loads(health[2]) == {"status": "alive"}
    assert first[1]["x-content-type-options"] == "nosniff"
    assert (service.queue.open, service.queue.held, len(service.queue.in_flight)) == (0, 0, 0)


def test_a_busy_server_refuses_before_the_body(predictor):
    """From the first bytes on, without a task, and the connection stays: the next request on it is answered."""
    service = service_of(predictor, concurrent=1, waiting=0)

    async def ask(port):
        other = service.queue.ticket()
        other.complete()
        async with RawClient(port) as client:
            client.send(head(BODY) + BODY[:10])
            refused = await client.answer()
            other.done()
            client.send(BODY[10:] + head(BODY) + BODY)
            return refused, await client.answer()

    (status, headers, body), answered = asked(service, ask)
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(body)["error"]["code"] == "busy"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert answered[0] == 200
    assert 'pbodl_requests_total{endpoint="score",status="503"} 1.0' in service.metrics.text().decode()


def test_a_token_is_compared_before_the_body(predictor):
    async def ask(port):
        async with RawClient(port) as client:
            client.send(head(b"x" * 1000, Authorization="Bearer wrong"))
            refused = await client.answer()
        async with RawClient(port) as client:
            client.send(head(BODY, Authorization="Bearer secret", Connection="close") + BODY)
            return refused, await client.answer(), await client.ended()

    refused, answered, rest = asked(service_of(predictor, "secret"), ask)
    assert (refused[0], refused[1]["www-authenticate"]) == (401, "Bearer")
    assert (answered[0], rest) == (200, b"")


def test_seconds_count_from_the_first_byte(predictor):
    service = service_of(predictor)

    async def ask(port):
        async with RawClient(port) as client:
            whole = head(BODY) + BODY
            for piece in (whole[:20], whole[20:-20], whole[-20:]):
                await asyncio.sleep(0.3)
                client.send(piece)
            return await client.answer()

    assert asked(service, ask)[0] == 200
    (taken,) = [line for line in service.metrics.text().decode().splitlines() if line.startswith("pbodl_request_seconds_sum")]
    assert float(taken.split()[1]) >= 0.59


def test_slow_bodies_hold_no_turn(predictor):
    """Many requests whose bodies never come, and one that is answered at once; then the slow ones are told, and closed."""
    service = service_of(predictor, concurrent=1, waiting=0, patience=5.0)

    async def ask(port):
        slow = [await RawClient(port).__aenter__() for _ in range(20)]
        for client in slow:
            client.send(head(BODY) + BODY[:10])
        while service.queue.open < len(slow):
            await asyncio.sleep(0.01)
        async with RawClient(port) as client:
            client.send(head(BODY) + BODY)
            answered = await client.answer()
        return answered, [(*await client.answer(), await client.ended()) for client in slow]

    answered, slow = asked(service, ask)
    assert answered[0] == 200
    assert {(status, headers["connection"], rest) for status, headers, _, rest in slow} == {(408, "close", b"")}


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % number for number in range(HEADERS + 1)) + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 100_000,
        b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000_000,
        b"GET /" + b"x" * 1_000_000,
        head(BODY, X="x" * 20_000) + BODY,
    ],
    ids=["many", "endless", "a long value", "a long path", "in one piece"],
)
def test_heads_are_bounded(predictor, sent):
    async def ask(port):
        async with RawClient(port) as client:
            client.send(sent)
            return await client.answer(), await client.ended()

    (status, headers, body), _ = asked(service := service_of(predictor), ask)
    assert (status, headers["connection"]) == (431, "close")
    assert json.loads(body)["error"]["code"] == "head_too_large"
    assert service.queue.open == 0


def test_a_head_that_arrives_in_pieces_is_not_too_large(predictor):
    async def ask(port):
        async with RawClient(port) as client:
            sent = head(BODY, X="x" * 10_000, Y="y" * 5_000) + BODY
            for first in range(0, len(sent), 3000):
                client.send(sent[first : first + 3000])
                await asyncio.sleep(0.01)
            return await client.answer()

    assert asked(service_of(predictor), ask)[0] == 200


def test_trailers_are_bounded(predictor):
    async def ask(port):
        async with RawClient(port) as client:
            chunked = head(b"", **{"Transfer-Encoding": "chunked"}).replace(b"Content-Length: 0\r\n", b"")
            client.send(chunked + b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY) + b"X: 1\r\n" * 1000)
            return await client.ended()

    assert b" 200 " not in asked(service_of(predictor), ask)[:20]


def test_a_slow_head_ends(predictor):
    async def ask(port):
        async with RawClient(port) as client:
            client.send(b"POST /v1/score HTTP/1.1\r\nHost: ")
            return await client.answer(), await client.ended()

    (status, headers, _), rest = asked(service_of(predictor, patience=0.2), ask)
    assert (status, headers["connection"], rest) == (408, "close", b"")


def test_idle_connections_end(predictor, monkeypatch):
    monkeypatch.setattr(http_connection, "KEEP_ALIVE", 1.0)

    async def ask(port):
        async with RawClient(port) as silent, RawClient(port) as client:
            client.send(head(BODY) + BODY)
            answered = await client.answer()
            return answered, await silent.ended(), await client.ended()

    answered, *rest = asked(service_of(predictor), ask)
    assert (answered[0], rest) == (200, [b"", b""])


def test_a_client_that_reads_no_answers_ends(predictor, monkeypatch):
    monkeypatch.setattr(http_connection, "UNREAD", 0.1)
    many = json.dumps({"candidates": [{}] * 10_000, "detail": True}).encode()
    service = service_of(predictor, patience=30.0)

    async def ask(port):
        async with RawClient(port) as client:
            client.writer.transport.pause_reading()
            client.send(50 * (head(many) + many))
            async with asyncio.timeout(60.0):
                while service.queue.open or not client.writer.transport.is_closing():
                    await asyncio.sleep(0.05)
                    client.send(b"x")

    asked(service, ask)
    assert service.queue.held == 0


def test_the_quietest_connection_makes_room(predictor):
    async def ask(port):
        first, second = [await RawClient(port).__aenter__() for _ in range(2)]
        second.send(head(BODY) + BODY)
        await second.answer()
        async with RawClient(port) as third:
            third.send(head(BODY) + BODY)
            return (await third.answer())[0], await first.ended(), second.send(head(BODY) + BODY), (await second.answer())[0]

    assert asked(service_of(predictor), ask, most=2) == (200, b"", None, 200)


def test_what_is_no_request_is_400(predictor):
    async def ask(port):
        async with RawClient(port) as client:
            client.send(b"\x16\x03\x01\x02\x00\r\n\r\n")
            return await client.answer(), await client.ended()

    (status, headers, body), rest = asked(service_of(predictor), ask)
    assert (status, headers["content-type"], rest) == (400, "application/json", b"")
    assert json.loads(body)["error"]["code"] == "malformed"
    assert headers["x-frame-options"] == "DENY"


class Noting:
    """A transport that notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done


def done(*steps) -> list[bytes | str]:
    """What a transport is told when these steps are taken; None lets the loop come round."""
    noting = Noting()

    async def take() -> None:
        joining = Joining(noting, asyncio.get_running_loop())
        for step in steps:
            if step is None:
                await asyncio.sleep(0)
            elif step == "close":
                joining.close()
            else:
                joining.write(step)

    asyncio.run(take())
    return noting.done


def test_head_and_body_are_one_write():
    assert done(b"HTTP/1.1 200 OK\r\n\r\n", b"body", b"more") == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more"]
    assert done(b"HTTP/1.1 200 OK\r\n\r\n", b"", None) == [b"HTTP/1.1 200 OK\r\n\r\n"]


def test_a_head_without_a_body_goes_out_alone():
    assert done(b"HTTP/1.1 304\r\n\r\n", None, b"HTTP/1.1 200\r\n\r\n", b"x") == [b"HTTP/1.1 304\r\n\r\n", b"HTTP/1.1 200\r\n\r\nx"]


def test_closing_loses_nothing():
    assert done(b"HTTP/1.1 204\r\n\r\n", "close", None) == [b"HTTP/1.1 204\r\n\r\n", "closed"]


def test_answers_to_a_client_that_has_left_go_nowhere():
    assert done("close", b"HTTP/1.1 200 OK\r\n\r\n", b"body", None) == ["closed"]


def test_all_else_is_the_transports():
    async def asked() -> bool:
        joining = Joining(noting := Noting(), asyncio.get_running_loop())
        noting.close()
        return joining.is_closing()

    assert asyncio.run(asked())
