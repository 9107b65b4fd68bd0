"""A copy of the model that the shards of a cluster hold together, kept up to date by their changes: for publishing it as one.

Only a cluster that publishes for ordinary servers has one, in the process of `pbodl online`.
"""

from collections.abc import Sequence

from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.sharded_state import joined
from pbodl.publishing.delta import split

COLUMNS = ("field", "last_seen", "count")


class MergedModel:
    """The copy. `model` has the weights of all shards as of their last changes."""

    def __init__(self, model: DeepProbit) -> None:
        self.model = type(model).from_spec(model.schema, model.spec)
        self.model.table.capacity = self.model.table.time_to_live = None

    def replace(self, states: Sequence[State]) -> None:
        """Take over the whole states of all shards."""
        self.model.load_state(joined(states))

    def change(self, deltas: Sequence[State]) -> None:
        """Take over the changed rows of all shards, and everything else of shard 0 (`publishing.delta.changes`)."""
        model, table = self.model, self.model.table
        evicted, expired = table.evicted, table.expired
        for number, delta in enumerate(deltas):
            part = type(model).from_spec(model.schema, model.spec)
            part.load_state(split(delta)[0])
            at = table.insert(part.table.keys)
            columns = ["mean", "variance", *(("linear_mean", "linear_variance") if model.spec.linear else ())]
            for name in columns:
                table.column(name)[at] = part.table.column(name)
            for name in COLUMNS:
                getattr(table, name)[at] = getattr(part.table, name)
            if number == 0:
                self._share(part)
        table.evicted, table.expired = evicted, expired

    def _share(self, part: DeepProbit) -> None:
        """Take over what is not rows; the prior is the same, since a change of it changes all rows."""
        model = self.model
        model.dense, model.scale = part.dense, part.scale
        model.clock, model.rows_learned = part.clock, part.rows_learned
        model.rejected[:] = part.rejected
