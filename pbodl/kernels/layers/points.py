"""The network at points: what the operations and the layers make of drawn weights, which are numbers and not Gaussians.

Letters: features add up by class, a class being a field for concat, a group for FFM and FM between groups, and all
features for the others. S is the sum of the vectors of a class, Q that of their squares.
    concat, sum          z_0 = S
    FM                   z_0 = ½ (S² - Q)
    FM between groups    z_0 = ½ ((Σ_c S_c)² - Σ_c S_c²)
    FFM                  z_0 = Σ_c ½ (S_c[c]² - Q_c) + Σ_{c<g} S_c[g] S_g[c]
Sums of two sets of features simply add up. Layers are as in `sample_blocks`, BLOCK samples side by side, without variances.
"""

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl.kernels.arguments import largest
from pbodl.kernels.layers.dense import BLOCK, add_product
from pbodl.kernels.layers.interaction import CONCAT, FFM, FM, GROUP_FM, SUM
from pbodl.kernels.normal import HALF, ZERO
from pbodl.kernels.sample_blocks import centre_at, layer_at


@jit
def class_of_fields(op, group_of_field):
    """The class of every field."""
    if op in (FFM, GROUP_FM):
        return group_of_field.astype(np.int64)
    fields = np.arange(len(group_of_field))
    return fields if op == CONCAT else 0 * fields


@jit
def make_point_sums(shape, depth):
    """Room for S, (classes, G, K), and Q, (classes, K), of one sample, each feature having `depth` = G K numbers."""
    groups = largest(shape.group_of_field) + 1
    classes = largest(class_of_fields(shape.op, shape.group_of_field)) + 1
    vectors = groups if shape.op == FFM else 1
    return np.zeros((classes, vectors, depth // vectors), np.float32), np.zeros((classes, depth // vectors), np.float32)


@inlined
def add_point(op, c, x, total, squares):
    """Add a feature of class c with the vectors x, (G K,). MODIFIES: total, squares."""
    dim = total.shape[2]
    for g in range(total.shape[1]):
        for k in range(dim):
            total[c, g, k] += x[g * dim + k]
    if op in (FM, FFM):
        own = c if op == FFM else 0
        for k in range(dim):
            squares[c, k] += x[own * dim + k] * x[own * dim + k]


@inlined
def points_forward(op, total, squares, s, z):
    """z_0 of sample s of a block. MODIFIES: z (units, BLOCK)."""
    classes, dim = total.shape[0], total.shape[2]
    for k in range(dim):
        if op == CONCAT:
            for c in range(classes):
                z[c * dim + k, s] = total[c, 0, k]
        elif op == SUM:
            z[k, s] = total[0, 0, k]
        elif op == FFM:
            sum_k = ZERO
            for c in range(classes):
                sum_k += HALF * (total[c, c, k] * total[c, c, k] - squares[c, k])
                for g in range(c + 1, classes):
                    sum_k += total[c, g, k] * total[g, c, k]
            z[k, s] = sum_k
        else:
            sum_k, square = ZERO, squares[0, k] if op == FM else ZERO
            for c in range(classes):
                sum_k += total[c, 0, k]
                if op == GROUP_FM:
                    square += total[c, 0, k] * total[c, 0, k]
            z[k, s] = HALF * (sum_k * sum_k - square)


@jit
def make_point_block(shape):
    """Room for z_0, (units, BLOCK), and for the activations, (pairs, 2 BLOCK), of BLOCK samples."""
    units = largest(shape.sizes)
    return (
        np.zeros((max(shape.width, units), BLOCK), np.float32), np.zeros(((units + 1) // 2, 2 * BLOCK), np.float32),
    )  # fmt: skip


@kernel
def points_through(means, z, n_in, a):
    """The activations of a layer of BLOCK samples. MODIFIES: a."""
    for p in range(len(means)):
        for s in range(BLOCK):
            a[p, s], a[p, BLOCK + s] = means[p, n_in, 0], means[p, n_in, 1]
    add_product(means, z, n_in, a)


@jit
def add_layers(packed, shape, z_0, a, z):
    """Add the outputs of the layers and of the shortcut, from z_0, to the linear terms. MODIFIES: z; z_0 and a: scratch."""
    if shape.shortcut > ZERO:
        for i in range(shape.width):
            for s in range(len(z)):
                z[s] += shape.shortcut * z_0[i, s]
    sizes, top = shape.sizes, len(shape.sizes) - 2
    inputs, outputs = z_0.reshape(-1), a.reshape(-1)
    for l in range(top + 1):  # noqa: E741
        means, _ = layer_at(packed, sizes, l)
        points_through(means, z_0, sizes[l], a)
        if l < top:
            centre = centre_at(packed, sizes, l + 1)
            for i in range(len(centre)):
                inputs[i] = max(outputs[i], ZERO) - centre[i]
    for s in range(len(z)):
        z[s] += a[0, s]
