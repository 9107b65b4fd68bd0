"""Scores of challengers for requests that another model has answered. They are logged, and never answered."""

from typing import Any

from pbodl.serving.ranking.decision_events import Decided
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import encoder_of


def shadow_scores(predictor: Predictor, decided: Decided) -> dict[str, Any]:
    """CTR and standard deviation of every candidate by another model. Fields that it does not know are left out."""
    encoder, asked = predictor.encoder, decided.asked
    given = asked.user | asked.context
    names = encoder_of(decided.schema).own_columns
    rows = [dict(zip(names, row, strict=True)) for row in asked.candidates]
    own = [tuple(row.get(name, given.get(name)) for name in encoder.own_columns) for row in rows]
    shared = {name: given.get(name) for name in encoder.shared_names if name not in encoder.positions}
    scores = predictor.score_encoded(encoder.encode_shared(shared), encoder.encode_own(own))
    return {"model": predictor.version.number, "ctr": scores.ctr.tolist(), "std": scores.std.tolist()}
