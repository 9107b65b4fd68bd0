"""Splits a model's weights into shards by key, and joins them again."""

from collections.abc import Sequence

import numpy as np

from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.message import shard_of
from pbodl.parallel.shard import Shard

SHARED_COUNTS = ("embedding.evicted", "embedding.expired")


def deal(model: DeepProbit, shards: int) -> list[Shard]:
    """Shards that together hold a model's weights: each has the rows of its keys; shard 0 also has the counters."""
    if shards == 1:
        return [Shard(model)]
    state = model.state()
    home = shard_of(state["embedding.keys"], shards)
    dealt = []
    for number in range(shards):
        own = _rows(state, np.flatnonzero(home == number))
        if number:
            own |= {name: np.zeros_like(state[name]) for name in SHARED_COUNTS}
            own["counters"] = state["counters"] * [1, 0, 0, 0]
        part = empty_part(model, shards)
        part.load_state(own)
        dealt.append(Shard(part, number))
    return dealt


def empty_part(model: DeepProbit, shards: int) -> DeepProbit:
    """An empty model of the same kind, with the capacity of one of so many shards."""
    part = type(model).from_spec(model.schema, model.spec)
    if part.table.capacity is not None:
        part.table.capacity = -(-part.table.capacity // shards)
    return part


def join(shards: Sequence[Shard]) -> DeepProbit:
    """The model that the shards hold together; with one shard, the shard's own."""
    if len(shards) == 1:
        return shards[0].model
    states = [shard.model.state() for shard in shards]
    whole = dict(states[0])
    for name in whole:
        if name in SHARED_COUNTS:
            whole[name] = np.sum([state[name] for state in states], axis=0)
        elif name.startswith(("embedding.", "linear.")):
            whole[name] = np.concatenate([state[name] for state in states])
    model = type(shards[0].model).from_spec(shards[0].model.schema, shards[0].model.spec)
    model.load_state(whole)
    return model


def _rows(state: State, at: np.ndarray) -> State:
    """The state with the rows `at` these indices."""
    per_row = [name for name in state if name.startswith(("embedding.", "linear.")) and name not in SHARED_COUNTS]
    return state | {name: state[name][at] for name in per_row}
