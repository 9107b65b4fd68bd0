"""What a server refuses, and how it says so: always in the same shape, never with a trace, and going on afterwards."""

import asyncio
import gc
import logging
import tracemalloc

import httpx
import pytest

import pbodl
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_messages import JSON, MSGPACK, RequestError
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.request_queue import RequestQueue, read_body
from pbodl.serving.web.server_limits import Limits, Token
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
        ({"user": {"tags": 7}}, "user.tags", "got `int`"),
        ({"user": {"age": 1e300}}, "user.age", "<="),
        ({"context": {"time": 1e15}}, "context.time", "<="),
        ({"context": {"time": 1731283200500}}, "context.time", "a time is in epoch seconds, in the years 1900 to 2199"),
        ({"explore": "greedy"}, "explore", "greedy"),
        ({"seed": -1}, "seed", ">= 0"),
        ({"seed": 1.5}, "seed", "multiple of 1"),
        ({"c": -1.0}, "c", ">= 0"),
        ({"spread": -0.1}, "spread", ">= 0"),
        ({"spread": "wide"}, "spread", "expected `float`"),
        ({"explore_key": ["a"]}, "explore_key", "expected `int | float | str | null`"),
        ({"explore_key": "x" * 1000}, "explore_key", "length <= 200"),
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
    """Bodies on their way hold no turn. Four complete requests are in flight, the fifth is refused from its first byte."""
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
            slow = [asyncio.create_task(post()) for _ in range(10)]
            while service.queue.open < 10:
                await asyncio.sleep(0)
            others = [service.queue.ticket() for _ in range(4)]
            for ticket in others:
                ticket.complete()
            refused = await post()
            for ticket in others:
                ticket.done()
            more.set()
            return refused, await asyncio.gather(*slow)

    refused, answered = asyncio.run(run())
    assert_error(refused, 503, "busy", None, "queue is full")
    assert refused.headers["Retry-After"] == "1"
    assert [response.status_code for response in answered] == [200] * 10
    assert (service.queue.open, service.queue.held, len(service.queue.in_flight)) == (0, 0, 0)


def test_a_body_that_does_not_come():
    async def never():
        await asyncio.sleep(60)

    async def left():
        return {"type": "http.disconnect"}

    with pytest.raises(RequestError, match="did not arrive") as refused:
        asyncio.run(read_body({}, never, RequestQueue(Limits(patience=0.01)).ticket()))
    assert refused.value.status == 408
    with pytest.raises(ConnectionResetError):
        asyncio.run(read_body({}, left, RequestQueue(Limits()).ticket()))


BOMBS = {
    "candidates": (JSON, b'{"candidates":[' + b"{}," * 2_700_000 + b"{}]}"),
    "lists": (JSON, b'{"candidates":[],"user":{"tags":[' + b"1," * 4_000_000 + b"1]}}"),
    "names": (JSON, b'{"candidates":[{' + b'"ad":1,' * 1_100_000 + b'"ad":1}]}'),
    "nested": (JSON, b'{"candidates":[' + b"[" * 8_000_000),
    "packed": (MSGPACK[0], b"\x81\xaacandidates\xdd\x00\x7a\x12\x00" + b"\x80" * 8_000_000),
    "after a float": (MSGPACK[0], b"\x82\xa1c\xca\x3f\x80\x00\x00\xaacandidates\xdd\x00\x7a\x12\x00" + b"\x80" * 8_000_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bodies_are_bounded_by_structure(client, name):
    """Eight megabytes of small values would become a gigabyte of objects, and stall the worker for a second."""
    kind, body = BOMBS[name]
    gc.collect()
    tracemalloc.start()
    try:
        response = client.post("/v1/score", content=body, headers={"Content-Type": kind})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert_error(response, 413, "too_many_values", None, "10,000 candidates")
    assert peak < 8 * len(body)  # it was 130 times as much
    assert len(response.content) < 1000


def test_large_requests_within_the_limits_are_answered(model):
    client = client_of(model)
    many = [{"ad": "x" * 50, "price": 1.5}] * 10_000
    assert len(answer(client, {**REQUEST, "candidates": many})["ctr"]) == 10_000
    long = {**REQUEST, "candidates": [{"ad": "x" * 2_000_000}]}
    assert len(answer(client, long)["ctr"]) == 1
    assert len(answer(client, {**REQUEST, "user": {"tags": ["a long text"] * 9_000}})["ctr"]) == 5


def test_one_long_list_does_not_make_all_candidates_large():
    schema = pbodl.Schema(label="click", fields=[pbodl.Field("topics", group="ad", kind="multi"), pbodl.Field("site")])
    model = pbodl.FMMLP(schema, dim=2, hidden=())
    request = {"candidates": [{"topics": list(range(5000))}, *[{"topics": [1]}] * 999]}
    refused = ask(client_of(model), request)
    assert_error(refused, 422, "invalid", "topics", "5,000 values", "1,000 candidates", "at most 2,000")
    assert len(answer(client_of(model), {"candidates": request["candidates"][:2]})["ctr"]) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"x" * 1_000_000: 1},
        {"user": {"x" * 1_000_000: 1}},
        {"explore": "x" * 1_000_000},
        {"context": {"time": "x" * 1_000_000}},
        {"candidates": [{"price": "x" * 1_000_000}]},
        {"candidates": [{"x" * 1_000_000: 1}]},
    ],
)
def test_errors_repeat_little(client, change):
    for kind in (JSON, MSGPACK[0]):
        response = ask(client, {**REQUEST, **change}, kind)
        assert response.status_code == 422
        assert response.text.count("x") <= 2 * 200 + 20  # in the message and in the field
        assert len(response.content) < 1500


def test_errors_of_paths_repeat_little(client):
    for response in (client.get("/" + "x" * 10_000), client.get("/v1/curves?after=" + "x" * 10_000)):
        assert response.status_code in (404, 422)
        assert len(response.content) < 600
    assert len(ask(client, REQUEST, JSON, **{"Content-Type": "x" * 10_000}).content) < 600


def test_every_answer_has_the_security_headers(model):
    client = client_of(model, token="secret")
    allowed = {"Authorization": "Bearer secret"}
    answers = [client.get(path, headers=allowed) for path in ("/", "/docs", "/openapi.json", "/v1/model", "/metrics", "/healthz")]
    answers += [client.get(path, headers=allowed) for path in ("/v1/curves", "/v1/features", "/nowhere", "/dashboard/page.js")]
    answers += [ask(client, REQUEST, **allowed), ask(client, REQUEST), ask(client, {"candidates": 1}, **allowed), client.post("/")]
    for response in answers:
        told = response.headers
        assert told["X-Content-Type-Options"] == "nosniff"
        assert told["X-Frame-Options"] == "DENY"
        assert told["Referrer-Policy"] == "no-referrer"
        assert told["Content-Security-Policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in told["Content-Security-Policy"]
        assert "unsafe" not in told["Content-Security-Policy"]
        assert told["Cache-Control"] in ("no-store", "no-cache")
        assert [name for name, _ in told.multi_items()].count("content-security-policy") == 1
