"""The layers above z_0 for BLOCK samples side by side, where no backward follows (PBODL eq. 13, eq. 14).

Prediction and serving share them. Shapes: a unit's samples are adjacent, so that every loop over samples becomes vector
instructions. One array holds the packed weights of all layers and then the centres of the hidden units (`network`), repeated for
every sample, so that one compiled kernel serves every depth.

The variance by slopes (`layers.slopes`) goes down again: every layer keeps Φ of its units and the variance that their own weights
have, and a transposed copy of the weights carries the slopes to the layer below.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl.kernels.arguments import largest
from pbodl.kernels.layers.dense import BLOCK, add_product, dense_forward_block, moments_apart, pack_dense, pack_transposed
from pbodl.kernels.layers.interaction import SLOPES
from pbodl.kernels.layers.relu import relu_moments, relu_moments_and_gate
from pbodl.kernels.normal import ONE, ZERO

CHUNK = 8 * BLOCK  # numbers rectified at a time: they and the scratch stay in the nearest cache


class SampleBlock(NamedTuple):
    """Room for BLOCK samples' moments."""

    z: np.ndarray  # (3, widest, BLOCK): m_z, v_z, m_z²; hidden units minus their centre
    a: np.ndarray  # (2, pairs, 2 BLOCK): m_a, v_a
    scratch: np.ndarray  # (3, CHUNK)
    slope: np.ndarray  # (2, pairs, 2 BLOCK): t of a layer and of the one below, in turn
    gate: np.ndarray  # (L, widest, BLOCK): Φ of the units above each layer
    own: np.ndarray  # (L, widest, BLOCK): variance of each activation by the layer's own weights
    v_0: np.ndarray  # (widest, BLOCK): v_z0


@inlined
def pairs(n):
    """How many pairs n outputs make, the last one perhaps half empty."""
    return (n + 1) // 2


@jit
def make_block(sizes, width):
    """Room for a network whose z_0 has `width` numbers."""
    f, widest = np.float32, largest(sizes)
    units = 2 * pairs(max(width, widest))
    kept = (len(sizes) - 1, 2 * pairs(largest(sizes[1:])), BLOCK)
    return SampleBlock(
        np.zeros((3, units, BLOCK), f), np.zeros((2, pairs(widest), 2 * BLOCK), f), np.zeros((3, CHUNK), f),
        np.zeros((2, units // 2, 2 * BLOCK), f), np.zeros(kept, f), np.zeros(kept, f), np.zeros((units, BLOCK), f),
    )  # fmt: skip


@jit
def layer_at(packed, sizes, l):  # noqa: E741
    """The means and variances of layer l, as `pack_dense` packed them."""
    begin = 0
    for below in range(l):
        begin += packed_size(sizes, below)
    n, inputs = pairs(sizes[l + 1]), sizes[l] + 1
    middle = begin + 2 * n * inputs
    return packed[begin:middle].reshape(n, inputs, 2), packed[middle : middle + 4 * n * inputs].reshape(n, inputs, 4)


@inlined
def packed_size(sizes, l):  # noqa: E741
    """How many numbers layer l is packed into: means, variances, and means transposed."""
    return 6 * pairs(sizes[l + 1]) * (sizes[l] + 1) + 2 * pairs(sizes[l]) * sizes[l + 1]


@jit
def transposed_at(packed, sizes, l):  # noqa: E741
    """The means of layer l by pairs of inputs, as `pack_transposed` packed them."""
    end = 0
    for below in range(l + 1):
        end += packed_size(sizes, below)
    n, outputs = pairs(sizes[l]), sizes[l + 1]
    return packed[end - 2 * n * outputs : end].reshape(n, outputs, 2)


@jit
def centre_at(packed, sizes, l):  # noqa: E741
    """The centres of the hidden units that are the inputs of layer l > 0, by unit and sample."""
    begin = len(packed)
    for above in range(l, len(sizes) - 1):
        begin -= sizes[above] * BLOCK
    return packed[begin : begin + sizes[l] * BLOCK]


@jit
def size_of_layers(sizes):
    """How many numbers all layers and centres are packed into."""
    size = 0
    for l in range(len(sizes) - 1):  # noqa: E741
        size += packed_size(sizes, l) + (sizes[l] * BLOCK if l > 0 else 0)
    return size


@kernel
def pack_centre(centre, packed):
    """Repeat the centres for every sample. MODIFIES: packed (units, BLOCK)."""
    for i in range(packed.shape[0]):
        for s in range(BLOCK):
            packed[i, s] = centre[i]


@jit
def pack_layers(dense, sizes):
    """The weights of all dense layers, packed."""
    packed = np.empty(size_of_layers(sizes), np.float32)
    for l in range(len(sizes) - 1):  # noqa: E741
        means, variances = layer_at(packed, sizes, l)
        pack_dense(dense.mean[l], dense.variance[l], sizes[l], sizes[l + 1], means, variances)
        pack_transposed(dense.mean[l], sizes[l], sizes[l + 1], transposed_at(packed, sizes, l))
        if l > 0:
            pack_centre(dense.centre[l], centre_at(packed, sizes, l).reshape(sizes[l], BLOCK))
    return packed


@jit
def layers_forward_block(packed, sizes, block):
    """Take z_0, in block.z[:2], to z_L without the linear term, in block.a[:, 0, :BLOCK]. MODIFIES: block."""
    top = len(sizes) - 2
    z, a, scratch = block.z, block.a, block.scratch
    m_a, v_a = a[0].reshape(-1), a[1].reshape(-1)
    m_z, v_z, r_z = z[0].reshape(-1), z[1].reshape(-1), z[2].reshape(-1)
    for i in range(sizes[0] * BLOCK):
        r_z[i] = m_z[i] * m_z[i]
    for l in range(top + 1):  # noqa: E741
        means, variances = layer_at(packed, sizes, l)
        dense_forward_block(means, variances, z, sizes[l], a)
        if l < top:
            centre = centre_at(packed, sizes, l + 1)
            for i in range(0, len(centre), CHUNK):
                n = min(CHUNK, len(centre) - i)
                relu_moments(m_a[i:], v_a[i:], centre[i:], n, m_z[i:], v_z[i:], r_z[i:], scratch[0], scratch[1], scratch[2])


@jit
def slopes_forward_block(packed, sizes, block):
    """As `layers_forward_block`, for the means; and what `slopes_backward_block` needs. MODIFIES: block."""
    top = len(sizes) - 2
    z, a, scratch = block.z, block.a, block.scratch
    m_a, v_a = a[0].reshape(-1), a[1].reshape(-1)
    m_z, v_z, r_z = z[0].reshape(-1), z[1].reshape(-1), z[2].reshape(-1)
    for i in range(sizes[0] * BLOCK):
        r_z[i] = m_z[i] * m_z[i]
    for l in range(top + 1):  # noqa: E741
        means, variances = layer_at(packed, sizes, l)
        own, gate = block.own[l].reshape(-1), block.gate[l].reshape(-1)
        moments_apart(means, variances, z, sizes[l], a, own)
        if l < top:
            centre = centre_at(packed, sizes, l + 1)
            for i in range(0, len(centre), CHUNK):
                n = min(CHUNK, len(centre) - i)
                relu_moments_and_gate(
                    m_a[i:], v_a[i:], centre[i:], n, m_z[i:], v_z[i:], r_z[i:], gate[i:], scratch[0], scratch[1], scratch[2]
                )  # fmt: skip


@jit
def slopes_backward_block(packed, shape, block, variance):
    """Add the variance by slopes. MODIFIES: variance, block.slope."""
    sizes, top, total = shape.sizes, len(shape.sizes) - 2, np.zeros(BLOCK, np.float32)
    t, below = block.slope[0], block.slope[1]
    for s in range(BLOCK):
        t[0, s], total[s] = ONE, block.own[top, 0, s]
    for l in range(top, -1, -1):  # noqa: E741
        n_in = sizes[l]
        for p in range(pairs(n_in)):
            for s in range(2 * BLOCK):
                below[p, s] = ZERO
        add_product(transposed_at(packed, sizes, l), t.reshape(-1, BLOCK), sizes[l + 1], below)
        t, below = below, t
        if l > 0:
            slope, gate = t.reshape(-1), block.gate[l - 1].reshape(-1)
            for i in range(n_in * BLOCK):
                slope[i] *= gate[i]
            add_squares(t, block.own[l - 1], n_in, total)
    if sizes[0] == 0:
        for i in range(pairs(shape.width)):
            for s in range(2 * BLOCK):
                t[i, s] = ZERO
    slope = t.reshape(-1)
    for i in range(shape.width * BLOCK):
        slope[i] += shape.shortcut
    add_squares(t, block.v_0, shape.width, total)
    for s in range(len(variance)):
        variance[s] += total[s]
    return t


@kernel
def add_squares(t, v, n, total):
    """Add Σ t² v over n units, for every sample. MODIFIES: total."""
    slope = t.reshape(-1, BLOCK)
    for i in range(n):
        for s in range(BLOCK):
            total[s] += slope[i, s] * slope[i, s] * v[i, s]


@jit
def add_outputs(packed, shape, block, mean, variance):
    """Add the outputs of the layers and of the shortcut, from z_0 in block.z, to the linear terms of the block's samples.

    MODIFIES: mean, variance, block.
    """
    if shape.shortcut > ZERO:
        for i in range(shape.width):
            for s in range(len(mean)):
                mean[s] += shape.shortcut * block.z[0, i, s]
                if shape.mode != SLOPES:
                    variance[s] += shape.shortcut * shape.shortcut * block.z[1, i, s]
    if shape.mode == SLOPES:
        for i in range(shape.width):
            block.v_0[i] = block.z[1, i]
        slopes_forward_block(packed, shape.sizes, block)
        slopes_backward_block(packed, shape, block, variance)
        for s in range(len(mean)):
            mean[s] += block.a[0, 0, s]
        return
    layers_forward_block(packed, shape.sizes, block)
    for s in range(len(mean)):
        mean[s] += block.a[0, 0, s]
        variance[s] += block.a[1, 0, s]
