"""Learning by several threads on shared rows: the work of one thread (PBODL §2.3, on one machine).

The threads share the rows of features and write them without locks. Two threads that meet in a row occasionally lose an update,
which costs less than any lock. Every sample touches the dense weights, and many touch the rows of the most frequent features, so
each thread has its own copy of these. After every block of samples, thread t adds what it learned, in natural parameters, to
`naturals[t]`, which no other thread writes, and refreshes its copies from all threads:
    copy = base × Π_u naturals[u]
So no update of a copied weight is lost. Few samples of a block touch the less frequent of the copied rows: these are exchanged
every PATIENCE blocks.

Shapes: N copied weights, first the dense ones, then the rows, one after the other. naturals (threads + 1, 2, N) holds the
precisions and precision-means that each thread added, and in its last entry those of the base. It is float64, although the weights
are float32, because 1/v is not a float32 number.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import fetch_add, inlined, jit
from pbodl.kernels.arguments import outputs_between, samples_between
from pbodl.kernels.guards import LEAST_KEPT
from pbodl.kernels.network import learn_batch

PATIENCE = 4  # blocks between two exchanges of the less frequent rows


class Copied(NamedTuple):
    """The H rows that every thread has a copy of, the most frequent first."""

    rows: np.ndarray  # int32 (H,): their rows in the table
    fields: np.ndarray  # int32 (H,)
    slots: np.ndarray  # int32 (slots, 2): a row and its index among the H, in the slot of the row's low bits; or -1
    often: np.int64  # how many, from the first, are exchanged after every block


class Span(NamedTuple):
    """Weights that are exchanged at the same time."""

    dense: bool  # whether the dense weights are among them
    rows: tuple[int, int]  # the copied rows, start and stop
    offsets: tuple[int, int]  # among the N weights, start and stop


class Shown(NamedTuple):
    """Copied weights as a thread took them, and what it adds to them."""

    precision: np.ndarray  # (N,)
    mean: np.ndarray
    share: np.ndarray  # how much of a mean's step counts
    added: np.ndarray  # (2, N), in natural parameters


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
    """The weights exchanged after every block, and those exchanged after several; the second span ends at N."""
    depth = rows.mean.shape[1] + (1 if len(rows.linear_mean) > 0 else 0)
    middle = (shape.sizes[1:] * (shape.sizes[:-1] + 1)).sum() + copied.often * depth
    end = middle + (len(copied.rows) - copied.often) * depth
    return Span(True, (0, copied.often), (0, middle)), Span(False, (copied.often, len(copied.rows)), (middle, end))


@inlined
def exchange(m, v, n, offset, shown, out):
    """Set n weights (m, v), from `offset` of N on, as they are shown; or, with `out`, add what they have gained since then.

    MODIFIES: m, v; or shown.added.
    """
    if out:
        for i in range(n):
            p = offset + i
            after = 1.0 / np.float64(v[i])
            added = after - shown.precision[p]
            shown.added[0, p] += added
            shown.added[1, p] += added * shown.mean[p] + shown.share[p] * (m[i] - shown.mean[p]) * after
    else:
        for i in range(n):
            m[i] = shown.mean[offset + i]
            v[i] = 1.0 / shown.precision[offset + i]


@jit
def exchange_weights(weights, shape, at, span, shown, out):
    """`exchange` a span of weights, with copied row h at row at[h]. MODIFIES: weights; or shown.added."""
    rows, dense = weights
    offset, dim = span.offsets[0], rows.mean.shape[1]
    if span.dense:
        for l in range(len(shape.sizes) - 1):  # noqa: E741
            n = shape.sizes[l] + 1
            for o in range(shape.sizes[l + 1]):
                exchange(dense.mean[l, o], dense.variance[l, o], n, offset, shown, out)
                offset += n
    for h in range(*span.rows):
        r = at[h]
        exchange(rows.mean[r], rows.variance[r], dim, offset, shown, out)
        offset += dim
        if len(rows.linear_mean) > 0:
            exchange(rows.linear_mean[r], rows.linear_variance[r], 1, offset, shown, out)
            offset += 1


@jit
def weigh(base, weights, network, copied, dense_share, row_shares, least, share):
    """The least precision that each weight keeps, a share of its prior's or its own, whichever is less; and how much of its mean's
    step counts. MODIFIES: least, share, (N,)."""
    rows, dense = weights
    sizes, prior = network.shape.sizes, network.prior
    offset, dim = 0, rows.mean.shape[1]
    for l in range(len(sizes) - 1):  # noqa: E741
        for o in range(sizes[l + 1]):
            for i in range(sizes[l] + 1):
                least[offset] = 1.0 / np.float64(dense.prior_variance[l, o, i])
                offset += 1
    share[:offset] = dense_share
    for h in range(len(copied.rows)):
        field, begin = copied.fields[h], offset
        for d in range(dim):
            least[offset + d] = 1.0 / np.float64(prior.variance[field, d])
        offset += dim
        if len(rows.linear_mean) > 0:
            least[offset] = 1.0 / np.float64(prior.linear_variance[field])
            offset += 1
        share[begin:offset] = row_shares[h]
    for i in range(offset):
        least[i] = LEAST_KEPT * min(least[i], base[0, i])


@jit
def gather(naturals, least, begin, end, precision, mean):
    """The base times all that was added to it, for weights begin to end. MODIFIES: precision, mean, (N,)."""
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
def point_to_copies(rows, begin, end, slots, first):
    """Replace copied rows among entries [begin, end) by their copies, which start at row `first`. MODIFIES: rows."""
    mask = np.int32(slots.shape[0] - 1)
    for j in range(np.uint64(begin), np.uint64(end)):
        slot = rows[j] & mask
        if slots[slot, 0] == rows[j]:
            rows[j] = first + slots[slot, 1]


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
                gather(own.naturals, own.least, span.offsets[0], span.offsets[1], shown.precision, shown.mean)
                exchange_weights(weights, shape, copies, span, shown, False)
        point_to_copies(features.rows, features.indptr[begin], features.indptr[end], copied.slots, own.first)
        learn_batch(weights, network, samples_between(samples, begin, end), outputs_between(outputs, begin, end))
        done += 1
        block = fetch_add(taken, 1)
        for span in (often, seldom):
            if span.dense or done % PATIENCE == 0 or block >= blocks:
                exchange_weights(weights, shape, copies, span, shown, True)
