"""Several threads of one process train one model: `pbodl train --workers N`.

The server's memory is the model's own, so nothing is pulled or pushed: the kernels release the interpreter's lock, the rows of
features are shared, and the dense weights are merged every block of samples (`kernels.threads`).
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.kernels.message import LEAST_SHARE
from pbodl.kernels.network import Dense, Shape, forget_dense, learn_batch
from pbodl.kernels.threads import BLOCK, gather_dense, learn_blocks
from pbodl.models.deep_probit import DeepProbit


class Threads:
    def __init__(self, model, workers, in_turns=False, dense_share=None):
        self.model = model
        self.workers, self.in_turns = workers, in_turns
        self._pool = ThreadPoolExecutor(workers)
        self.dense_share=dense_share

    def __call__(self, rows, dense, shape, features, clicks, powers, clock, prior, forgetting, cap, mean, variance, rejected):
        active=self.workers
        share = self.dense_share or 1.0/active
        forget_dense(dense, shape, clock[0], forgetting)
        base = np.zeros((2, *dense.mean.shape))
        base[0] = 1.0 / dense.variance; base[1] = base[0] * dense.mean
        deltas = np.zeros((active, *base.shape))
        copies = [Dense(dense.mean.copy(), dense.variance.copy(), np.full(1, np.inf), dense.prior_variance) for _ in range(active)]
        counts = np.zeros((active, len(rejected)), np.int64)
        def work(t):
            learn_blocks(t, active, t, share, base, deltas, rows, copies[t], shape, features, clicks, powers, clock, prior, forgetting, cap, mean, variance, counts[t])
        if self.in_turns:
            for block in range(-(-len(clicks)//BLOCK)):
                t = block % active
                e=(block+1)*BLOCK
                learn_blocks(block, 1<<40, t, share, base, deltas, rows, copies[t], shape, features, clicks, powers, clock, prior, forgetting, cap, mean, variance, counts[t])
        else:
            list(self._pool.map(work, range(active)))
        gather_dense(base, deltas, shape, dense.prior_variance, dense.mean, dense.variance)
        rejected += counts.sum(axis=0)
