"""What each of several threads has a copy of: the dense weights, and the rows of frequent features (`kernels.thread_blocks`)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.table.memory import aligned_copy
from pbodl.kernels.arguments import Features, Network, NetworkWeights
from pbodl.kernels.layers.embedding import forget_rows
from pbodl.kernels.network import forget_dense
from pbodl.kernels.thread_blocks import Copied, Shown, ThreadCopies, exchange_weights, gather, spans, weigh
from pbodl.parallel.threads.frequent import MOST

APART = 32  # rows between the copies of two threads, so that they share no cache line
ROOM = MOST + APART  # rows for the copies of one thread


class MeanShares(NamedTuple):
    """How much of a step of the mean counts."""

    dense: float
    rows: NDArray[np.float64]  # for each copied row


class Copies:
    """The copies of `threads` threads. Copies of rows stand in the spare rows at the end of `weights.rows`, `ROOM` per thread."""

    def __init__(
        self, threads: int, weights: NetworkWeights, network: Network, copied: Copied, now: float, shares: MeanShares
    ) -> None:
        rows, dense = self._weights = weights
        self._shape, self._copied = network.shape, copied
        self._forgets = network.forgetting.half_life > 0.0
        forget_dense(dense, network.shape, now, network.forgetting)
        forget_rows(rows, _as_features(copied), 0, now, network.prior, network.forgetting)
        self._spans = spans(network.shape, rows, copied)
        n = self._spans[-1].offsets[1]
        self._naturals = np.zeros((threads + 1, 2, n))
        nothing = Shown(np.zeros(n), np.zeros(n), np.ones(n), self._naturals[-1])
        for span in self._spans:
            exchange_weights(weights, network.shape, copied.rows, span, nothing, True)
        self._least, self._share = np.empty((2, n))
        weigh(self._naturals[-1], weights, network, copied, shares.dense, shares.rows, self._least, self._share)
        # A copy that was last seen at the end of time does not decay: the weights themselves did, once.
        self._denses = [
            dense._replace(
                mean=aligned_copy(dense.mean), variance=aligned_copy(dense.variance), last_seen=np.full(1, np.inf),
                total=np.zeros_like(dense.total),
            )
            for _ in range(threads)
        ]  # fmt: skip
        firsts = range(len(rows.mean) - threads * ROOM, len(rows.mean), ROOM)
        self._slices = [slice(first, first + len(copied.rows)) for first in firsts]
        for own in self._slices:
            rows.count[own] = 1
            rows.last_seen[own] = np.inf if self._forgets else rows.last_seen[copied.rows]

    def of(self, thread: int) -> tuple[ThreadCopies, NetworkWeights]:
        """A thread's copies, and the weights that it learns with: the shared rows and its own dense layers."""
        own = ThreadCopies(thread, self._slices[thread].start, self._copied, self._naturals, self._least, self._share)
        return own, self._weights._replace(dense=self._denses[thread])

    def bring_back(self) -> None:
        """Set the weights to the product of all threads' copies."""
        rows, copied = self._weights.rows, self._copied.rows
        n = self._naturals.shape[-1]
        shown = Shown(np.empty(n), np.empty(n), self._share, self._naturals[-1])
        gather(self._naturals, self._least, 0, n, shown.precision, shown.mean)
        for span in self._spans:
            exchange_weights(self._weights, self._shape, copied, span, shown, False)
        for own in self._slices:
            rows.count[copied] += rows.count[own] - np.uint32(1)
            if not self._forgets:
                rows.last_seen[copied] = np.maximum(rows.last_seen[copied], rows.last_seen[own])
        self._weights.dense.total[:] += np.sum([dense.total for dense in self._denses], axis=0)


def _as_features(copied: Copied) -> Features:
    """The copied rows as the features of one sample."""
    n = len(copied.rows)
    return Features(np.array([0, n]), copied.rows, np.zeros(n, np.uint64), np.ones(n, np.float32), copied.fields)
