"""The state of a model in shards, each with the rows of its keys: which shard holds a key, how states are joined and shared out.

Shard 0 also has everything that is not rows, and the counters. The others have copies of it that do not count. What a shard knows
besides its model has names that begin with SERVER, and is no part of the model.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pbodl.mixing import GOLDEN
from pbodl.models.contract import State

SHARED_COUNTS = ("embedding.evicted", "embedding.expired")
ROWS = ("embedding.", "linear.")
SERVER = "server."


def shard_of(keys: NDArray[np.uint64], shards: int) -> NDArray[np.int64]:
    """The shard that holds each key."""
    return ((keys * GOLDEN >> np.uint64(44)) % np.uint64(shards)).astype(np.int64)


def joined(states: Sequence[State]) -> State:
    """The state of the model that shards with these states hold together."""
    whole = {name: array for name, array in states[0].items() if not name.startswith(SERVER)}
    if len(states) == 1:
        return whole
    for name in whole:
        if name in SHARED_COUNTS:
            whole[name] = np.sum([state[name] for state in states], axis=0)
        elif name.startswith(ROWS):
            whole[name] = np.concatenate([state[name] for state in states])
    return whole


def share_of(states: Sequence[State], number: int, shards: int) -> State:
    """The state of shard `number` of `shards`, from the states of any number of shards: no one needs all rows at once."""
    own = [rows_at(state, np.flatnonzero(shard_of(state["embedding.keys"], shards) == number)) for state in states]
    share = joined(own)
    if number:
        share |= {name: np.zeros_like(share[name]) for name in SHARED_COUNTS}
        share["counters"] = share["counters"] * [1, 0, 0, 0]
        share["powers"] = np.zeros(3, np.int64)
    return share


def rows_at(state: State, at: NDArray[np.int64]) -> State:
    """The state with the rows `at` these indices."""
    return state | {name: state[name][at] for name in state if name.startswith(ROWS) and name not in SHARED_COUNTS}
