"""`POST /v1/rank`: what it answers, what it refuses, and what it logs."""

import asyncio
import json

import httpx
import msgspec
import numpy as np
import pytest

from pbodl.commands.serving_commands import open_decisions
from pbodl.errors import InputError
from pbodl.serving.models.served_models import ServedModels, TrafficPlan
from pbodl.serving.ranking import decision_log
from pbodl.serving.ranking.decision_log import DecisionLog
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_messages import JSON, MSGPACK
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.server_limits import Limits, Token
from pbodl.streaming.events import EventDecoder
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.sources.redis_stream import RedisStream
from tests.patience import until
from tests.serving.services import CANDIDATES, CONTEXT, REQUEST, USER, Asking, Fixed, rows_of, trained
from tests.streaming.redis_server import RedisServer, needs_redis

N = len(CANDIDATES)
PATIENT = Limits(patience=600.0)  # a first request may wait for the compiler


@pytest.fixture(scope="module")
def model():
    return trained()


@pytest.fixture
def asking(model, tmp_path):
    log = DecisionLog(str(tmp_path / "decisions.jsonl"))
    yield Asking(HttpService(Fixed(Predictor.of(model)), PATIENT, log=log)), tmp_path / "decisions.jsonl"
    log.close()


def rank(client: Asking, kind: str = JSON, path: str = "/v1/rank", **asked):
    encode = msgspec.json.encode if kind == JSON else msgspec.msgpack.encode
    return client.post(path, content=encode({**REQUEST, **asked}), headers={"Content-Type": kind})


def ranked(client: Asking, kind: str = JSON, **asked) -> dict:
    response = rank(client, kind, **asked)
    assert response.status_code == 200, response.text
    return (msgspec.json if kind == JSON else msgspec.msgpack).decode(response.content)


def events(path, n: int) -> list[dict]:
    until(lambda: path.exists() and len(path.read_text().splitlines()) >= n, "logging")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", [JSON, MSGPACK[0]])
def test_greedy_is_the_order_of_the_predicted_ctrs(asking, model, kind):
    ctr = model.predict(rows_of(REQUEST)).ctr
    bids = [1.0, 2.0, 0.5, 4.0, 1.0]
    told = ranked(asking[0], kind, slots=3)
    assert told["candidates"] == np.argsort(-ctr, kind="stable")[:3].tolist()
    assert told["propensity"] == [1.0, 1.0, 1.0]
    np.testing.assert_allclose(told["ctr"], ctr[told["candidates"]], rtol=1e-5)
    with_bids = ranked(asking[0], kind, slots=N + 7, bids=bids)
    assert with_bids["candidates"] == np.argsort(-ctr * bids, kind="stable").tolist()


def test_the_key_keeps_the_decision_and_not_the_estimate(asking):
    client, _ = asking
    asked = {"policy": "thompson", "slots": 2, "explore_key": "session", "draws": 60}
    first, second = ranked(client, **asked), ranked(client, **asked)
    assert first["candidates"] == second["candidates"]
    assert first["draws"] == 60
    answers = [first, second, *(ranked(client, **asked) for _ in range(4))]
    assert len({tuple(one["propensity"]) for one in answers}) > 1  # fresh randomness each time
    assert all(0.0 < error < 0.1 for error in first["propensity_error"])
    assert ranked(client, policy="epsilon", epsilon=0.5, seed=4) | {"request_id": "", "ids": []} == ranked(
        client, policy="epsilon", epsilon=0.5, seed=4
    ) | {"request_id": "", "ids": []}


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"policy": "best"}, 422, "policy"),
        ({"slots": 0}, 422, "slots"),
        ({"bids": [1.0]}, 422, "one bid for each candidate"),
        ({"bids": [-1.0] * N}, 422, "bids"),
        ({"epsilon": 1.5}, 422, "epsilon"),
        ({"draws": 0}, 422, "draws"),
        ({"policy": "thompson", "candidates": 500 * CANDIDATES[:1], "draws": 10_000}, 422, "ask for at most 4,000"),
        ({"sluts": 2}, 422, "did you mean 'slots'"),
        ({"candidates": [{"add": 1}]}, 422, "unknown field 'add'"),
        ({"request_id": ""}, 422, "request_id"),
    ],
)
def test_what_is_refused_in_prose(asking, asked, status, words):
    response = rank(asking[0], **asked)
    assert response.status_code == status
    assert words in response.json()["error"]["message"]


def test_other_methods_tokens_and_no_candidates(asking, model):
    assert asking[0].get("/v1/rank").status_code == 405
    assert ranked(asking[0], candidates=[], policy="thompson")["candidates"] == []
    guarded = Asking(HttpService(Fixed(Predictor.of(model)), token=Token("secret")))
    assert rank(guarded).status_code == 401
    assert rank(Asking(HttpService(Fixed(None)))).status_code == 503


def test_the_log_has_events_that_a_learner_reads_and_an_evaluator_understands(asking, model):
    client, path = asking
    told = ranked(client, policy="epsilon", epsilon=0.25, slots=2, bids=[1.0] * N, request_id="r7", seed=1)
    found = events(path, 2)
    assert [event["id"] for event in found] == told["ids"] == ["r7.0", "r7.1"]
    for slot, event in enumerate(found):
        about, candidate = event["decision"], CANDIDATES[told["candidates"][slot]]
        assert event["event"] == "impression"
        assert event["time"] == CONTEXT["time"]
        assert {name: event.get(name) for name in USER} == USER
        assert {name: event.get(name) for name in ("ad", "price")} == {"ad": None, "price": None} | candidate
        assert about["propensity"] == told["propensity"][slot]
        assert (about["request"], about["slot"], about["slots"], about["placed"]) == ("r7", slot, 2, told["candidates"][slot])
        assert (about["policy"], about["epsilon"], about["model"]) == ("epsilon", 0.25, told["model"])
        assert len(about["seed"]) == 16
    given = [{name: value for name, value in one.items() if value is not None} for one in CANDIDATES]
    assert found[0]["decision"]["candidates"] == given
    assert "candidates" not in found[1]["decision"]
    # A learner gets the same features as from a row of its own.
    decoded = EventDecoder(model.schema).decode([json.dumps(event).encode() for event in found])
    assert not decoded.bad
    ref = [rows_of({**REQUEST, "candidates": [CANDIDATES[index]]})[0] | {"click": 0} for index in told["candidates"]]
    assert (model.predict(decoded.rows).ctr == model.predict(ref).ctr).all()


@needs_redis
def test_decisions_reach_redis_also_after_it_was_away(model, tmp_path):
    redis = RedisServer(tmp_path)
    address = redis.address("decisions")
    log = DecisionLog(address, open_decisions)
    client = Asking(HttpService(Fixed(Predictor.of(model)), PATIENT, log=log))
    stream = RedisStream(address)
    try:
        first = ranked(client, slots=2)
        until(lambda: log.logged == 2, "logging")
        redis.kill()
        second = ranked(client, slots=2)  # answered all the same
        assert log.logged == 2
        redis.start()
        until(lambda: log.logged == 4, "logging what waited")
        contents = stream.read(StreamPosition(), 5.0).contents
        decoded = EventDecoder(model.schema).decode(contents)
        assert len(decoded) == 4
        assert not decoded.bad
        ids = [event["id"] for content in contents for event in msgspec.msgpack.decode(content)]
        assert ids == first["ids"] + second["ids"]
    finally:
        stream.close()
        log.close()
        redis.kill()


def test_a_broken_target_drops_decisions_and_not_requests(model, monkeypatch):
    def fails(address):
        raise InputError("away")

    monkeypatch.setattr(decision_log, "MOST", 3)
    log = DecisionLog("x.jsonl", fails)
    client = Asking(HttpService(Fixed(Predictor.of(model)), PATIENT, log=log))
    for _ in range(6):
        assert rank(client).status_code == 200
    assert log.dropped >= 3
    assert log.logged == 0
    assert "pbodl_decisions_dropped_total" in client.get("/metrics").text


async def watched(service: HttpService) -> dict:
    """The answer to a request, and then the scores of the challengers."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service), base_url="http://test") as client:
        response = await client.post("/v1/rank", json={**REQUEST, "request_id": "watched", "slots": 2})
        while service._shadowing:
            await asyncio.sleep(0.01)
        return response.json()


def test_several_models_by_name_by_split_and_in_the_shadow(model, tmp_path):
    other = trained("sum")
    log = DecisionLog(str(tmp_path / "log.jsonl"))
    models = ServedModels({"a": Fixed(Predictor.of(model)), "b": Fixed(Predictor.of(other)), "c": Fixed(None)}, TrafficPlan("a"))
    service = HttpService(models, PATIENT, log=log)
    client = Asking(service)
    ctr = {name: one.predict(rows_of(REQUEST)).ctr for name, one in (("a", model), ("b", other))}
    for path, name in (("/v1/score", "a"), ("/v1/models/a/score", "a"), ("/v1/models/b/score", "b")):
        told = rank(client, path=path).json()
        assert told["name"] == name
        np.testing.assert_allclose(told["ctr"], ctr[name], rtol=1e-5)
    assert rank(client, path="/v1/models/c/score").status_code == 503  # and the others go on
    lost = rank(client, path="/v1/models/d/rank")
    assert lost.status_code == 404
    assert "the models are: a, b, c" in lost.json()["error"]["message"]
    assert [one["name"] for one in client.get("/v1/models").json()["models"]] == ["a", "b", "c"]
    assert client.get("/v1/models/b").json()["kind"] == other.kind

    models.traffic = TrafficPlan("a", {"a": 0.7, "b": 0.3}, "spring", ("c",))
    assert "split_key" in rank(client).json()["error"]["message"]
    names = [ranked(client, split_key=key)["name"] for key in range(60)]
    assert set(names) == {"a", "b"}
    assert names == [models.traffic.arm_of(key) for key in range(60)]
    models.traffic = TrafficPlan("a", {}, "", ("b", "c"))
    before = len(events(tmp_path / "log.jsonl", 60))
    told = asyncio.run(watched(service))
    found = events(tmp_path / "log.jsonl", before + 2)[before:]
    assert events(tmp_path / "log.jsonl", 60)[0]["decision"]["split"]["share"] in (0.7, 0.3)
    for slot, event in enumerate(found):
        shadow = event["decision"]["shadow"]
        assert list(shadow) == ["b"]  # c has no model, and harms nobody
        assert shadow["b"]["ctr"] == pytest.approx(ctr["b"][told["candidates"][slot]], rel=1e-5)
    metrics = client.get("/metrics").text
    assert 'pbodl_answers_total{name="b"}' in metrics
    assert 'pbodl_named_model_loaded{name="c"} 0.0' in metrics
    log.close()
