"""Splits a model's weights into shards by key, and joins them again."""

from collections.abc import Sequence

from pbodl.models.deep_probit import DeepProbit
from pbodl.models.sharded_state import joined, share_of
from pbodl.parallel.shard import Shard


def deal(model: DeepProbit, shards: int) -> list[Shard]:
    """Shards that together hold a model's weights: each has the rows of its keys; shard 0 also has the counters."""
    if shards == 1:
        return [Shard(model)]
    state, dealt = [model.state()], []
    for number in range(shards):
        part = empty_part(model, shards)
        part.load_state(share_of(state, number, shards))
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
    model = type(shards[0].model).from_spec(shards[0].model.schema, shards[0].model.spec)
    model.load_state(joined([shard.model.state() for shard in shards]))
    return model
