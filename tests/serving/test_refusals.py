"""What a server refuses, and how it says so: always in the same shape, never with a trace, and going on afterwards."""

import asyncio
import logging

import httpx
import pytest

from pbodl.serving.http_messages import JSON, MSGPACK, RequestError
from pbodl.serving.http_service import HttpService
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.server_limits import Gate, Limits, Token, read_body
from tests.serving.services import REQUEST, Asking, Fixed, answer, ask, client_of, trained


@pytest.fixture(scope="module")
def model():
    return trained()


@pytest.fixture(scope="module")
def client(model):
    return client_of(model)


def assert_error(response, status, code, field=None, *words):
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == JSON
    told = response.json()
    assert told.keys() == {"error"}
    assert told["error"].keys() == {"code", "message", "field"}
    assert (told["error"]["code"], told["error"]["field"]) == (code, field)
    for word in words:
        assert word in told["error"]["message"]
    for leak in ("Traceback", ".py", "Error("):
        assert leak not in response.text


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"candidates": None}, "candidates", "expected `array`, got `null`"),
        ({"candidates": {}}, "candidates", "expected `array`"),
        ({"candidates": [3]}, "candidates[0]", "expected `object`"),
        ({"candidates": [{"price": "dear"}]}, "candidates[0].price", "got `str`"),
        ({"candidates": [{"ad": ["a", "b"]}]}, "candidates[0].ad", "got `array`"),
        ({"candidates": [{"price": 1e301}]}, "candidates[0].price", "<= 1e+300"),
        ({"user": {"tags": "tag1"}}, "user.tags", "expected `array | null`"),
        ({"user": {"age": 1e300}}, "user.age", "<="),
        ({"context": {"time": 1e15}}, "context.time", "<="),
        ({"context": {"time": 1731283200500}}, "context.time", "a time is in epoch seconds, in the years 1900 to 2199"),
        ({"explore": "greedy"}, "explore", "greedy"),
        ({"seed": -1}, "seed", ">= 0"),
        ({"seed": 1.5}, "seed", "multiple of 1"),
        ({"c": -1.0}, "c", ">= 0"),
        ({"detail": "yes"}, "detail", "expected `bool`"),
    ],
)
def test_values_that_cannot_be(client, change, field, words):
    assert_error(ask(client, {**REQUEST, **change}), 422, "invalid", field, words)


def test_a_time_that_is_none(client):
    assert_error(ask(client, {**REQUEST, "context": {"time": "yesterday"}}), 422, "invalid", "time", "yesterday")


@pytest.mark.parametrize(
    ("change", "field", "known"),
    [
        ({"user": {"usr": 3}}, "user.usr", "(did you mean 'user'?); allowed here: user, tags, age"),
        ({"context": {"sit": 3}}, "context.sit", "(did you mean 'site'?); allowed here: site, time"),
        ({"context": {"hour": 3}}, "context.hour", "allowed here: site, time"),
        ({"candidates": [{"add": 3}]}, "candidates[0].add", "(did you mean 'ad'?); allowed here: ad, price"),
        ({"candidate": []}, "candidate", "(did you mean 'candidates'?); allowed here: candidates, user, context, explore"),
    ],
)
def test_unknown_fields_name_the_known_ones(client, change, field, known):
    for kind in (JSON, MSGPACK[0]):
        assert_error(ask(client, {**REQUEST, **change}, kind), 422, "unknown_field", field, known)


def test_a_request_without_candidates(client):
    assert_error(ask(client, {"user": {}}), 422, "invalid", "candidates", "missing required field `candidates`")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b""),
        (JSON, b"{"),
        (JSON, b"\xff\xfe"),
        (JSON, b'{"candidates": [NaN]}'),
        (JSON, b'{"candidates": []} and more'),
        (JSON, b"[" * 100_000),
        (MSGPACK[0], b""),
        (MSGPACK[0], b"\xc1"),
        (MSGPACK[0], b"\x91" * 100_000),
        (MSGPACK[1], b"\xdf\xff\xff\xff\xff"),
    ],
)
def test_bodies_that_are_none(client, kind, body):
    response = client.post("/v1/score", content=body, headers={"Content-Type": kind})
    if response.status_code == 422:  # deep, but well-formed as far as it was read
        assert_error(response, 422, "invalid")
    else:
        assert_error(response, 400, "malformed", None, kind)
    assert len(answer(client, REQUEST)["ctr"]) == 5


def test_content_types(client):
    for given in ("text/plain", "", "application/x-www-form-urlencoded"):
        assert_error(ask(client, REQUEST, JSON, **{"Content-Type": given}), 415, "content_type", "Content-Type", JSON)
    assert_error(ask(client, REQUEST, JSON, **{"Content-Encoding": "gzip"}), 415, "content_encoding")


def test_places_and_methods(client):
    assert_error(client.get("/nowhere"), 404, "not_found", None, "/nowhere")
    assert_error(client.post("/v1/model"), 405, "method")
    refused = client.get("/v1/score")
    assert_error(refused, 405, "method")
    assert refused.headers["Allow"] == "POST"


def test_sizes(model):
    client = client_of(model, Limits(body=500, candidates=3))
    assert_error(ask(client, {**REQUEST, "candidates": [{}] * 4}), 413, "too_many_candidates", "candidates", "4", "3")
    assert len(answer(client, {**REQUEST, "candidates": [{}] * 3})["ctr"]) == 3
    assert_error(ask(client, {**REQUEST, "candidates": [{"ad": "x" * 500}]}), 413, "too_large", None, "500")

    async def pieces():
        for _ in range(2):
            yield b"x" * 300

    in_pieces = client.post("/v1/score", content=pieces(), headers={"Content-Type": JSON})
    assert_error(in_pieces, 413, "too_large", None, "500")
    lying = ask(client, {**REQUEST, "candidates": [{}]}, JSON, **{"Content-Length": "nonsense"})
    assert_error(lying, 413, "too_large")


def test_a_token(model):
    client = client_of(model, token="secret")
    for header in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
        got = [client.get(path, headers=header) for path in ("/v1/model", "/metrics")]
        for response in (ask(client, REQUEST, **header), *got):
            assert_error(response, 401, "unauthorized", None, "Bearer")
            assert response.headers["WWW-Authenticate"] == "Bearer"
    allowed = {"Authorization": "bearer secret"}
    assert ask(client, REQUEST, **allowed).status_code == 200
    assert client.get("/v1/model", headers=allowed).status_code == 200
    assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
    assert "securitySchemes" in client.get("/openapi.json").json()["components"]


def test_a_token_is_read_from_a_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("secret\n")
    Token.from_file(file).check({b"authorization": b"Bearer secret"})
    for content in ("", "two\nlines", "schlüssel"):
        file.write_text(content)
        with pytest.raises(ValueError, match="its only line, in ASCII"):
            Token.from_file(file)
    with pytest.raises(ValueError, match="cannot be read"):
        Token.from_file(tmp_path / "none")


def test_our_own_mistakes_do_not_leak(model, caplog):
    class Broken(Predictor):
        def score_encoded(self, shared, own):
            raise ZeroDivisionError("/secret/path.py")

    client = Asking(HttpService(Fixed(Broken.of(model))))
    with caplog.at_level(logging.ERROR):
        assert_error(ask(client, REQUEST), 500, "internal")
    assert "ZeroDivisionError" in caplog.text  # the log says more


def test_a_full_queue_is_503(model):
    """Two requests are being read, two wait, the fifth is refused; all others are answered once their bodies are there."""
    service = HttpService(Fixed(Predictor.of(model)), Limits(concurrent=2, waiting=2, patience=30.0))

    async def run():
        more = asyncio.Event()

        async def body():
            yield b'{"candidates": '
            await more.wait()
            yield b"[{}]}"

        transport = httpx.ASGITransport(service)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            post = lambda: client.post("/v1/score", content=body(), headers={"Content-Type": JSON})  # noqa: E731
            waiting = [asyncio.create_task(post()) for _ in range(4)]
            while service.gate.waiting < 2:
                await asyncio.sleep(0)
            refused = await post()
            more.set()
            return refused, await asyncio.gather(*waiting)

    refused, answered = asyncio.run(run())
    assert_error(refused, 503, "busy", None, "queue is full")
    assert refused.headers["Retry-After"] == "1"
    assert [response.status_code for response in answered] == [200] * 4
    assert service.gate.inside == service.gate.waiting == 0


def test_waiting_has_an_end():
    async def run():
        gate = Gate(Limits(concurrent=1, waiting=1, patience=0.01))
        async with gate.turn():
            with pytest.raises(RequestError, match="was busy") as refused:
                async with gate.turn():
                    pass
        async with gate.turn():
            return refused.value, gate.waiting

    refused, waiting = asyncio.run(run())
    assert (refused.status, waiting) == (503, 0)


def test_a_body_that_does_not_come():
    async def never():
        await asyncio.sleep(60)

    async def left():
        return {"type": "http.disconnect"}

    with pytest.raises(RequestError, match="did not arrive") as refused:
        asyncio.run(read_body({}, never, Limits(patience=0.01)))
    assert refused.value.status == 408
    with pytest.raises(ConnectionResetError):
        asyncio.run(read_body({}, left, Limits()))
