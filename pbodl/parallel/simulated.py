"""Workers and server shards in one process and one thread: in every round, all workers learn from the same weights.

This is a real cluster at its most regular, and reproducible: for tests, and to measure what merging costs in accuracy.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.data.convert import from_data
from pbodl.models.adaptation import next_moment
from pbodl.models.clock import Duration
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.sharding import deal, join
from pbodl.parallel.cluster_prior import adapt_cluster, adapts
from pbodl.parallel.merge import DEFAULT
from pbodl.parallel.message import Message, decode, encode, split
from pbodl.parallel.schedule import Schedule
from pbodl.parallel.worker import Worker, plan


class Cluster:
    """`workers` workers with minibatches of `rows` rows, and `shards` shards that start from the weights of `model`.

    With `half`, messages are sent in 16 bits.

    >>> import pbodl
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")])
    >>> cluster = Cluster(pbodl.FMMLP(schema, dim=2, hidden=()), workers=4, shards=2)
    >>> ctr = cluster.learn([{"ad": n % 7, "click": n % 2} for n in range(1000)])
    >>> cluster.model()
    FMMLP(1 field, 1,000 rows learned, 7 features in ...)
    """

    def __init__(
        self, model: DeepProbit, workers: int, rows: int = 256, shards: int = 1, merge: str = DEFAULT,
        burn_in: Duration | None = None, half: bool = False,
    ) -> None:  # fmt: skip
        self._half = half
        self.schedule = Schedule(workers, rows, burn_in)
        self.shards = deal(model, shards)
        self._adapts, self._priors = adapts(model, workers, merge), 0
        self.workers = [Worker(model, f"worker-{n}", merge) for n in range(workers)]

    def learn(self, data: Any) -> NDArray[np.float64]:
        """Learn labelled data in rounds; returns the CTR predicted for each row before its worker learned it."""
        batch = from_data(self.shards[0].model.schema, data, labelled=True)
        ctr = np.empty(len(batch))
        start = 0
        while start < len(batch):
            first_shard = self.shards[0]
            seen, variance = first_shard.model.rows_learned, first_shard.predictive_variance
            workers, rows = self.schedule.next(seen, float(batch.times[start]), variance)
            moment = next_moment(seen)
            stop = min(start + workers * rows, len(batch), *([batch.until(start, moment - seen)] if self._adapts else ()))
            starts = range(start, stop, rows)
            messages: list[Message] = []
            for worker, first in zip(self.workers, starts, strict=False):
                last = min(first + rows, stop)
                task = plan(batch.rows(first, last), len(self.shards))
                pulled = [shard.pull(task.keys_of(shard.number)) for shard in self.shards]
                message, ctr[first:last] = worker.learn(task, pulled, len(starts))
                messages.append(message)
            for message in messages:
                self.push(decode(encode(message, half=True)) if self._half else message)
            if self._adapts and first_shard.model.rows_learned == moment:
                self.schedule.start_anew()
                self._priors = adapt_cluster(first_shard.model, self._evidence, self.push, self._priors)
            start = stop
        return ctr

    def _evidence(self) -> list[NDArray[np.float64]]:
        return [shard.evidence() for shard in self.shards]

    def push(self, message: Message) -> None:
        """Push a message to all shards."""
        for shard, part in zip(self.shards, split(message, len(self.shards)), strict=True):
            shard.push(part)

    def model(self) -> DeepProbit:
        """The model that the shards hold together."""
        return join(self.shards)
