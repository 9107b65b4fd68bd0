"""The whole network, one line a layer: features -> embedding -> operation -> dense + ReLU ... -> dense -> probit (PBODL §2.1).

`learn_batch` takes one sample after the other: forward, gradients of log Z back, ADF update of every weight (PBODL eq. 6, eq. 7,
eq. 8). `predict_batch` only goes forward, BLOCK samples side by side.

Shapes: L dense layers, layer l from sizes[l] to sizes[l+1] units; sizes[0] is the width of z_0, sizes[L] = 1. One padded array
(L, widest out, widest in + 1) holds the weights of all layers, so that one compiled kernel serves every depth.

erratum E8: the last layer is linear; z_L enters the probit without a ReLU.
Beyond the paper, hidden units are centred: the inputs of layer l > 0 are z_l minus its *centre*, which `models.adaptation` sets
from time to time to their mean. Rectified units are all positive. Without a centre, every weight above them would take part in
"more clicks everywhere", and thousands of weights, each learning as if it were alone, would follow the level of the last few
thousand rows.
Also beyond the paper, a *shortcut* adds a multiple of the sum of z_0 to z_L, past the hidden layers. Without hidden layers
(sizes = [0, 1]) the shortcut and the bias are all there is: the sum operation is then linear probit regression, and FM is the
factorisation machine itself.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import by_type, inlined, jit, prefetch, viewed
from pbodl.kernels.adf import decay, decay_home
from pbodl.kernels.arguments import NoForgetting, PairShape, counted, floats, largest, most_features, vectors_of
from pbodl.kernels.layers.dense import BLOCK, DenseScratch, make_dense_scratch
from pbodl.kernels.layers.embedding import (
    are_plain,
    embedding_backward,
    embedding_forward,
    embedding_preview,
    entries,
    forget_rows,
    kept_share,
    linear_columns,
    linear_forward,
)
from pbodl.kernels.layers.interaction import FFM, FM, GROUP_FM, PAIRS
from pbodl.kernels.layers.operations import (
    dense_backward_from_top,
    dense_forward_to_top,
    operation_backward,
    operation_forward,
    power_at_z,
    weighted_pairs_forward,
)
from pbodl.kernels.layers.pairs import PairScratch, make_pair_scratch
from pbodl.kernels.layers.probit import probit_forward
from pbodl.kernels.layers.stage import stage_backward
from pbodl.kernels.normal import ONE, ZERO
from pbodl.kernels.sample_blocks import add_outputs, make_block, pack_layers

AHEAD = 4  # samples whose embeddings `predict_batch` prefetches while it works on one: they fit into the nearest cache
IN_PLACE = (FM, GROUP_FM, PAIRS)  # operations that read features directly from the table
REJECTED_EMBEDDING, REJECTED_LINEAR, REJECTED_DENSE = 0, 1, 2


class Scratch(NamedTuple):
    """Room for one sample's moments and gradients."""

    m_x: np.ndarray  # (features, G, K)
    v_x: np.ndarray
    dm_x: np.ndarray
    dv_x: np.ndarray
    groups: np.ndarray  # (features,)
    members: np.ndarray  # (G, features)
    counts: np.ndarray  # (G,)
    m_p: np.ndarray  # (G, G, K); (G, 1, K) for FM between groups
    v_p: np.ndarray
    dm_p: np.ndarray
    dv_p: np.ndarray
    sums: np.ndarray  # (G, 3, K)
    m_z: np.ndarray  # (L + 1, widest)
    v_z: np.ndarray
    m_a: np.ndarray
    v_a: np.ndarray
    above: np.ndarray
    below: np.ndarray
    ratio: np.ndarray
    dm: np.ndarray
    dv: np.ndarray
    r_z: np.ndarray
    slope: np.ndarray  # (L + 1, widest): of z_L by the activations of each layer, and by z_0
    dense: DenseScratch
    bad_x: np.ndarray  # (G K,)


class PairsScratch(NamedTuple):
    """As `Scratch`, for a model of pairs."""

    m_x: np.ndarray
    v_x: np.ndarray
    dm_x: np.ndarray
    dv_x: np.ndarray
    members: np.ndarray  # (1, features)
    dm: np.ndarray  # (1, 1)
    dv: np.ndarray
    bad_x: np.ndarray
    pairs: PairScratch


@jit
def make_pairs_scratch(shape, features, depth):
    """Scratch for a model of pairs."""
    groups = largest(shape.group_of_field) + 1
    dim = depth // groups
    members = np.empty(features, np.int32)
    for j in range(features):
        members[j] = j
    return PairsScratch(
        vectors_of(features, groups, dim), vectors_of(features, groups, dim), vectors_of(features, groups, dim),
        vectors_of(features, groups, dim), viewed(members, (1, features)), viewed(floats(1), (1, 1)), viewed(floats(1), (1, 1)),
        floats(depth), make_pair_scratch(len(shape.group_of_field), groups, dim),
    )  # fmt: skip


@jit
def make_layers_scratch(shape, features, depth):
    """Scratch for a network with layers."""
    n_groups = largest(shape.group_of_field) + 1 if shape.op in (FFM, GROUP_FM) else 1
    vectors = n_groups if shape.op == FFM else 1
    dim = depth // vectors
    layers = len(shape.sizes)
    widest = max(shape.width, largest(shape.sizes)) + 1
    f = np.float32
    most = max(features, n_groups)
    members = np.empty((n_groups, most), np.int32)
    for g in range(n_groups):
        for j in range(most):
            members[g, j] = j
    return Scratch(
        np.empty((features, vectors, dim), f), np.empty((features, vectors, dim), f),
        np.empty((features, vectors, dim), f), np.empty((features, vectors, dim), f),
        np.empty(features, np.int64), members, np.empty(n_groups, np.int64),
        np.empty((n_groups, vectors, dim), f), np.empty((n_groups, vectors, dim), f),
        np.empty((n_groups, vectors, dim), f), np.empty((n_groups, vectors, dim), f), np.empty((n_groups, 3, dim), f),
        np.empty((layers, widest), f), np.empty((layers, widest), f), np.empty((layers, widest), f),
        np.empty((layers, widest), f), np.empty((layers, widest), f), np.empty((layers, widest), f),
        np.empty((layers, widest), f), np.empty((layers, widest), f), np.empty((layers, widest), f),
        np.empty((layers, widest), f), np.empty((layers, widest), f), make_dense_scratch(widest), np.empty(depth, f),
    )  # fmt: skip


# Scratch for samples of up to `features` features, each of `depth` = G K numbers.
make_scratch = by_type(PairShape, make_pairs_scratch, make_layers_scratch, allocates=True)


@jit
def flat(vectors):
    """A view with all groups' vectors of a feature in one row: (features, G, K) as (features, G K)."""
    return viewed(vectors, (vectors.shape[0], vectors.shape[1] * vectors.shape[2]))


@jit
def forget_dense(dense, shape, now, forgetting):
    """Decay the dense layers up to the clock `now`; layers never learned have nothing to forget. MODIFIES: dense.

    Weights of layers go back to the means that they started from. Layers are products: if only variances decayed, the means would
    wander along scales that cancel out, and grow. Biases keep their means, but for `also_mean` where the bias is all there is.
    """
    if dense.last_seen[0] == 0.0:
        dense.last_seen[0] = now
    kept = kept_share(now - dense.last_seen[0], forgetting.half_life)
    if kept == ONE:
        return
    also_mean, layered = forgetting.also_mean and shape.sizes[0] == 0, shape.op != PAIRS
    for l in range(len(shape.sizes) - 1):  # noqa: E741
        n_in = shape.sizes[l]
        for o in range(shape.sizes[l + 1]):
            m, v, start, prior = dense.mean[l, o], dense.variance[l, o], dense.start[l, o], dense.prior_variance[l, o]
            for i in range(n_in):
                if layered:
                    m[i], v[i] = decay_home(m[i], v[i], start[i], prior[i], kept)
                else:
                    m[i], v[i] = decay(m[i], v[i], prior[i], kept, False)
            m[n_in], v[n_in] = decay(m[n_in], v[n_in], prior[n_in], kept, also_mean)
    dense.last_seen[0] = now


@inlined
def forget_nothing(forgetting, weights, shape, features, sample, now, prior):
    """Keep all."""


@inlined
def forget_until(forgetting, weights, shape, features, sample, now, prior):
    """Decay what a sample uses, up to the clock `now`. MODIFIES: weights."""
    if forgetting.half_life > 0.0:
        forget_dense(weights.dense, shape, now, forgetting)
        forget_rows(weights.rows, features, sample, now, prior, forgetting)


forget = by_type(NoForgetting, forget_nothing, forget_until)


@inlined
def prefetch_vectors(rows, features, sample):
    """Prefetch the embeddings of a sample: most of what its prediction waits for. Prefetching an unseen row is harmless."""
    at, m_w, v_w = features.rows, rows.mean, rows.variance
    first, last = entries(features, sample)
    for j in range(first, last):
        r = np.uint32(at[j])
        prefetch(m_w, r)
        prefetch(v_w, r)


@inlined
def prefetch_rows(rows, features, sample):
    """Prefetch all of a sample's rows, which learning writes."""
    at, m_w, v_w, m_l, v_l = features.rows, rows.mean, rows.variance, rows.linear_mean, rows.linear_variance
    last_seen, count = rows.last_seen, rows.count
    apart = count.strides[0] == count.itemsize
    first, last = entries(features, sample)
    for j in range(first, last):
        r = np.uint32(at[j])
        prefetch(m_w, r)
        prefetch(v_w, r)
        prefetch(m_l, r)
        if apart:  # otherwise they share its cache line
            prefetch(v_l, r)
            prefetch(last_seen, r)
            prefetch(count, r)


@jit
def learn_batch(weights, network, samples, outputs):
    """Learn samples one after the other (`arguments` has what it is given). MODIFIES: weights, outputs.

    Of a sample of power 0, only the passing of time is seen: what it uses decays up to its clock, as before any prediction here.
    """
    rows, dense = weights
    shape, prior, forgetting, cap = network
    features, clicks, powers, clock, came_before, came_by = samples
    mean, variance, rejected = outputs
    w = make_scratch(shape, most_features(features.indptr), rows.mean.shape[1])
    forgets, in_place, indptr = forgetting.half_life > 0.0, shape.op in IN_PLACE, features.indptr
    m_x, v_x = flat(w.m_x), flat(w.v_x)
    dm_x, dv_x = flat(w.dm_x), flat(w.dv_x)
    vectors = (len(rows.mean), w.m_x.shape[1], w.m_x.shape[2])
    m_w, v_w = viewed(rows.mean, vectors), viewed(rows.variance, vectors)
    m_l, v_l = linear_columns(rows)
    for sample in range(len(clicks)):
        prefetch_rows(rows, features, min(sample + 1, len(clicks) - 1))
        forget(forgetting, weights, shape, features, sample, clock[sample], prior)
        plain = in_place and are_plain(features, indptr[sample], indptr[sample + 1])
        if plain:
            m_linear, v_linear = linear_forward(m_l, v_l, features, sample)
            m_in, v_in, at = m_w, v_w, features.rows[indptr[sample] :]
        else:
            m_linear, v_linear = embedding_forward(rows, features, sample, m_x, v_x)
            m_in, v_in, at = w.m_x, w.v_x, w.members[0]
        operation_forward(shape, features, sample, m_in, v_in, at, w)
        counts = counted(samples, sample)
        m_top, v_top = dense_forward_to_top(shape, dense, w, counts)
        m, v = np.float64(m_top + m_linear), np.float64(v_top + v_linear)
        mean[sample], variance[sample] = m, v
        power = powers[sample]
        if power == ZERO:
            continue
        dm64, dv64 = stage_backward(m, v, clicks[sample] > ZERO, np.float64(came_before[sample]), np.float64(came_by[sample]))
        dm64, dv64, power = power_at_z(shape, dense, m, v, v_linear, dm64, dv64, power, w, rejected)
        dm, dv = np.float32(dm64), np.float32(dv64)
        rejected[REJECTED_DENSE] += dense_backward_from_top(shape, dense, dm, dv, power, cap, w)
        operation_backward(shape, features, sample, m_in, v_in, at, w)
        embedding_backward(
            rows, m_l, v_l, features, sample, clock[sample], forgets, dm_x, dv_x, dm, dv, power, cap, counts, w.bad_x, rejected
        )


@inlined
def add_pairs(shape, dense, w, s, block, mean, variance, sample):
    """Add z_L of one sample to its linear term. MODIFIES: w, mean, variance."""
    m_top, v_top = weighted_pairs_forward(shape, dense, w, np.uint32(0))
    mean[sample], variance[sample] = mean[sample] + m_top, variance[sample] + v_top


@inlined
def into_block(shape, dense, w, s, block, mean, variance, sample):
    """Put z_0 into column s of a block, for `add_outputs`. MODIFIES: block."""
    for i in range(shape.width):
        block.z[0, i, s], block.z[1, i, s] = w.m_z[0, i], w.v_z[0, i]


@jit
def no_layers(shape, dense):
    """Nothing to pack: pairs have no layers."""
    return floats(0), floats(0)


@jit
def packed_layers(shape, dense):
    """The packed layers, and room for a block of samples."""
    return pack_layers(dense, shape.sizes), make_block(shape.sizes, shape.width)


@inlined
def nothing_left(shape, packed, block, mean, variance):
    """All of a block's samples are complete."""


@jit
def block_outputs(shape, packed, block, mean, variance):
    """Take a block's samples through the layers. MODIFIES: mean, variance, block."""
    add_outputs(packed, shape, block, mean, variance)


finish_sample = by_type(PairShape, add_pairs, into_block)
block_of_samples = by_type(PairShape, no_layers, packed_layers, allocates=True)
finish_block = by_type(PairShape, nothing_left, block_outputs, allocates=True)


@jit
def predict_batch(weights, network, features, now, mean, variance):
    """Moments of z_L for every sample (PBODL eq. 9 makes them a probability). MODIFIES: mean, variance."""
    rows, dense = weights
    shape, prior, forgetting, _ = network
    w = make_scratch(shape, most_features(features.indptr), rows.mean.shape[1])
    m_x, v_x = flat(w.m_x), flat(w.v_x)
    vectors = (len(rows.mean), w.m_x.shape[1], w.m_x.shape[2])
    m_w, v_w = viewed(rows.mean, vectors), viewed(rows.variance, vectors)
    m_l, v_l = linear_columns(rows)
    packed, block = block_of_samples(shape, dense)
    indptr, in_place = features.indptr, shape.op in IN_PLACE and forgetting.half_life == 0.0
    for begin in range(0, len(mean), BLOCK):
        n = min(BLOCK, len(mean) - begin)
        all_plain = in_place and are_plain(features, indptr[begin], indptr[begin + n])
        # Linear terms come before the prefetching of embeddings: they would wait in the same queue.
        for sample in range(begin, begin + n if all_plain else begin):
            mean[sample], variance[sample] = linear_forward(m_l, v_l, features, sample)
        for s in range(n):
            sample = begin + s
            prefetch_vectors(rows, features, min(sample + AHEAD, len(mean) - 1))
            if in_place and (all_plain or are_plain(features, indptr[sample], indptr[sample + 1])):
                if not all_plain:
                    mean[sample], variance[sample] = linear_forward(m_l, v_l, features, sample)
                m_in, v_in, at = m_w, v_w, features.rows[indptr[sample] :]
            else:
                mean[sample], variance[sample] = embedding_preview(rows, features, sample, now, prior, forgetting, m_x, v_x)
                m_in, v_in, at = w.m_x, w.v_x, w.members[0]
            operation_forward(shape, features, sample, m_in, v_in, at, w)
            finish_sample(shape, dense, w, s, block, mean, variance, sample)
        finish_block(shape, packed, block, mean[begin : begin + n], variance[begin : begin + n])


@jit
def click_probability(mean, variance, ctr):
    """Φ(m/√(1+v)) of every sample. MODIFIES: ctr."""
    for s in range(len(mean)):
        ctr[s] = probit_forward(mean[s], variance[s])
