"""A worker (PBODL Alg. 1): pulls the weights of a minibatch, learns it on a local copy with `learn`, and sends what it added.

erratum E5: the paper's worker adds up natural-parameter differences sample by sample; they telescope to posterior minus prior, so
nothing has to be kept while learning.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import wrapping
from pbodl.data.table.feature_table import Table
from pbodl.kernels.arguments import LabelledSamples, Network, NetworkWeights, Outputs
from pbodl.kernels.layers.embedding import initialise_rows
from pbodl.kernels.message_algebra import quotient
from pbodl.kernels.network import learn_batch
from pbodl.kernels.row_powers import learn_to_powers
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.learning import Learning
from pbodl.models.sharded_state import shard_of
from pbodl.parallel.merge import DEFAULT, Shares, all_of_it, check_merge, fair_shares
from pbodl.parallel.message import Message
from pbodl.parallel.shard import Pulled
from pbodl.parallel.weights import Weights, forget, put, sums_of, take, take_over_prior


class MinibatchTask(NamedTuple):
    """A minibatch, and the keys to pull for it."""

    batch: Batch
    keys: NDArray[np.uint64]  # [k]: distinct, in the order of their first sample
    fields: NDArray[np.uint16]  # [k]
    counts: NDArray[np.int32]  # [k]: samples with that feature that teach something
    at: list[NDArray[np.int64]]  # for each shard, the indices into `keys` of those that it holds

    def keys_of(self, shard: int) -> NDArray[np.uint64]:
        """The keys to pull from a shard."""
        return self.keys[self.at[shard]]


def plan(batch: Batch, shards: int = 1) -> MinibatchTask:
    """The distinct features of a minibatch, assigned to the shards."""
    index = Table({})
    entry = index.insert(batch.keys)
    fields = np.zeros(index.size, np.uint16)
    fields[entry] = batch.fields
    taught = np.repeat(batch.weights != 0.0, np.diff(batch.indptr))
    counts = np.bincount(entry[taught], minlength=index.size).astype(np.int32)
    home = shard_of(index.keys, shards)
    return MinibatchTask(batch, index.keys, fields, counts, [np.flatnonzero(home == shard) for shard in range(shards)])


class Worker:
    """Turns minibatches into messages.

    model   a model of the server's schema and spec; its weights are not touched
    source  the unique name in its messages; a worker that replaces it keeps the name
    merge   how messages are merged (`merge.MERGES`)
    """

    def __init__(self, model: DeepProbit, source: str, merge: str = DEFAULT) -> None:
        self.source, self.merge = source, check_merge(merge)
        self.sequence = 0  # of the last message made
        # The server bounds its table and adapts the prior; this copy lasts only as long as the minibatch.
        self.local = type(model).from_spec(model.schema, msgspec.structs.replace(model.spec, adapt_prior=False))
        self.local.table.capacity = self.local.table.time_to_live = None
        self.local.dense.start[:] = model.dense.start

    def learn(self, task: MinibatchTask, pulled: Sequence[Pulled], workers: int = 1) -> tuple[Message, NDArray[np.float64]]:
        """The message of a task, one of `workers` learned at the same time, and the CTR predicted for each row before learning it.

        `pulled` are the shards' answers to `task.keys_of(shard)`. A lone worker decays its copy itself, and also sends the
        posterior, so that the server has the same bits as a model trained without a cluster.
        """
        local, lone = self.local, workers == 1
        self._load(task, pulled)
        every = np.arange(len(task.keys), dtype=np.int32)
        if not lone:
            forget(local, every, max(part.clock for part in pulled))
        share = self._share(task, pulled[0], workers)
        before, counts = take(local, every), local.table.count.astype(np.int32)
        learned = MinibatchLearning(share, lone)
        local.learn_with(learned)
        ctr = local.learn(task.batch)
        after = take(local, every)
        self.sequence += 1
        counts = local.table.count.astype(np.int32) - counts
        message = self._message(task, share, before, after, learned.variance, counts)
        return (message._replace(version=pulled[0].version, posterior=after) if lone else message), ctr

    def _load(self, task: MinibatchTask, pulled: Sequence[Pulled]) -> None:
        """Set the local copy to the pulled weights, and to the prior where no shard has a row."""
        local, table = self.local, self.local.table
        take_over_prior(pulled[0].weights, local)
        table.remove_older(np.inf)
        table.insert(task.keys)
        table.field[:] = task.fields
        with wrapping():
            initialise_rows(local.rows(), table.keys, table.field, 0, local.row_prior)
        for at, part in zip(task.at, pulled, strict=True):
            put(part.weights, local, at[part.places])
            table.count[at[part.places]] = part.counts
        local.rows_learned, local.clock = pulled[0].rows_learned, pulled[0].clock
        local.rejected[:] = 0

    def _share(self, task: MinibatchTask, pulled: Pulled, workers: int) -> Shares:
        if self.merge == "add" or workers == 1:
            return all_of_it(len(task.keys))
        rows, frequency = len(task.batch), self.local.table.count / max(pulled.rows_learned, 1)
        return fair_shares(workers, rows, task.counts, frequency, len(task.batch.keys) / rows, pulled.predictive_variance)

    def _message(
        self, task: MinibatchTask, share: Shares, before: Weights, after: Weights, variance: float, counts: NDArray[np.int32]
    ) -> Message:
        """Posterior over prior (PBODL eq. 27), or the share of it that the merge rule sends."""
        rows = np.empty((2, *after.mean.shape), np.float32)
        quotient(before.mean, before.variance, after.mean, after.variance, share.precision, share.mean, rows[0], rows[1])
        dense = np.empty((2, 1, len(after.dense_mean)), np.float32)
        quotient(
            before.dense_mean[None], before.dense_variance[None], after.dense_mean[None], after.dense_variance[None],
            np.ones(1), np.array([share.dense_mean]), dense[0], dense[1],
        )  # fmt: skip
        return Message(
            self.source, self.sequence, len(task.batch), int(np.count_nonzero(task.batch.counted)), self.local.clock, variance,
            task.keys, task.fields, counts,
            rows[0], rows[1], dense[0, 0], dense[1, 0], after.total - before.total, sums_of(after.scale) - sums_of(before.scale),
            self.local.rejected.copy(),
        )  # fmt: skip


class MinibatchLearning(Learning):
    """How a worker's local copy learns: a lone worker as usual, others to the powers of the merge rule.

    variance  the mean predictive variance of the minibatch, once it is learned
    """

    def __init__(self, share: Shares, lone: bool) -> None:
        self._share, self._lone = share, lone
        self.variance = 0.0

    def learn(self, weights: NetworkWeights, network: Network, samples: LabelledSamples, outputs: Outputs) -> None:
        if self._lone:
            learn_batch(weights, network, samples, outputs)
        else:
            learn_to_powers(self._share.power, weights, network, samples, outputs)
        self.variance = float(outputs.variance.mean())
