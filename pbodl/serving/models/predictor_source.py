"""Where a server's predictor comes from, and how a new one is prepared before it answers requests."""

from typing import Protocol

import msgspec

from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_messages import JSON, MSGPACK, wire_of


class PredictorSource(Protocol):
    """Offers the newest predictor; None before the first."""

    @property
    def predictor(self) -> Predictor | None: ...

    @property
    def troubles(self) -> dict[str, int]:
        """How many publications were damaged, and how many missing."""
        ...


def ready(predictor: Predictor, before: Predictor | None = None) -> Predictor:
    """Prepare a predictor, and return it: it scores once, so that no request waits for code to be loaded or compiled, and prepares
    the ads that the predictor before it was asked for."""
    own = predictor.encoder.own
    numbers = {field.source for field in own if field.kind == "number"}
    names = [str(field.source) for field in own if field.kind == "category" and field.source not in numbers]
    texts = [dict.fromkeys(names, "a text"), dict.fromkeys(names, "another")]
    predictor.score({}, {}, texts)
    predictor.score({}, {}, [dict.fromkeys(names, 1)])
    for kind, encode in ((JSON, msgspec.json.encode), (MSGPACK[0], msgspec.msgpack.encode)):
        wire_of(predictor.schema).read(encode({"candidates": texts}), kind)
    if before is not None:
        predictor.recall(before)
    return predictor
