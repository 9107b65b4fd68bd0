"""Takes back what a stretch of the stream taught: divides its message, posterior over prior, out of the weights.

While a stretch is learned, the learner records the weights that it touches as they were before. If the stretch turns out abnormal,
its message is computed as a worker's would be, and pushed with the opposite sign (`parallel.message.negated`). This restores the
weights except for rounding, for the decay of those rows meanwhile, and for the few weights with a variance above twice their
prior's, which the product's guard does not restore.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.table.feature_table import Table
from pbodl.kernels.layers.embedding import initialise_rows
from pbodl.kernels.message_algebra import quotient
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.message import Message, negated
from pbodl.parallel.shard import Shard
from pbodl.parallel.weights import Weights, sums_of, take

NAMES = Weights._fields


class TakeBack:
    """The weights that the current stretch has touched, as they were before it."""

    def __init__(self, model: DeepProbit) -> None:
        self._model = model
        self._prior = type(model).from_spec(model.schema, model.spec)  # gives new features their prior
        self._prior.table.capacity = self._prior.table.time_to_live = None
        self.begin()

    def begin(self) -> None:
        """Start a new stretch."""
        self._index = Table({})
        self._fields = np.zeros(0, np.uint16)
        self._counts = np.zeros(0, np.int32)
        self._before = take(self._model, np.zeros(0, np.int32))
        self._learned = self._model.rows_learned

    def note(self, batch: Batch) -> None:
        """Record the weights of rows before they are learned."""
        known = self._index.size
        entry = self._index.insert(batch.keys)
        fields = np.zeros(self._index.size, np.uint16)
        fields[:known] = self._fields
        fields[entry] = batch.fields
        counts = np.bincount(entry, minlength=self._index.size).astype(np.int32)
        counts[:known] += self._counts
        self._fields, self._counts = fields, counts
        if self._index.size > known:
            new = self._weights(self._index.keys[known:], fields[known:])
            rows = {name: np.concatenate([getattr(self._before, name), getattr(new, name)]) for name in NAMES[:3]}
            self._before = self._before._replace(**rows)

    def _weights(self, keys: NDArray[np.uint64], fields: NDArray[np.uint16]) -> Weights:
        """The current weights of features; those of features unknown to the model come from the prior."""
        prior, table = self._prior, self._prior.table
        table.remove_older(np.inf)
        table.insert(keys)
        table.field[:] = fields
        with np.errstate(over="ignore"):
            initialise_rows(prior.rows(), table.keys, table.field, 0, prior.row_prior)
        weights = take(prior, np.arange(len(keys), dtype=np.int32), shared=False)
        at = self._model.table.find(keys)
        here = np.flatnonzero(at >= 0)
        known = take(self._model, at[here], shared=False)
        for name in NAMES[:3]:
            getattr(weights, name)[here] = getattr(known, name)
        return weights

    def undo(self) -> int:
        """Divide the stretch's message out of the model; returns how many rows were taken back."""
        model, before = self._model, self._before
        rows = model.rows_learned - self._learned
        at = model.table.find(self._index.keys)
        after = self._weights(self._index.keys, self._fields)
        shared = take(model, at[:0])
        delta = np.empty((2, *after.mean.shape), np.float32)
        ones = np.ones(len(at))
        quotient(before.mean, before.variance, after.mean, after.variance, ones, ones, delta[0], delta[1])
        dense = np.empty((2, 1, len(shared.dense_mean)), np.float32)
        quotient(
            before.dense_mean[None], before.dense_variance[None], shared.dense_mean[None], shared.dense_variance[None], np.ones(1),
            np.ones(1), dense[0], dense[1],
        )  # fmt: skip
        message = Message(
            "stretch", 1, rows, rows, model.clock, 0.0, self._index.keys.copy(), self._fields, self._counts, delta[0], delta[1],
            dense[0, 0], dense[1, 0], shared.total - before.total, sums_of(shared.scale) - sums_of(before.scale),
            np.zeros(3, np.int64),
        )  # fmt: skip
        Shard(model).push(negated(message, "stretch", 1))
        model.dense.centre[:] = before.centre  # the restored dense weights were learned with it
        return rows

    def state(self) -> dict[str, NDArray]:
        """The state, as arrays."""
        own: dict[str, NDArray] = {name: np.asarray(getattr(self._before, name)) for name in NAMES}
        own |= {"keys": self._index.keys.copy(), "fields": self._fields, "counts": self._counts}
        return own | {"learned": np.array(self._learned)}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Continue from a `state()`."""
        self._index = Table({})
        self._index.insert(np.asarray(state["keys"]))
        self._fields, self._counts = np.array(state["fields"]), np.array(state["counts"])
        self._before = Weights(*(np.array(state[name]) for name in NAMES))
        self._learned = int(state["learned"])
