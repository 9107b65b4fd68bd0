"""The OpenAPI document is true: whatever schemathesis makes of it, the server's answers are the documented ones."""

import msgspec
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

from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_messages import MSGPACK
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.openapi import document
from pbodl.serving.web.server_limits import Limits, Token
from tests.click_log import PLAIN, RICH
from tests.serving.services import Fixed, trained

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
