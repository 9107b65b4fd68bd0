"""Requests for a ranking and their answers, made from a model's schema."""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import orjson
from msgspec import Meta
from numpy.typing import NDArray

from pbodl.data.schema import Schema
from pbodl.serving.ranking.policies import DRAWS, MOST_DRAWS, Ranking, RankPolicy
from pbodl.serving.scoring.request_encoding import encoder_of
from pbodl.serving.web.http_messages import ECHO, JSON, ExploreKey, RequestError, Seed, Width, wire_of

MOST_SLOTS = 1000
CANDIDATE_DRAWS = 2_000_000  # draws times candidates of a request: more would take the server too long
DEAREST = 1e12
Name = Literal["greedy", "thompson", "ucb", "epsilon"]
Slots = Annotated[int, Meta(ge=1, le=MOST_SLOTS)]
Bid = Annotated[float, Meta(ge=0.0, le=DEAREST)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Draws = Annotated[int, Meta(ge=1, le=MOST_DRAWS)]
RequestId = Annotated[str, Meta(min_length=1, max_length=ECHO)]


class RankAnswer(msgspec.Struct, omit_defaults=True):
    """The candidates by slot, as indices of the request's candidates, and what is known about each.

    `ids` name the impressions: send a click with its id. `propensity` is the probability that the policy puts this candidate into
    this slot. Where it is counted in `draws` of the weights, `propensity_error` is its standard error. `name` is that of the model,
    if the server has several.
    """

    model: int
    request_id: str
    policy: Name
    candidates: list[int]
    ids: list[str]
    ctr: list[float]
    std: list[float]
    propensity: list[float]
    propensity_error: list[float] | None = None
    draws: int = 0
    name: str = ""


class RankAsked(NamedTuple):
    """A parsed request."""

    user: dict[str, Any]
    context: dict[str, Any]
    candidates: list[tuple]  # values in the schema's order
    bids: NDArray[np.float64] | None
    slots: int
    policy: RankPolicy
    draws: int
    request_id: str | None
    split_key: str | int | None


class RankWire:
    """Reads the requests of one schema. `wire` reads its requests for scores: both are made of the same parts."""

    def __init__(self, schema: Schema) -> None:
        self.wire = wire_of(schema)
        user, context, candidate = self.wire.parts
        self.request = msgspec.defstruct(
            "RankRequest",
            [
                ("candidates", list[candidate]),  # type: ignore[valid-type]
                ("user", user, msgspec.field(default_factory=user)),
                ("context", context, msgspec.field(default_factory=context)),
                ("policy", Name, "greedy"),
                ("slots", Slots, 1),
                ("bids", list[Bid] | None, None),
                ("explore_key", ExploreKey | None, None),
                ("seed", Seed | None, None),
                ("spread", Width, 1.0),
                ("c", Width, 1.0),
                ("epsilon", Share, 0.1),
                ("draws", Draws, DRAWS),
                ("request_id", RequestId | None, None),
                ("split_key", ExploreKey | None, None),
            ],
            forbid_unknown_fields=True,
            gc=False,
        )
        self._decoders = {True: msgspec.json.Decoder(self.request), False: msgspec.msgpack.Decoder(self.request)}

    def read(self, body: bytes, content_type: str, candidates: int) -> RankAsked:
        """Parse the body of a request of up to so many candidates; RequestError says what is wrong with it."""
        self.wire.check_values(body, content_type, candidates)
        asked: Any = self.wire.decoded(self._decoders[content_type == JSON], body, content_type)
        n = len(asked.candidates)
        if n > candidates:
            message = f"{n:,} candidates are more than the {candidates:,} that this server accepts"
            raise RequestError(413, "too_many_candidates", message, "candidates")
        if asked.bids is not None and len(asked.bids) != n:
            message = f"bids: there are {len(asked.bids):,} bids and {n:,} candidates; give one bid for each candidate, or none"
            raise RequestError(422, "invalid", message, "bids")
        if asked.policy == "thompson" and asked.draws * n > CANDIDATE_DRAWS:
            message = f"draws: {asked.draws:,} draws of {n:,} candidates are too many; with so many candidates, ask for at most "
            raise RequestError(422, "invalid", f"{message}{CANDIDATE_DRAWS // n:,}", "draws")
        seed = None if asked.seed is None else int(asked.seed)
        policy = RankPolicy(asked.policy, _key(asked.explore_key), seed, asked.spread, asked.c, asked.epsilon)
        user, context = self.wire.shared_of(asked)
        bids = None if asked.bids is None else np.array(asked.bids)
        rows = self.wire.own_of(asked)
        return RankAsked(user, context, rows, bids, asked.slots, policy, asked.draws, asked.request_id, _key(asked.split_key))


def _key(key: str | int | float | None) -> str | int | None:
    return int(key) if isinstance(key, float) else key


def rank_wire_of(schema: Schema) -> RankWire:
    return encoder_of(schema).once(RankWire)


def write_ranking(answer: RankAnswer, content_type: str) -> bytes:
    if content_type == JSON:
        return orjson.dumps(msgspec.to_builtins(answer))
    return msgspec.msgpack.encode(answer)


def answer_of(
    version: int, request_id: str, policy: RankPolicy, ranking: Ranking, propensity: NDArray[np.float64],
    error: NDArray[np.float64] | None, draws: int, name: str = "",
) -> RankAnswer:  # fmt: skip
    placed = ranking.placed
    return RankAnswer(
        version, request_id, policy.name, placed.tolist(), impression_ids(request_id, len(placed)),  # type: ignore[arg-type]
        ranking.scores.ctr[placed].tolist(), ranking.scores.std[placed].tolist(), propensity.tolist(),
        None if error is None else error.tolist(), draws, name,
    )  # fmt: skip


def impression_ids(request_id: str, slots: int) -> list[str]:
    """The ids of a request's impressions, by slot."""
    return [f"{request_id}.{slot}" for slot in range(slots)]
