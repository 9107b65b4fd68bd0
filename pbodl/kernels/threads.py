"""Learning by several threads on shared rows: what one of them does (PBODL §2.3, on one machine).

The threads share the rows of features and write them without locks; two that meet in a row now and then lose one of their updates,
which costs less than any lock. The dense weights are touched by every sample, so there each thread has a copy of its own:
after every block of samples it adds to `deltas[t]`, which it alone writes, what the block added in natural parameters, and takes
    copy = base × Π_u deltas[u]
anew, everybody's deltas included. Nothing of the dense weights is lost, and no cache line is written by two.
"""

import numpy as np

from pbodl._jit import fetch_add, jit
from pbodl.gaussian import Gaussian, divide, natural
from pbodl.kernels.embedding import Features
from pbodl.kernels.message import LEAST_SHARE
from pbodl.kernels.network import learn_batch


@jit
def gather_dense(base, deltas, shape, prior_variance, mean, variance):
    """Base times all threads' deltas, each (2, L, out, in): precision and precision-mean. MODIFIES: mean, variance."""
    least = LEAST_SHARE / np.float64(prior_variance)
    precision, precision_mean = np.empty(base.shape[3]), np.empty(base.shape[3])
    for l in range(len(shape.sizes) - 1):  # noqa: E741
        n_in = shape.sizes[l]
        for o in range(shape.sizes[l + 1]):
            for i in range(n_in + 1):
                precision[i], precision_mean[i] = base[0, l, o, i], base[1, l, o, i]
            for t in range(deltas.shape[0]):
                for i in range(n_in + 1):
                    precision[i] += deltas[t, 0, l, o, i]
                    precision_mean[i] += deltas[t, 1, l, o, i]
            for i in range(n_in + 1):
                kept = max(precision[i], least)
                variance[l, o, i] = 1.0 / kept
                mean[l, o, i] = precision_mean[i] / kept


@jit
def add_delta(m0, v0, m1, v1, shape, share, delta):
    """Add what took N(m0, v0) to N(m1, v1), `share` of it in the mean. MODIFIES: delta."""
    for l in range(len(shape.sizes) - 1):  # noqa: E741
        for o in range(shape.sizes[l + 1]):
            for i in range(shape.sizes[l] + 1):
                prior = Gaussian(np.float64(m0[l, o, i]), np.float64(v0[l, o, i]))
                posterior = Gaussian(np.float64(m1[l, o, i]), np.float64(v1[l, o, i]))
                added = divide(natural(posterior), natural(prior)).precision
                delta[0, l, o, i] += added
                delta[1, l, o, i] += added * prior.mean + share * (posterior.mean - prior.mean) / posterior.variance


@jit
def learn_blocks(
    taken, blocks, size, own, share, base, deltas, rows, dense, shape, features, clicks, powers, clock, prior, forgetting, cap,
    mean, variance, rejected,
):  # fmt: skip
    """Thread `own` learns the next block of `size` samples that nobody has taken, until `blocks` are; `dense` is its copy.

    Not every second block: a thread whose core has other work would keep the others waiting at the end.
    MODIFIES: taken[0], deltas[own]; and as `learn_batch`.
    """
    m0, v0 = np.empty_like(dense.mean), np.empty_like(dense.variance)
    block = fetch_add(taken, 1)
    while block < blocks:
        begin = block * size
        end = min(begin + size, len(clicks))
        gather_dense(base, deltas, shape, dense.prior_variance, dense.mean, dense.variance)
        m0[:], v0[:] = dense.mean, dense.variance
        part = Features(features.indptr[begin : end + 1], features.rows, features.keys, features.values, features.fields)
        learn_batch(
            rows, dense, shape, part, clicks[begin:end], powers[begin:end], clock[begin:end], prior, forgetting, cap,
            mean[begin:end], variance[begin:end], rejected,
        )  # fmt: skip
        add_delta(m0, v0, dense.mean, dense.variance, shape, share, deltas[own])
        block = fetch_add(taken, 1)
