"""The OpenAPI document is true: whatever schemathesis makes of it, the server's answers are the documented ones."""

import gc
import weakref

import msgspec
import numpy as np
import pytest
import schemathesis
from hypothesis import reject, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
)

import pbodl
from pbodl.data.schema import Field, Schema
from pbodl.serving.ranking.rank_messages import rank_wire_of
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_messages import MSGPACK, wire_of
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.openapi import document
from pbodl.serving.web.server_limits import Limits, Token
from tests.click_log import PLAIN, RICH
from tests.serving.services import Asking, Fixed, trained

SERVICE = HttpService(
    Fixed(Predictor.of(trained())), Limits(candidates=50, patience=600.0)
)  # a first draw may wait for the compiler
schema = schemathesis.openapi.from_asgi("/openapi.json", SERVICE)
# More candidates than `maxItems` are refused with 413, which schemathesis does not count as a refusal by itself.
schema.config.checks.negative_data_rejection.expected_statuses = ["400", "401", "404", "405", "413", "415", "422"]
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    positive_data_acceptance,
]


@schemathesis.serializer(*MSGPACK)
def to_msgpack(ctx, value):
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:  # msgpack has no integers above 64 bits
        reject()


@schemathesis.deserializer(*MSGPACK)
def from_msgpack(ctx, response):
    return msgspec.msgpack.decode(response.content)


@schema.exclude(path_regex="/rank$").parametrize()
@settings(max_examples=25)
def test_answers_are_as_documented(case):
    case.call_and_validate(checks=CHECKS)


# A JSON schema cannot say that there are as many bids as candidates, nor bound draws times candidates.
@schema.include(path_regex="/rank$").parametrize()
@settings(max_examples=25)
def test_rankings_are_as_documented(case):
    case.call_and_validate(checks=[check for check in CHECKS if check is not positive_data_acceptance])


@pytest.mark.parametrize("model", [None, PLAIN, RICH])
@pytest.mark.parametrize("token", [None, "secret"])
def test_every_document_is_complete(model, token):
    told = document(model, Limits(), Token(token).required)
    assert told["openapi"].startswith("3.1")
    by_name = {"/v1/models", "/v1/models/{name}", "/v1/models/{name}/score", "/v1/models/{name}/rank"}
    guarded = {"/v1/score", "/v1/rank", "/v1/model", "/v1/curves", "/v1/features", "/v1/watch", "/metrics"} | by_name
    assert set(told["paths"]) == guarded | {"/healthz", "/readyz"}
    asks = [operation for path in told["paths"].values() for operation in path.values() if "401" in operation["responses"]]
    assert len(asks) == (0 if token is None else len(guarded))
    if model is not None:
        candidate = told["components"]["schemas"]["Candidate"]
        assert set(candidate["properties"]) == {field.name for field in model.fields if field.group == "ad"}
        assert candidate["additionalProperties"] is False


def schema_of(number: int) -> Schema:
    """A schema like that of many models of one server, made anew each time."""
    return Schema(label="click", fields=[Field("user", group="user"), Field(f"ad{number}", group="ad")])


def test_documents_of_many_models_are_complete_in_any_order():
    rng = np.random.default_rng(4)
    clients = [Asking(HttpService(Fixed(Predictor.of(pbodl.PairFM(schema_of(number), dim=2))))) for number in range(40)]
    for number, way in zip(rng.integers(0, 40, 400).tolist(), rng.integers(0, 3, 400).tolist(), strict=True):
        name = f"ad{number}"
        asked = {"user": {"user": 1}, "candidates": [{name: 2}]}
        if way == 2:
            response = clients[number].get("/openapi.json")
            assert response.status_code == 200, response.text
            parts = response.json()["components"]["schemas"]
            assert set(parts["Candidate"]["properties"]) == {name}
            for kind in ("ScoreRequest", "RankRequest"):
                assert parts[kind]["properties"]["candidates"]["items"] == {"$ref": "#/components/schemas/Candidate"}
        else:
            assert clients[number].post(("/v1/score", "/v1/rank")[way], json=asked).status_code == 200


def test_what_reads_requests_is_made_once_while_a_predictor_serves():
    first = Predictor.of(pbodl.PairFM(schema_of(0), dim=2))
    wire, ranking = wire_of(schema_of(0)), rank_wire_of(schema_of(0))
    others = [Predictor.of(pbodl.PairFM(schema_of(number), dim=2)) for number in range(1, 41)]
    for predictor in others:
        assert rank_wire_of(predictor.schema).wire is wire_of(predictor.schema)
    later = Predictor.of(pbodl.PairFM(schema_of(0), dim=2))
    assert later.encoder is first.encoder
    assert wire_of(later.schema) is wire and rank_wire_of(later.schema) is ranking and ranking.wire is wire


def test_a_model_that_is_gone_leaves_nothing_behind():
    predictor = Predictor.of(pbodl.PairFM(schema_of(99), dim=2))
    kept = weakref.ref(rank_wire_of(predictor.schema))
    gc.collect()
    assert kept() is not None
    del predictor
    gc.collect()
    assert kept() is None
