"""A worker slot: one source of messages, filled by one worker process at a time.

Minibatches arrive at a slot in order, two at a time: while one is learned, the message of the previous one goes out, or the weights
of the next are pulled. Messages go out one by one. If the process dies, its successor gets the unfinished minibatches again, under
the same (source, sequence). With every pull, the shards report the last message of the slot that they applied. From this alone the
successor knows
    - that the previous message is applied, so that its own may go out;
    - that all shards have this very message: then it only reports so;
    - that some have it: then it learns the minibatch again from what the shards hold now, and sends the message. Shards that have
      their part drop it as a repeat, the others apply theirs. Every part is applied once, so every row is counted once.
The predictions for these rows died with the process. Predicting the rows again, now that they are partly learned, would flatter the
figures. They are left out (NaN), and counted.
"""

import threading
from collections.abc import Callable, Sequence

import numpy as np

from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.remote_calls import Call
from pbodl.parallel.cluster.work_format import Done, Work, decode_pulled
from pbodl.parallel.merge import DEFAULT
from pbodl.parallel.message import encode, split
from pbodl.parallel.worker import Worker, plan
from pbodl.system.tensors import Bytes

DEPTH = 2  # minibatches of a slot under way: one is learned while the message or the weights of another travel

Ask = Callable[[Sequence[Call]], list[Bytes]]  # calls one method of each `DurableShard`, all at the same time


class WorkerSlot:
    """The slot named `source`. DEPTH threads may call `learn`; `ask` calls the shards."""

    def __init__(self, model: DeepProbit, source: str, shards: int, ask: Ask, merge: str = DEFAULT, half: bool = False) -> None:
        self.source, self._shards, self._ask, self._half = source, shards, ask, half
        self._worker = Worker(model, source, merge)
        self._learning = threading.Lock()  # the worker holds one minibatch
        self._turn = threading.Condition()
        self._finished = 0  # sequence number of the last message that all shards have

    def learn(self, work: Work) -> Done:
        """Learn a minibatch; returns when all shards have applied its message."""
        task = plan(work.batch, self._shards)
        answers = self._ask([("pull", (self.source.encode(), task.keys_of(shard).tobytes())) for shard in range(self._shards)])
        pulled, applied = zip(*map(decode_pulled, answers), strict=True)
        nothing = Done(np.full(len(work.batch), np.nan), pulled[0].predictive_variance, 0)
        if max(self._finished, min(applied)) >= work.sequence:
            self._finish(work.sequence)
            return nothing
        with self._learning:
            self._worker.sequence = work.sequence - 1
            message, ctr = self._worker.learn(task, pulled, work.workers)
        parts = [encode(part, self._half) for part in split(message, self._shards)]
        with self._turn:
            self._turn.wait_for(lambda: max(self._finished, min(applied)) >= work.sequence - 1)
            if self._finished >= work.sequence:
                return nothing  # this call repeats one that has just ended
            versions = self._ask([("push", (part,)) for part in parts])
            self._finish(work.sequence)
        staleness = max(0, int.from_bytes(versions[0], "little") - pulled[0].version)
        return nothing._replace(ctr=nothing.ctr if max(applied) >= work.sequence else ctr, staleness=staleness)

    def _finish(self, sequence: int) -> None:
        with self._turn:
            self._finished = max(self._finished, sequence)
            self._turn.notify_all()
