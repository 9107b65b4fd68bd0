"""The layers above z_0 for BLOCK samples side by side, where no backward follows (PBODL eq. 13, eq. 14).

Prediction and serving share them. Shapes: a unit's samples are adjacent, so that every loop over samples becomes vector
instructions. One array holds the packed weights of all layers and then the centres of the hidden units (`network`), repeated for
every sample, so that one compiled kernel serves every depth.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit
from pbodl.kernels.layers.dense import BLOCK, dense_forward_block, pack_dense
from pbodl.kernels.layers.relu import relu_moments
from pbodl.kernels.normal import ZERO

CHUNK = 8 * BLOCK  # numbers rectified at a time: they and the scratch stay in the nearest cache


class SampleBlock(NamedTuple):
    """Room for BLOCK samples' moments."""

    z: np.ndarray  # (3, widest, BLOCK): m_z, v_z, m_z²; hidden units minus their centre
    a: np.ndarray  # (2, pairs, 2 BLOCK): m_a, v_a
    scratch: np.ndarray  # (3, CHUNK)


@inlined
def pairs(n):
    """How many pairs n outputs make, the last one perhaps half empty."""
    return (n + 1) // 2


@jit
def make_block(sizes, width):
    """Room for a network whose z_0 has `width` numbers."""
    f, widest = np.float32, sizes.max()
    units = 2 * pairs(max(width, widest))
    return SampleBlock(np.zeros((3, units, BLOCK), f), np.zeros((2, pairs(widest), 2 * BLOCK), f), np.zeros((3, CHUNK), f))


@jit
def layer_at(packed, sizes, l):  # noqa: E741
    """The means and variances of layer l, as `pack_dense` packed them."""
    begin = 0
    for below in range(l):
        begin += 6 * pairs(sizes[below + 1]) * (sizes[below] + 1)
    n, inputs = pairs(sizes[l + 1]), sizes[l] + 1
    middle = begin + 2 * n * inputs
    return packed[begin:middle].reshape(n, inputs, 2), packed[middle : middle + 4 * n * inputs].reshape(n, inputs, 4)


@jit
def centre_at(packed, sizes, l):  # noqa: E741
    """The centres of the hidden units that are the inputs of layer l > 0, by unit and sample."""
    begin = len(packed)
    for above in range(l, len(sizes) - 1):
        begin -= sizes[above] * BLOCK
    return packed[begin : begin + sizes[l] * BLOCK]


@jit
def pack_layers(dense, sizes):
    """The weights of all dense layers, packed."""
    size = 0
    for l in range(len(sizes) - 1):  # noqa: E741
        size += 6 * pairs(sizes[l + 1]) * (sizes[l] + 1) + (sizes[l] * BLOCK if l > 0 else 0)
    packed = np.empty(size, np.float32)
    for l in range(len(sizes) - 1):  # noqa: E741
        means, variances = layer_at(packed, sizes, l)
        pack_dense(dense.mean[l], dense.variance[l], sizes[l], sizes[l + 1], means, variances)
        if l > 0:
            centre = centre_at(packed, sizes, l).reshape(sizes[l], BLOCK)
            for i in range(sizes[l]):
                centre[i] = dense.centre[l, i]
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
def add_outputs(packed, shape, block, mean, variance):
    """Add the outputs of the layers and of the shortcut, from z_0 in block.z, to the linear terms of the block's samples.

    MODIFIES: mean, variance, block.
    """
    if shape.shortcut > ZERO:
        for i in range(shape.width):
            for s in range(len(mean)):
                mean[s] += shape.shortcut * block.z[0, i, s]
                variance[s] += shape.shortcut * shape.shortcut * block.z[1, i, s]
    layers_forward_block(packed, shape.sizes, block)
    for s in range(len(mean)):
        mean[s] += block.a[0, 0, s]
        variance[s] += block.a[1, 0, s]
