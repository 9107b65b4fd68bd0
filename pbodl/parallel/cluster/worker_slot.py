"""A lane: one source of messages, served by one worker process at a time, whoever that is.

A lane's minibatches come in order, two at a time: while one is learned, the message of the one before goes out, and the weights of
the next are pulled. Messages go out one after the other. If the process dies, its successor gets the unfinished minibatches again,
under the same (source, sequence). The shards tell with every pull which message of the lane they applied last; so the successor
knows, without a memory of its own,
    - that the message before is applied, and that its own may go out;
    - that all shards have this very message: then nothing is left to do but to say so;
    - that some have it: then it learns the minibatch again from what the shards hold now, and sends the message; those that have
      their part drop it as a repeat, the others apply theirs. Every part is applied once, and so every row is counted once.
What was predicted for the rows died with the process. Predicting them again, now that they are learned in part, would flatter the
figures; they are left out of them (NaN), and counted.
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

DEPTH = 2  # minibatches of a lane under way: one is learned, the other's message or weights are on their way

Ask = Callable[[Sequence[Call]], list[Bytes]]  # one call of `DurableShard`'s methods to each shard, all at the same time


class Lane:
    """The lane `source`. `learn` may be called by DEPTH threads; `ask` reaches the shards."""

    def __init__(self, model: DeepProbit, source: str, shards: int, ask: Ask, merge: str = DEFAULT, half: bool = False) -> None:
        self.source, self._shards, self._ask, self._half = source, shards, ask, half
        self._worker = Worker(model, source, merge)
        self._learning = threading.Lock()  # the worker has room for one minibatch
        self._turn = threading.Condition()
        self._finished = 0  # the last message that all shards have

    def learn(self, work: Work) -> Done:
        """Learn a minibatch, and have its message applied by all shards."""
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
                return nothing  # this call is a repeat of one that has just ended
            versions = self._ask([("push", (part,)) for part in parts])
            self._finish(work.sequence)
        staleness = max(0, int.from_bytes(versions[0], "little") - pulled[0].version)
        return nothing._replace(ctr=nothing.ctr if max(applied) >= work.sequence else ctr, staleness=staleness)

    def _finish(self, sequence: int) -> None:
        with self._turn:
            self._finished = max(self._finished, sequence)
            self._turn.notify_all()
