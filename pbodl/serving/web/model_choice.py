"""Which model answers a request: the one that its path names, the one that the split gives its key, or the default."""

from typing import Any, NamedTuple

import msgspec

from pbodl.serving.models.served_models import ServedModels
from pbodl.serving.web.http_messages import JSON, ExploreKey, RequestError

SCORE, RANK, MODELS = "/v1/score", "/v1/rank", "/v1/models/"
QUEUED = {SCORE: "score", RANK: "rank"}


class Addressed(NamedTuple):
    """What a path asks for."""

    endpoint: str  # "score" or "rank"
    name: str | None  # of the model; None: the server chooses


class ChosenModel(NamedTuple):
    """The model that answers, and what the answer and the log say about the choice, where there are several models."""

    name: str
    about: dict[str, Any]


class _SplitKey(msgspec.Struct):
    """The part of a request that chooses among models; everything else is read with the schema of the chosen one."""

    split_key: ExploreKey | None = None


_JSON, _MSGPACK = msgspec.json.Decoder(_SplitKey), msgspec.msgpack.Decoder(_SplitKey)


def addressed(path: str) -> Addressed | None:
    """What a path asks for, if its requests wait for their turn; None for all other paths."""
    if path in QUEUED:
        return Addressed(QUEUED[path], None)
    if path.startswith(MODELS):
        name, _, endpoint = path.removeprefix(MODELS).rpartition("/")
        if endpoint in QUEUED.values() and name:
            return Addressed(endpoint, name)
    return None


def choose(models: ServedModels, name: str | None, content_type: str, body: bytes) -> ChosenModel:
    """The model for a request whose path has this name, or none."""
    traffic = models.traffic
    if not models.several:
        return ChosenModel(name or traffic.default, {})
    if name is not None or not traffic.split:
        return ChosenModel(name or traffic.default, {"name": name or traffic.default})
    try:
        key = _JSON.decode(body).split_key if content_type == JSON else _MSGPACK.decode(body).split_key
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ChosenModel(traffic.default, {"name": traffic.default})  # whose reader explains what is wrong
    if key is None:
        message = "the traffic of this server is split among models: give a split_key, such as the id of the user"
        raise RequestError(422, "invalid", message, "split_key")
    key = int(key) if isinstance(key, float) else key
    arm = traffic.arm_of(key)
    return ChosenModel(arm, {"name": arm, "split": {"arm": arm, "share": traffic.split[arm], "key": key, "salt": traffic.salt}})
