"""A decision as events of a stream: an impression for every slot, in the form that `pbodl online` joins with its click.

    {"event": "impression", "id": "r7.0", "time": 1731283200.5, "user": 7, "site": "s", "ad": "x",      the schema's columns
     "decision": {"request": "r7", "slot": 0, "slots": 2, "propensity": 0.93, "policy": "epsilon", "epsilon": 0.1,
                  "seed": "9c0f...", "model": 12,
                  "candidates": [{"ad": "x"}, {"ad": "y"}, {"ad": "z"}], "bids": [1.0, 2.0, 1.5], "placed": 0}}

A learner reads the columns of its schema, and leaves out `decision`. The first slot alone carries all candidates and bids: they are
what another policy could have chosen from. A position is written as the slot that the ad got.
"""

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.features.positions import reference_positions
from pbodl.data.schema import Schema
from pbodl.data.times import UNITS
from pbodl.serving.ranking.policies import Ranking, described
from pbodl.serving.ranking.rank_messages import RankAsked, impression_ids
from pbodl.serving.scoring.request_encoding import encoder_of

DECISION = "decision"  # the one name that the log adds to an event


class Decided(NamedTuple):
    """What is known about a decision when it is answered."""

    schema: Schema
    version: int
    request_id: str
    asked: RankAsked
    ranking: Ranking
    propensity: NDArray[np.float64]
    error: NDArray[np.float64] | None
    draws: int
    more: dict[str, Any]  # the model's name and the split, where there are several models
    shadows: dict[str, Any]  # scores of challengers, by name


def name_in_the_way(schema: Schema) -> str | None:
    """The column of a schema that an event could not carry beside the decision."""
    taken = {DECISION, "event", "id"} & {*schema.sources, schema.label_column, schema.weight, schema.time}
    return min(taken, default=None)


def events_of(decided: Decided) -> list[dict[str, Any]]:
    """The impressions of a decision, by slot."""
    schema, asked, ranking = decided.schema, decided.asked, decided.ranking
    names, placed = encoder_of(schema).own_columns, ranking.placed.tolist()
    candidates = [_given(dict(zip(names, row, strict=True))) for row in asked.candidates]
    time_name = schema.time or "time"
    weight = {} if schema.weight is None else {schema.weight: 1.0}
    shared = {time_name: _now(schema), **weight} | _given(asked.user | asked.context)
    policy = {**described(asked.policy), **_given({"explore_key": asked.policy.key})}
    if ranking.seed is not None:
        policy["seed"] = f"{int(ranking.seed):016x}"
    events = []
    for slot, (index, name) in enumerate(zip(placed, impression_ids(decided.request_id, len(placed)), strict=True)):
        about: dict[str, Any] = {"request": decided.request_id, "slot": slot, "slots": len(placed), "placed": index}
        about |= {"propensity": float(decided.propensity[slot]), **policy, "model": decided.version, **decided.more}
        if decided.error is not None:
            about |= {"propensity_error": float(decided.error[slot]), "draws": decided.draws}
        if decided.shadows:
            about["shadow"] = {
                name: {"model": scored["model"], "ctr": scored["ctr"][index], "std": scored["std"][index]}
                for name, scored in decided.shadows.items()
            }
        if slot == 0:
            about["candidates"] = candidates
            if asked.bids is not None:
                about["bids"] = asked.bids.tolist()
        positions = {name: first + slot for name, first in reference_positions(schema).items()}
        events.append({"event": "impression", "id": name, **shared, **candidates[index], **positions, DECISION: about})
    return events


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _now(schema: Schema) -> float | str:
    if schema.time_format is not None:
        return time.strftime(schema.time_format, time.gmtime())
    return time.time() * UNITS[schema.time_unit or "s"]
