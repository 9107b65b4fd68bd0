"""What each of several threads has a copy of: the dense weights, and the rows of frequent features (`kernels.thread_blocks`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.data.table.memory import aligned_copy
from pbodl.kernels.layers.embedding import Features, Forgetting, RowPrior, Rows, forget_rows
from pbodl.kernels.network import Dense, Shape, forget_dense
from pbodl.kernels.thread_blocks import Copied, Shown, exchange_weights, gather, spans, weigh
from pbodl.parallel.threads.frequent import MOST

APART = 32  # rows between the copies of two threads, so that no cache line has numbers of both
ROOM = MOST + APART  # rows for one thread's


class Copies:
    """The copies of `threads` threads; those of rows stand in the spare rows, `ROOM` for each, at the end of `rows`.

    shares   of a step of the mean: of the dense weights, and of each copied row
    """

    def __init__(
        self, threads: int, rows: Rows, dense: Dense, shape: Shape, copied: Copied, prior: RowPrior, now: float,
        forgetting: Forgetting, shares: tuple[float, NDArray[np.float64]],
    ) -> None:  # fmt: skip
        self._rows, self._dense, self._shape, self._copied = rows, dense, shape, copied
        self._forgets = forgetting.half_life > 0.0
        forget_dense(dense, shape, now, forgetting)
        forget_rows(rows, _as_features(copied), 0, now, prior, forgetting)
        self._spans = spans(shape, rows, copied)
        n = self._spans[-1].places[1]
        self._naturals = np.zeros((threads + 1, 2, n))
        nothing = Shown(np.zeros(n), np.zeros(n), np.ones(n), self._naturals[-1])
        for span in self._spans:
            exchange_weights(dense, shape, rows, copied.rows, span, nothing, True)
        self._least, self._share = np.empty((2, n))
        weigh(self._naturals[-1], dense, shape, rows, copied, prior, *shares, self._least, self._share)
        # A copy that was last seen at the end of time does not decay: the weights themselves did, once.
        self._denses = [
            dense._replace(
                mean=aligned_copy(dense.mean), variance=aligned_copy(dense.variance), last_seen=np.full(1, np.inf),
                total=np.zeros_like(dense.total),
            )
            for _ in range(threads)
        ]  # fmt: skip
        self._places = [
            slice(first, first + len(copied.rows)) for first in range(len(rows.mean) - threads * ROOM, len(rows.mean), ROOM)
        ]
        for place in self._places:
            rows.count[place] = 1
            rows.last_seen[place] = np.inf if self._forgets else rows.last_seen[copied.rows]

    def of(self, thread: int) -> tuple[Any, ...]:
        """What `learn_blocks` wants to know of a thread's copies."""
        first = self._places[thread].start
        return self._naturals, self._least, self._share, self._copied, first, self._rows, self._denses[thread]

    def bring_back(self) -> None:
        """Let the weights be what all threads' copies come to."""
        rows, copied = self._rows, self._copied.rows
        n = self._naturals.shape[-1]
        shown = Shown(np.empty(n), np.empty(n), self._share, self._naturals[-1])
        gather(self._naturals, self._least, 0, n, shown.precision, shown.mean)
        for span in self._spans:
            exchange_weights(self._dense, self._shape, rows, copied, span, shown, False)
        for place in self._places:
            rows.count[copied] += rows.count[place] - np.uint32(1)
            if not self._forgets:
                rows.last_seen[copied] = np.maximum(rows.last_seen[copied], rows.last_seen[place])
        self._dense.total[:] += np.sum([dense.total for dense in self._denses], axis=0)


def _as_features(copied: Copied) -> Features:
    """The rows as one sample has them."""
    n = len(copied.rows)
    return Features(np.array([0, n]), copied.rows, np.zeros(n, np.uint64), np.ones(n, np.float32), copied.fields)
