"""The OpenAPI document of a server, made from the structures of its requests and answers, and a web page that shows it."""

import base64
import hashlib
import html
import json
import shlex
from importlib.metadata import version
from typing import Any

import msgspec

from pbodl.data.schema import Schema
from pbodl.serving.dashboard.feature_lists import FeaturesAnswer
from pbodl.serving.dashboard.routes import LAST, CurvesAnswer, WatchAnswer
from pbodl.serving.ranking.rank_messages import RankAnswer, rank_wire_of
from pbodl.serving.web.http_messages import (
    JSON,
    MSGPACK,
    RANKS,
    ErrorAnswer,
    Health,
    ModelAnswer,
    ModelsAnswer,
    ScoreAnswer,
)
from pbodl.serving.web.server_limits import Limits

ERRORS = {
    400: "The body is not JSON or msgpack.",
    401: "The token is missing or wrong.",
    404: "There is no model of this name.",
    405: "The method is not allowed.",
    408: "The head or the body took too long to arrive.",
    413: "The body, or the number of candidates or values, is too large.",
    415: "The content type is not supported.",
    422: "The body is not a request for this model; `field` says where.",
    503: "No model is loaded yet, or the server is busy; try again after `Retry-After` seconds.",
}


def document(schema: Schema | None, limits: Limits, token: bool) -> dict[str, Any]:
    """The document for a model's schema. Before a model is loaded, it does not list the fields of a request."""
    rank_wire = None if schema is None else rank_wire_of(schema)
    request: Any = dict[str, Any] if rank_wire is None else rank_wire.wire.request
    ranking: Any = dict[str, Any] if rank_wire is None else rank_wire.request
    types = {"request": request, "ranking": ranking, "ranked": RankAnswer, "scores": ScoreAnswer, "models": ModelsAnswer}
    types |= {"model": ModelAnswer, "health": Health, "error": ErrorAnswer}
    types |= {"curves": CurvesAnswer, "features": FeaturesAnswer, "watch": WatchAnswer}
    references, components = msgspec.json.schema_components(types.values(), ref_template="#/components/schemas/{name}")
    of = dict(zip(types, references, strict=True))
    if schema is not None:
        components["ScoreRequest"]["properties"]["candidates"]["maxItems"] = limits.candidates
        components["ScoreRequest"]["example"] = _example(schema)
        components["RankRequest"]["properties"]["candidates"]["maxItems"] = limits.candidates
        components["RankRequest"]["example"] = _example(schema) | {"policy": "thompson", "slots": 1}
    kinds, guard = (JSON, *MSGPACK), (401,) if token else ()
    score = {
        "summary": "The CTR of every candidate, with its uncertainty",
        "description": "`ctr` and `std` are in the order of the candidates. `explore` requests CTRs that give uncertain candidates"
        " a chance: `thompson` returns those of one draw of all weights, which `explore_key` or `seed` fixes; `ucb` returns upper"
        " bounds, `c` standard deviations above the mean, for what a candidate is more uncertain than the least uncertain one."
        " `spread` scales both, from 0: not at all. The answer names the rule."
        " Unknown values get their prior; unknown fields are an error.",
        "requestBody": {"required": True, "content": {kind: {"schema": of["request"]} for kind in kinds}},
        "responses": _responses(dict.fromkeys(kinds, of["scores"]), of["error"], 400, *guard, 408, 413, 415, 422, 503),
    }
    rank = {
        "summary": "Which candidates get the slots, and with which probability",
        "description": "`candidates` are indices of the request's candidates, by slot. `policy` is `greedy`, `thompson`, `ucb` or"
        " `epsilon`; with `bids`, candidates are ranked by bid times CTR. `propensity` is the probability that the policy puts this"
        " candidate into this slot: exact, or counted in `draws` of the weights with its standard error. A server with a log of"
        " decisions logs an impression for every slot; send a click with its id.",
        "requestBody": {"required": True, "content": {kind: {"schema": of["ranking"]} for kind in kinds}},
        "responses": _responses(dict.fromkeys(kinds, of["ranked"]), of["error"], 400, *guard, 408, 413, 415, 422, 503),
    }
    named = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    paths: dict[str, Any] = {
        "/v1/score": {"post": score},
        "/v1/rank": {"post": rank},
        "/v1/models": {"get": _get("The models that are served", {JSON: of["models"]}, of["error"], *guard)},
        "/v1/models/{name}": {
            "get": _get("A model by its name", {JSON: of["model"]}, of["error"], *guard, 404, 503) | {"parameters": named}
        },
        "/v1/models/{name}/score": {"post": _by_name(score, of["error"]) | {"parameters": named}},
        "/v1/models/{name}/rank": {"post": _by_name(rank, of["error"]) | {"parameters": named}},
        "/v1/model": {"get": _get("The model that is served", {JSON: of["model"]}, of["error"], *guard, 503)},
        "/v1/curves": {
            "get": _get("Live figures of the trainer", {JSON: of["curves"]}, of["error"], *guard, 422)
            | {"parameters": [{"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": LAST}}]}
        },
        "/v1/watch": {"get": _get("Drift, moving features, reliability", {JSON: of["watch"]}, of["error"], *guard)},
        "/v1/features": {"get": _get("Uncertain features, common values", {JSON: of["features"]}, of["error"], *guard, 503)},
        "/healthz": {"get": _get("The process is alive", {JSON: of["health"]}, of["error"])},
        "/readyz": {"get": _get("A model is loaded", {JSON: of["health"]}, of["error"], 503)},
        "/metrics": {"get": _get("Counters, for Prometheus", {"text/plain": {"type": "string"}}, of["error"], *guard)},
    }
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "PBODL", "version": version("pbodl"), "description": "Click-through rates with their uncertainty."},
        "paths": paths,
        "components": {"schemas": components},
    }
    if token:
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path in [path for path in paths if path.startswith("/v1/") or path == "/metrics"]:
            for operation in paths[path].values():
                operation["security"] = [{"token": []}]
    return described


def _by_name(operation: dict[str, Any], error: Any) -> dict[str, Any]:
    """An operation on a model that the path names."""
    lost = _responses({}, error, 404)["404"]
    return operation | {
        "summary": f"{operation['summary']}, by a model's name",
        "responses": operation["responses"] | {"404": lost},
    }


def _get(summary: str, answers: dict[str, Any], error: Any, *statuses: int) -> dict[str, Any]:
    return {"summary": summary, "responses": _responses(answers, error, *statuses)}


def _responses(answers: dict[str, Any], error: Any, *statuses: int) -> dict[str, Any]:
    responses = {"200": {"description": "The answer.", "content": {kind: {"schema": answer} for kind, answer in answers.items()}}}
    for status in statuses:
        responses[str(status)] = {"description": ERRORS[status], "content": {JSON: {"schema": error}}}
    return responses


def _example(schema: Schema) -> dict[str, Any]:
    """A request with a value for every field."""
    values: dict[str, Any] = {"category": "a value", "position": 1, "multi": ["one", "another"], "number": 1.5}
    example = {field.name: field.length * [0.5] if field.length else values[field.kind] for field in schema.fields}
    given = sorted((field for field in schema.fields if field.source is not None), key=lambda field: RANKS[field.kind])
    user = {field.source: example[field.name] for field in given if field.group == "user"}
    own = {field.source: example[field.name] for field in given if field.group == "ad"}
    context = {field.source: example[field.name] for field in given if field.group not in ("user", "ad")}
    return {"user": user, "context": context, "candidates": [own]}


def page(described: dict[str, Any], url: str) -> tuple[str, str]:
    """The document of the server at `url` as one web page, and the policy that allows its style and nothing else."""
    info, schemas = described["info"], described["components"]["schemas"]
    parts = [f"<h1>{info['title']} {info['version']}</h1><p>{_text(info['description'])}</p>"]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {path}</code></h2><p>{_text(operation['summary'])}.</p>")
            parts.append(f"<p>{_text(operation.get('description', ''))}</p>")
            for status, response in operation["responses"].items():
                parts.append(f"<p><b>{status}</b> {_text(response['description'])}</p>")
    example = schemas.get("ScoreRequest", {}).get("example")
    if example is not None:
        token = "-H 'Authorization: Bearer TOKEN' " if "securitySchemes" in described["components"] else ""
        curl = f"curl -s {shlex.quote(f'{url}/v1/score')} {token}-H 'Content-Type: {JSON}' -d {shlex.quote(json.dumps(example))}"
        parts.append(f"<h2>Try it</h2><pre>{_text(curl)}</pre>")
    for name, schema in schemas.items():
        shown = _text(json.dumps(schema, indent=1))
        parts.append(f"<details><summary><code>{_text(name)}</code></summary><pre>{shown}</pre></details>")
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
        "pre{overflow-x:auto;padding:.5rem;border:1px solid gray}h2{margin-top:2rem}"
    )
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width'><title>{info['title']}</title>"
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"
    return f"<!doctype html><html lang=en><head>{head}<style>{style}</style></head><body>{''.join(parts)}</body></html>", policy


def _text(text: str) -> str:
    return html.escape(text)
