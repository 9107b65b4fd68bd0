"""Learning by several threads on shared rows: what one of them does (PBODL §2.3, on one machine).

The threads share the rows of features and write them without locks; two that meet in a row now and then lose one of their updates,
which costs less than any lock. The dense weights are touched by every sample, and the rows of the most frequent features by many:
of these each thread has a copy of its own. After every block of samples it adds to `deltas[t]`, which it alone writes, what the
block added in natural parameters, and takes
    copy = base × Π_u deltas[u]
anew, everybody's deltas included. Nothing of these weights is lost, and no cache line of them is written by two. Of the copied rows
the less frequent are met by few samples of a block: they are exchanged every PATIENCE blocks.

Shapes: N weights of which there are copies, the dense ones first, then the rows, one after the other; base (2, N),
deltas (threads, 2, N) are precisions and precision-means. In float64, from float32 weights: 1/v is not a float32 number.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import fetch_add, inlined, jit
from pbodl.kernels.embedding import Features
from pbodl.kernels.network import learn_batch

PATIENCE = 4  # blocks between two looks at the rows that are less frequent
LEAST_KEPT = 0.1  # of a weight's precision, or its prior's, whatever all threads take from it (erratum E6)


class Copied(NamedTuple):
    """The rows of which every thread has a copy: H of them, the most frequent first."""

    rows: np.ndarray  # int32 (H,): where they stand in the table
    fields: np.ndarray  # int32 (H,)
    places: np.ndarray  # int32 (slots, 2): a row and its place among them, in the slot of the row's low bits; or -1
    often: np.int64  # how many of them are exchanged after every block


class Span(NamedTuple):
    """Weights that are exchanged at the same time: the dense ones or not, copied rows from one to another; their places of N."""

    dense: bool
    rows: tuple[int, int]
    places: tuple[int, int]


@jit
def spans(shape, rows, copied):
    """What is exchanged after every block, and what after several; the end of the second is N."""
    depth = rows.mean.shape[1] + (1 if len(rows.linear_mean) > 0 else 0)
    middle = (shape.sizes[1:] * (shape.sizes[:-1] + 1)).sum() + copied.often * depth
    end = middle + (len(copied.rows) - copied.often) * depth
    return Span(True, (0, copied.often), (0, middle)), Span(False, (copied.often, len(copied.rows)), (middle, end))


@inlined
def exchange(a, b, n, out):
    """The n numbers of `a` to `b`, or those of `b` to `a`. MODIFIES: a or b."""
    if out:
        for i in range(n):
            b[i] = a[i]
    else:
        for i in range(n):
            a[i] = b[i]


@jit
def exchange_weights(dense, shape, rows, at, span, mean, variance, out):
    """A span of weights, of rows those that stand `at`, to its places in the vectors mean and variance, (N,); or the other way.

    MODIFIES: mean, variance; or dense, rows.
    """
    place, dim = span.places[0], rows.mean.shape[1]
    if span.dense:
        for l in range(len(shape.sizes) - 1):  # noqa: E741
            n = shape.sizes[l] + 1
            for o in range(shape.sizes[l + 1]):
                exchange(dense.mean[l, o], mean[place : place + n], n, out)
                exchange(dense.variance[l, o], variance[place : place + n], n, out)
                place += n
    for h in range(*span.rows):
        r = at[h]
        exchange(rows.mean[r], mean[place : place + dim], dim, out)
        exchange(rows.variance[r], variance[place : place + dim], dim, out)
        place += dim
        if len(rows.linear_mean) > 0:
            exchange(rows.linear_mean[r], mean[place : place + 1], 1, out)
            exchange(rows.linear_variance[r], variance[place : place + 1], 1, out)
            place += 1


@jit
def weigh(base, dense, shape, rows, copied, prior, dense_share, row_shares, least, share):
    """The least precision that each weight keeps, a share of its prior's, or of its own if it has less than its prior; and the
    share of its mean's step that counts. MODIFIES: least, share, (N,)."""
    place, dim = (shape.sizes[1:] * (shape.sizes[:-1] + 1)).sum(), rows.mean.shape[1]
    least[:place] = 1.0 / np.float64(dense.prior_variance)
    share[:place] = dense_share
    for h in range(len(copied.rows)):
        field, begin = copied.fields[h], place
        for d in range(dim):
            least[place + d] = 1.0 / np.float64(prior.variance[field, d])
        place += dim
        if len(rows.linear_mean) > 0:
            least[place] = 1.0 / np.float64(prior.linear_variance[field])
            place += 1
        share[begin:place] = row_shares[h]
    for i in range(place):
        least[i] = LEAST_KEPT * min(least[i], base[0, i])


@jit
def gather(base, deltas, least, begin, end, precision, mean, variance):
    """Base times all threads' deltas, from one place to another. MODIFIES: precision, mean, variance, (N,)."""
    for i in range(begin, end):
        precision[i], mean[i] = base[0, i], base[1, i]
    for t in range(deltas.shape[0]):
        for i in range(begin, end):
            precision[i] += deltas[t, 0, i]
            mean[i] += deltas[t, 1, i]
    for i in range(begin, end):
        precision[i] = max(precision[i], least[i])
        variance[i] = 1.0 / precision[i]
        mean[i] *= variance[i]


@jit
def add_delta(precision, m0, m1, v1, share, begin, end, delta):
    """Add what took weights of that precision and mean m0 to N(m1, v1), `share` of it in the mean, from one place to another.

    MODIFIES: delta.
    """
    for i in range(begin, end):
        after = 1.0 / v1[i]
        added = after - precision[i]
        delta[0, i] += added
        delta[1, i] += added * m0[i] + share[i] * (m1[i] - m0[i]) * after


@jit
def point_to_copies(rows, begin, end, places, first):
    """Entries [begin, end) of rows that are copied get the copy, which stands `first` + its place. MODIFIES: rows."""
    mask = np.int32(places.shape[0] - 1)
    for j in range(np.uint64(begin), np.uint64(end)):
        slot = rows[j] & mask
        if places[slot, 0] == rows[j]:
            rows[j] = first + places[slot, 1]


@jit
def learn_blocks(
    taken, blocks, size, own, base, deltas, least, share, copied, first, rows, dense, shape, features, clicks, powers, clock, prior,
    forgetting, cap, mean, variance, rejected,
):  # fmt: skip
    """Thread `own` learns the next block of `size` samples that nobody has taken, until `blocks` are; `dense` is its copy, and its
    copies of rows begin at `first`.

    Not every second block: a thread whose core has other work would keep the others waiting at the end.
    MODIFIES: taken[0], deltas[own], features.rows; and as `learn_batch`.
    """
    n = base.shape[1]
    precision, m0, v0, m1 = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    copies = first + np.arange(len(copied.rows))
    often, seldom = spans(shape, rows, copied)
    done = 0
    block = fetch_add(taken, 1)
    while block < blocks:
        begin = block * size
        end = min(begin + size, len(clicks))
        for span in (often, seldom):
            if span.dense or done % PATIENCE == 0:
                gather(base, deltas, least, span.places[0], span.places[1], precision, m0, v0)
                exchange_weights(dense, shape, rows, copies, span, m0, v0, False)
        point_to_copies(features.rows, features.indptr[begin], features.indptr[end], copied.places, first)
        part = Features(features.indptr[begin : end + 1], features.rows, features.keys, features.values, features.fields)
        learn_batch(
            rows, dense, shape, part, clicks[begin:end], powers[begin:end], clock[begin:end], prior, forgetting, cap,
            mean[begin:end], variance[begin:end], rejected,
        )  # fmt: skip
        done += 1
        block = fetch_add(taken, 1)
        for span in (often, seldom):
            if span.dense or done % PATIENCE == 0 or block >= blocks:
                exchange_weights(dense, shape, rows, copies, span, m1, v0, True)
                add_delta(precision, m0, m1, v0, share, span.places[0], span.places[1], deltas[own])
