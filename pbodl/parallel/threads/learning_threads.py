"""Several threads of one process train one model: `pbodl train --workers N`.

The threads share the model's memory, so nothing is pulled or pushed. The kernels release the interpreter's lock. All threads write
the same rows of features, except that each has its own copy of the most frequent rows and of the dense weights; the copies are
merged after every block of samples (`kernels.thread_blocks`). One worker uses the ordinary kernel.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from pbodl.data.table.feature_table import Work
from pbodl.errors import InputError
from pbodl.kernels.arguments import (
    Features,
    LabelledSamples,
    Network,
    NetworkWeights,
    Outputs,
    RowPrior,
    outputs_between,
    rows_counted,
    samples_between,
)
from pbodl.kernels.network import learn_batch
from pbodl.kernels.thread_blocks import PATIENCE, learn_blocks
from pbodl.models.clock import Duration
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.learning import Learning
from pbodl.parallel.merge import DEFAULT, check_merge, fair_shares
from pbodl.parallel.schedule import Round, Schedule, check_workers
from pbodl.parallel.threads.copies import ROOM, Copies, MeanShares
from pbodl.parallel.threads.frequent import frequent_rows
from pbodl.training.visits.reinforcement import refuse_reinforced
from pbodl.training.visits.worker_rules import burn_in_of

BLOCK = 512  # samples between two exchanges of the copied weights, at the end of the ramp
SMALLEST = 128  # samples in a block at the end of a batch
STRETCH = 2048  # rows to learn, at least, before more threads may join or blocks may grow
OFTEN = 8  # or this fraction of the rows seen so far
LINE = 8  # numbers in a cache line: each thread counts in a line of its own


class Threads(Learning):
    """Learning with several threads.

    workers   number of threads at the end of the ramp (`schedule`)
    merge     "add" sums the threads' updates of the dense weights and of frequent rows; "shared" divides the steps of their means
    burn_in   rows or time that one thread learns first
    in_turns  learn the threads' blocks one after the other, in the order of the log: slow, but reproducible

    >>> import pbodl
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")])
    >>> model = pbodl.FMMLP(schema, dim=2, hidden=(4,))
    >>> model.learn_with(Threads(workers=2))
    >>> ctr = model.learn([{"ad": n % 7, "click": n % 2} for n in range(4000)])
    >>> model
    FMMLP(1 field, 4,000 rows learned, 7 features in ...)
    """

    def __init__(self, workers: int, merge: str = DEFAULT, burn_in: Duration | None = None, in_turns: bool = False) -> None:
        self.schedule, self.merge, self.in_turns = Schedule(workers, BLOCK, burn_in), check_merge(merge), in_turns
        self.spare = workers * ROOM
        self.seen = 0  # rows learned
        self._variance = 0.0  # predictive, of the last stretch
        self._prior: RowPrior | None = None  # of the last call
        self._pool = ThreadPoolExecutor(workers, "pbodl-worker")

    def start(self, model: DeepProbit) -> None:
        burn_in = self.schedule.burn_in
        if burn_in is not None and not burn_in.in_rows and model.counts_rows:
            raise InputError("a burn-in given as time needs a schema with a time column; give it in rows, such as 100k")
        self.seen = model.rows_learned
        if model.spec.linear:
            model.table.put_beside("linear_mean", "linear_variance")

    def learn(self, weights: NetworkWeights, network: Network, samples: LabelledSamples, outputs: Outputs) -> None:
        if network.prior is not self._prior:
            self.schedule.start_anew()
            self._prior = network.prior
        start, n = 0, len(samples.clicks)
        while start < n:
            turn = self.schedule.next(self.seen, samples.clock[start], self._variance)
            stretch = n if turn == (self.schedule.workers, BLOCK) else max(STRETCH, self.seen // OFTEN)
            stop = min(start + stretch, n)
            part, results = samples_between(samples, start, stop), outputs_between(outputs, start, stop)
            if turn.workers == 1:
                learn_batch(weights, network, part, results)
            else:
                self._together(turn, weights, network, part, results)
            self.seen += int(np.count_nonzero(rows_counted(part)))
            self._variance = float(results.variance.mean())
            start = stop

    def spread(self, work: Work, n: int) -> None:
        """Do work on n rows with all threads if there are enough rows, otherwise in the calling thread."""
        if n > STRETCH:
            edges = np.linspace(0, n, self.schedule.workers + 1).astype(np.int64).tolist()
            list(self._pool.map(work, edges[:-1], edges[1:]))
        else:
            work(0, n)

    def _together(self, turn: Round, weights: NetworkWeights, network: Network, samples: LabelledSamples, outputs: Outputs) -> None:
        active = turn.workers
        copied, often = frequent_rows(samples.features)
        apart = np.where(np.arange(len(often)) < copied.often, often, PATIENCE * often)  # how much of each is learned apart
        shares = self._shares(turn, apart, samples.features)
        copies = Copies(active, weights, network, copied, samples.clock[0], shares)
        counts = np.zeros((active, 2 * LINE), np.int64)[:, : len(outputs.rejected)]

        def work(thread: int, taken: NDArray[np.int64], edges: NDArray[np.int64]) -> None:
            learn_blocks(taken, edges, *copies.of(thread), network, samples, outputs._replace(rejected=counts[thread]))

        edges = block_edges(len(samples.clicks), *turn)
        if self.in_turns:
            for block in range(len(edges) - 1):
                work(block % active, np.zeros(1, np.int64), edges[block : block + 2])
        else:
            list(self._pool.map(work, range(active), [np.zeros(1, np.int64)] * active, [edges] * active))
        copies.bring_back()
        outputs.rejected[:] += counts.sum(axis=0)

    def _shares(self, turn: Round, often: NDArray[np.float64], features: Features) -> MeanShares:
        """How much of a step of the mean counts, for rows that occur `often` per sample."""
        if self.merge == "add":
            return MeanShares(1.0, np.ones(len(often)))
        of_a_sample = (features.indptr[-1] - features.indptr[0]) / (len(features.indptr) - 1)
        shares = fair_shares(*turn, np.zeros(len(often), np.int32), often, of_a_sample, self._variance)
        return MeanShares(shares.dense_mean, shares.mean)


def block_edges(samples: int, threads: int, size: int) -> NDArray[np.int64]:
    """Where the blocks of a batch begin and end. Blocks shrink towards the end, so that all threads finish at the same time.

    >>> block_edges(5000, 2, 1024).tolist()
    [0, 1024, 2018, 2763, 3322, 3741, 4055, 4291, 4468, 4601, 4729, 4857, 4985, 5000]
    """
    edges = [0]
    while edges[-1] < samples:
        left = samples - edges[-1]
        edges.append(edges[-1] + min(left, size, max(SMALLEST, left // (2 * threads))))
    return np.array(edges)


def learn_with_threads(
    model: Model, workers: int, merge: str = DEFAULT, burn_in: Duration | None = None, in_turns: bool = False
) -> None:
    """Let any model learn with several threads from now on, as `Threads` says; one worker changes nothing."""
    if workers == 1:
        return
    if not isinstance(model, DeepProbit):
        raise InputError(f"workers is {workers}, but the model {model.kind!r} learns with one; leave --workers out")
    refuse_reinforced(model.learning, "--workers")
    model.learn_with(Threads(workers, merge, burn_in, in_turns))


def threads_for(workers: int, merge: str, burn_in: str | int | None) -> Callable[[Model], None]:
    """What the options and [training] ask for, to apply to the model; what is wrong is refused before anything is read."""
    check_workers(workers)
    check_merge(merge)
    span = burn_in_of(burn_in)
    return lambda model: learn_with_threads(model, workers, merge, span)
