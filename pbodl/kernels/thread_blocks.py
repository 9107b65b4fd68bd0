"""Learning by several threads on shared rows: what one of them does (PBODL §2.3, on one machine).

The threads share the rows of features and write them without locks; two that meet in a row now and then lose one of their updates,
which costs less than any lock. The dense weights are touched by every sample, and the rows of the most frequent features by many:
of these each thread has a copy of its own. After every block of samples it adds to `naturals[t]`, which it alone writes, what the
block added in natural parameters, and takes
    copy = base × Π_u naturals[u]
anew, everybody's included. Nothing of these weights is lost, and none of them is written by two. Of the copied rows the less
frequent are met by few samples of a block: they are exchanged every PATIENCE blocks.

Shapes: N weights of which there are copies, the dense ones first, then the rows, one after the other; naturals (threads + 1, 2, N)
are precisions and precision-means that each thread added, and at last those of the base. In float64, from float32 weights: 1/v is
not a float32 number.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import fetch_add, inlined, jit
from pbodl.kernels.arguments import outputs_between, samples_between
from pbodl.kernels.guards import LEAST_KEPT
from pbodl.kernels.network import learn_batch

PATIENCE = 4  # blocks between two exchanges of the less frequent rows


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


class Shown(NamedTuple):
    """Copied weights as a thread took them, and what it makes of them."""

    precision: np.ndarray  # (N,)
    mean: np.ndarray
    share: np.ndarray  # of the step of a mean, that counts
    added: np.ndarray  # (2, N): in natural parameters


class ThreadCopies(NamedTuple):
    """The copies of one thread, and what all threads added to their base."""

    thread: int
    first: int  # the row where its copies of rows begin
    copied: Copied
    naturals: np.ndarray  # (threads + 1, 2, N)
    least: np.ndarray  # (N,): the least precision that a weight keeps
    share: np.ndarray  # (N,)


@jit
def spans(shape, rows, copied):
    """What is exchanged after every block, and what after several; the end of the second is N."""
    depth = rows.mean.shape[1] + (1 if len(rows.linear_mean) > 0 else 0)
    middle = (shape.sizes[1:] * (shape.sizes[:-1] + 1)).sum() + copied.often * depth
    end = middle + (len(copied.rows) - copied.often) * depth
    return Span(True, (0, copied.often), (0, middle)), Span(False, (copied.often, len(copied.rows)), (middle, end))


@inlined
def exchange(m, v, n, place, shown, out):
    """n weights (m, v), from `place` of N on: as they are shown, or `out`, what they have become since then.

    MODIFIES: m, v; or shown.added.
    """
    if out:
        for i in range(n):
            p = place + i
            after = 1.0 / np.float64(v[i])
            added = after - shown.precision[p]
            shown.added[0, p] += added
            shown.added[1, p] += added * shown.mean[p] + shown.share[p] * (m[i] - shown.mean[p]) * after
    else:
        for i in range(n):
            m[i] = shown.mean[place + i]
            v[i] = 1.0 / shown.precision[place + i]


@jit
def exchange_weights(weights, shape, at, span, shown, out):
    """`exchange` a span of weights, of rows those that stand `at`. MODIFIES: weights; or shown.added."""
    rows, dense = weights
    place, dim = span.places[0], rows.mean.shape[1]
    if span.dense:
        for l in range(len(shape.sizes) - 1):  # noqa: E741
            n = shape.sizes[l] + 1
            for o in range(shape.sizes[l + 1]):
                exchange(dense.mean[l, o], dense.variance[l, o], n, place, shown, out)
                place += n
    for h in range(*span.rows):
        r = at[h]
        exchange(rows.mean[r], rows.variance[r], dim, place, shown, out)
        place += dim
        if len(rows.linear_mean) > 0:
            exchange(rows.linear_mean[r], rows.linear_variance[r], 1, place, shown, out)
            place += 1


@jit
def weigh(base, weights, network, copied, dense_share, row_shares, least, share):
    """The least precision that each weight keeps, a share of its prior's, or of its own if it has less than its prior; and the
    share of its mean's step that counts. MODIFIES: least, share, (N,)."""
    rows, dense = weights
    sizes, prior = network.shape.sizes, network.prior
    place, dim = 0, rows.mean.shape[1]
    for l in range(len(sizes) - 1):  # noqa: E741
        for o in range(sizes[l + 1]):
            for i in range(sizes[l] + 1):
                least[place] = 1.0 / np.float64(dense.prior_variance[l, o, i])
                place += 1
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
def gather(naturals, least, begin, end, precision, mean):
    """Base times all that was added to it, from one place to another. MODIFIES: precision, mean, (N,)."""
    base = naturals.shape[0] - 1
    for i in range(begin, end):
        precision[i], mean[i] = naturals[base, 0, i], naturals[base, 1, i]
    for t in range(base):
        for i in range(begin, end):
            precision[i] += naturals[t, 0, i]
            mean[i] += naturals[t, 1, i]
    for i in range(begin, end):
        precision[i] = max(precision[i], least[i])
        mean[i] /= precision[i]


@jit
def point_to_copies(rows, begin, end, places, first):
    """Entries [begin, end) of rows that are copied get the copy, which stands `first` + its place. MODIFIES: rows."""
    mask = np.int32(places.shape[0] - 1)
    for j in range(np.uint64(begin), np.uint64(end)):
        slot = rows[j] & mask
        if places[slot, 0] == rows[j]:
            rows[j] = first + places[slot, 1]


@jit
def learn_blocks(taken, edges, own, weights, network, samples, outputs):
    """A thread with the copies `own` learns the next block of samples that no thread has taken, until all are; block b ends at
    edges[b + 1]. `weights` are the shared rows and the thread's own dense layers.

    Blocks are not dealt out beforehand: a thread whose core has other work would keep the others waiting at the end.
    MODIFIES: taken[0], own.naturals[own.thread], samples.features.rows; and as `learn_batch`.
    """
    shape, features, copied = network.shape, samples.features, own.copied
    n, blocks = own.naturals.shape[2], len(edges) - 1
    shown = Shown(np.empty(n), np.empty(n), own.share, own.naturals[own.thread])
    copies = own.first + np.arange(len(copied.rows))
    often, seldom = spans(shape, weights.rows, copied)
    done = 0
    block = fetch_add(taken, 1)
    while block < blocks:
        begin, end = edges[block], edges[block + 1]
        for span in (often, seldom):
            if span.dense or done % PATIENCE == 0:
                gather(own.naturals, own.least, span.places[0], span.places[1], shown.precision, shown.mean)
                exchange_weights(weights, shape, copies, span, shown, False)
        point_to_copies(features.rows, features.indptr[begin], features.indptr[end], copied.places, own.first)
        learn_batch(weights, network, samples_between(samples, begin, end), outputs_between(outputs, begin, end))
        done += 1
        block = fetch_add(taken, 1)
        for span in (often, seldom):
            if span.dense or done % PATIENCE == 0 or block >= blocks:
                exchange_weights(weights, shape, copies, span, shown, True)
