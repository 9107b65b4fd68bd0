"""A worker (PBODL Alg. 1): pull the weights of a minibatch, learn it with the ordinary `learn` on a local copy, and send what that added.

erratum E5: the paper's worker adds up natural-parameter differences sample by sample; they telescope to the posterior's minus the
prior's, so that nothing has to be kept while learning.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.arrays import Batch
from pbodl.data.table import Table
from pbodl.kernels import network
from pbodl.kernels.embedding import Features, Forgetting, forget_rows, initialise_rows
from pbodl.kernels.message import quotient
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.layout import from_vector, side_by_side, sums_of, to_vector
from pbodl.parallel.merge import DEFAULT, shares
from pbodl.parallel.message import Message, Posterior, shard_of
from pbodl.parallel.server import Pulled

NEVER = Forgetting(np.float64(0.0), np.bool_(False))


class Task(NamedTuple):
    """A minibatch, and what has to be pulled for it."""

    batch: Batch
    keys: NDArray[np.uint64]  # [k] distinct, in the order of their first sample
    fields: NDArray[np.uint16]  # [k]
    counts: NDArray[np.int32]  # [k]: samples with that feature
    at: list[NDArray[np.int64]]  # for each shard the places in `keys` of those that it holds

    def keys_of(self, shard: int) -> NDArray[np.uint64]:
        """What to ask a shard for."""
        return self.keys[self.at[shard]]


def plan(batch: Batch, shards: int = 1) -> Task:
    """The distinct features of a minibatch, dealt out to the shards."""
    index = Table({})
    entry = index.insert(batch.keys)
    fields = np.zeros(index.size, np.uint16)
    fields[entry] = batch.fields
    counts = np.bincount(entry, minlength=index.size).astype(np.int32)
    home = shard_of(index.keys, shards)
    return Task(batch, index.keys, fields, counts, [np.flatnonzero(home == shard) for shard in range(shards)])


class Worker:
    """Turns minibatches into messages.

    model   any model of the same schema and spec; its weights are not touched
    source  the name that its messages carry: unique, and kept by whoever goes on in its place
    merge   how messages will be merged (`merge.MERGES`)
    """

    def __init__(self, model: DeepProbit, source: str, merge: str = DEFAULT) -> None:
        self.source, self.merge = source, merge
        self.sequence = 0  # of the last message made
        self.local = type(model).from_spec(model.schema, model.spec)
        # The server bounds the table; a minibatch's copy only lives as long as the minibatch.
        self.local.table.capacity = self.local.table.time_to_live = None
        self.local.kernel = self._kernel
        self._variance = 0.0

    def learn(self, task: Task, pulled: Sequence[Pulled], workers: int = 1) -> tuple[Message, NDArray[np.float64]]:
        """The message of a task, one of `workers` that learn at the same time, and the CTR predicted for each row before it was learned.

        `pulled` are the answers of all shards to `task.keys_of(shard)`.
        """
        local, lone = self.local, workers == 1 and len(pulled) == 1
        self._load(task, pulled)
        forgetting = local.forgetting
        if not lone:
            self._decay(max(part.clock for part in pulled))
            local.forgetting = NEVER
        every = np.arange(local.table.size, dtype=np.int32)
        before = side_by_side(local, every), self._dense(), local.scale.moments.copy()
        try:
            ctr = local.learn(task.batch)
        finally:
            local.forgetting = forgetting
        self.sequence += 1
        message = self._message(task, pulled, workers, *before)
        return (message._replace(posterior=self._posterior(every, pulled[0].version)) if lone else message), ctr

    def _load(self, task: Task, pulled: Sequence[Pulled]) -> None:
        """Make the local copy what was pulled, and the prior for what no shard has a row of."""
        local, table, first = self.local, self.local.table, pulled[0]
        table.remove_older(np.inf)
        table.insert(task.keys)
        table.field[:] = task.fields
        table.last_seen[:] = np.inf  # a new row has nothing to forget, whenever it comes
        with np.errstate(over="ignore"):
            initialise_rows(local.rows(), table.keys, table.field, 0, local.row_prior)
        dim = table.column("mean").shape[1]
        for at, part in zip(task.at, pulled, strict=True):
            rows = at[part.places]
            table.column("mean")[rows], table.column("variance")[rows] = part.mean[:, :dim], part.variance[:, :dim]
            if local.spec.linear:
                table.column("linear_mean")[rows], table.column("linear_variance")[rows] = part.mean[:, dim:], part.variance[:, dim:]
            table.last_seen[rows], table.count[rows] = part.last_seen, part.count
        from_vector(first.dense_mean, local.shape.sizes, local.dense.mean)
        from_vector(first.dense_variance, local.shape.sizes, local.dense.variance)
        local.dense.last_seen[0], local.scale.moments = first.dense_last_seen, first.scale.copy()
        local.rows_learned, local.clock = first.rows_learned, first.clock
        local.rejected[:] = 0

    def _decay(self, now: float) -> None:
        local, table = self.local, self.local.table
        if local.forgetting.half_life > 0.0:
            every = np.arange(table.size, dtype=np.int32)
            ones, fields = np.ones(table.size, np.float32), table.field.astype(np.int32)
            features = Features(np.array([0, table.size]), every, table.keys, ones, fields)
            forget_rows(local.rows(), features, 0, now, local.row_prior, local.forgetting)
            network.forget_dense(local.dense, local.shape, now, local.forgetting)

    def _kernel(self, *arguments: Any) -> None:
        network.learn_batch(*arguments)
        self._variance = float(arguments[-2].mean())

    def _dense(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        dense, sizes = self.local.dense, self.local.shape.sizes
        return to_vector(dense.mean, sizes), to_vector(dense.variance, sizes)

    def _message(self, task: Task, pulled: Sequence[Pulled], workers: int, before: Weights) -> Message:
        local, after, k = self.local, self._weights(), len(task.keys)
        count = np.zeros(k)
        for at, part in zip(task.at, pulled, strict=True):
            count[at[part.places]] = part.count
        share = shares(self.merge, workers, len(task.batch), task.counts, count, pulled[0])
        rows = np.empty((2, k, after.mean.shape[1]), np.float32)
        quotient(before.mean, before.variance, after.mean, after.variance, share.precision, share.mean, rows[0], rows[1])
        dense = np.empty((2, 1, len(after.dense_mean)), np.float32)
        quotient(
            before.dense_mean[None], before.dense_variance[None], after.dense_mean[None], after.dense_variance[None],
            np.ones(1), np.array([share.dense_mean]), dense[0], dense[1],
        )  # fmt: skip
        return Message(
            self.source, self.sequence, len(task.batch), local.clock, self._variance, task.keys, task.fields, task.counts,
            rows[0], rows[1], dense[0, 0], dense[1, 0], sums_of(local.scale.moments) - sums_of(before.scale), local.rejected.copy(),
        )  # fmt: skip
