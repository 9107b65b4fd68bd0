"""Several threads of one process train one model: `pbodl train --workers N`.

Here the server's memory is the model's own, so nothing is pulled or pushed: the kernels release the interpreter's lock, the rows of
features are shared, but for copies of the most frequent; these, and the dense weights, are merged after every block of samples
(`kernels.thread_blocks`). With one worker it is the ordinary kernel.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.data.table.spread import Work
from pbodl.errors import InputError
from pbodl.kernels.layers.embedding import Features
from pbodl.kernels.network import learn_batch
from pbodl.kernels.thread_blocks import PATIENCE, learn_blocks
from pbodl.models.clock import Duration, parse_duration
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.merge import DEFAULT, check_merge, fair_shares
from pbodl.parallel.schedule import Round, Schedule
from pbodl.parallel.threads.copies import ROOM, Copies
from pbodl.parallel.threads.frequent import frequent_rows

BLOCK = 512  # samples between two looks at what the others learned of the copied weights, once the ramp has come to its end
SMALLEST = 128  # of a block at the end of a batch
STRETCH = 2048  # rows learned, at least, before looking again whether more threads may join, or take larger blocks
OFTEN = 8  # or this part of the rows seen so far
LINE = 8  # numbers of a cache line: what each thread counts stands in one of its own


class Threads:
    """The kernel of a model that learns with several threads.

    workers   threads that learn, once the ramp has come to its end (`schedule`)
    merge     "add" sums the threads' updates of the dense weights and of frequent rows; else the steps of their means are shared
    burn_in   what is learned by one thread first, in rows or in time
    in_turns  take the threads' blocks one after the other, in the log's order: slow, and the same every time

    >>> import pbodl
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")])
    >>> model = pbodl.FMMLP(schema, dim=2, hidden=(4,))
    >>> learn_with_threads(model, workers=2)
    >>> ctr = model.learn([{"ad": n % 7, "click": n % 2} for n in range(4000)])
    >>> model
    FMMLP(1 fields, 4000 rows learned)
    """

    def __init__(self, workers: int, merge: str = DEFAULT, burn_in: Duration | None = None, in_turns: bool = False) -> None:
        self.schedule, self.merge, self.in_turns = Schedule(workers, BLOCK, burn_in), check_merge(merge), in_turns
        self.seen = 0  # rows learned
        self._variance = 0.0  # predictive, of the last stretch
        self._prior: Any = None  # of the last call
        self._pool = ThreadPoolExecutor(workers, "pbodl-worker")

    def __call__(
        self, rows: Any, dense: Any, shape: Any, features: Any, clicks: Any, powers: Any, clock: Any, prior: Any, forgetting: Any,
        cap: Any, mean: Any, variance: Any, rejected: Any,
    ) -> None:  # fmt: skip
        """As `network.learn_batch`."""
        if prior is not self._prior:
            self.schedule.start_anew()
            self._prior = prior
        start = 0
        while start < len(clicks):
            turn = self.schedule.next(self.seen, clock[start], self._variance)
            stretch = len(clicks) if turn == (self.schedule.workers, BLOCK) else max(STRETCH, self.seen // OFTEN)
            stop = min(start + stretch, len(clicks))
            part = Features(features.indptr[start : stop + 1], *features[1:])
            own = (a[start:stop] for a in (clicks, powers, clock))
            learned = rows, dense, shape, part, *own, prior, forgetting, cap, mean[start:stop], variance[start:stop], rejected
            if turn.workers == 1:
                learn_batch(*learned)
            else:
                self._together(turn, *learned)
            self.seen += stop - start
            self._variance = float(variance[start:stop].mean())
            start = stop

    def spread(self, work: Work, n: int) -> None:
        """Work on n rows, by all threads if it is worth their while, and else by the one that asks."""
        if n > STRETCH:
            edges = np.linspace(0, n, self.schedule.workers + 1).astype(np.int64).tolist()
            list(self._pool.map(work, edges[:-1], edges[1:]))
        else:
            work(0, n)

    def _together(self, turn: Round, rows: Any, dense: Any, shape: Any, features: Any, clicks: Any, *rest: Any) -> None:
        powers, clock, prior, forgetting, *others, rejected = rest
        active = turn.workers
        copied, often = frequent_rows(features)
        apart = np.where(np.arange(len(often)) < copied.often, often, PATIENCE * often)  # in a block, what is learned apart of each
        shares = self._shares(turn, apart, features)
        copies = Copies(active, rows, dense, shape, copied, prior, clock[0], forgetting, shares)
        counts = np.zeros((active, 2 * LINE), np.int64)[:, : len(rejected)]

        def work(thread: int, taken: NDArray[np.int64], edges: NDArray[np.int64]) -> None:
            learn_blocks(
                taken, edges, thread, *copies.of(thread), shape, features, clicks, powers, clock, prior, forgetting, *others,
                counts[thread],
            )  # fmt: skip

        edges = block_edges(len(clicks), *turn)
        if self.in_turns:
            for block in range(len(edges) - 1):
                work(block % active, np.zeros(1, np.int64), edges[block : block + 2])
        else:
            list(self._pool.map(work, range(active), [np.zeros(1, np.int64)] * active, [edges] * active))
        copies.bring_back()
        rejected += counts.sum(axis=0)

    def _shares(self, turn: Round, often: NDArray[np.float64], features: Features) -> tuple[float, NDArray[np.float64]]:
        """How much of a step of the mean counts: of the dense weights, and of rows that are met so often for each sample."""
        if self.merge == "add":
            return 1.0, np.ones(len(often))
        of_a_sample = (features.indptr[-1] - features.indptr[0]) / (len(features.indptr) - 1)
        shares = fair_shares(*turn, np.zeros(len(often), np.int32), often, of_a_sample, self._variance)
        return shares.dense_mean, shares.mean


def block_edges(samples: int, threads: int, size: int) -> NDArray[np.int64]:
    """Where the blocks of so many samples begin and end: at last they are smaller, so that all threads are done at the same time.

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
    """Let a model learn with several threads from now on, as `Threads` says; one worker is the ordinary kernel."""
    if workers == 1:
        return
    if not isinstance(model, DeepProbit):
        raise InputError(f"workers is {workers}, but the model {model.kind!r} learns with one; leave --workers out")
    if burn_in is not None and not burn_in.in_rows and model._counts_rows:
        raise InputError("a burn-in in time needs a model whose clock is the schema's time; give it in rows, such as 100k")
    kernel = Threads(workers, merge, burn_in, in_turns)
    kernel.seen = model.rows_learned
    model.kernel, model.table.spread, model.spare = kernel, kernel.spread, workers * ROOM
    if model.spec.linear:
        model.table.put_beside("linear_mean", "linear_variance")


def threads_for(workers: int, merge: str, burn_in: str | None) -> Callable[[Model], None]:
    """What the options of the command line ask for, to be done to the model before it learns."""
    Threads(workers, merge)  # an error in them is said before anything is read
    span = burn_in_of(burn_in)
    return lambda model: learn_with_threads(model, workers, merge, span)


def burn_in_of(given: str | None) -> Duration | None:
    """The burn-in that an option such as 100k (rows) or 2d means."""
    if given is not None and given.strip()[-1:] in "0123456789kM":
        given = f"{given} rows"
    return None if given is None else parse_duration(given, "burn_in")
