"""The network at points against its definition, feature by feature and unit by unit."""

import itertools

import numpy as np
import pytest

from pbodl.kernels.arguments import Dense, Shape
from pbodl.kernels.layers.dense import BLOCK
from pbodl.kernels.layers.interaction import CONCAT, EXACT, FFM, FM, GROUP_FM, SUM
from pbodl.kernels.layers.points import add_layers, add_point, class_of_fields, make_point_block, make_point_sums, points_forward
from pbodl.kernels.sample_blocks import pack_layers

F32 = np.float32
GROUPS = np.array([0, 1, 0, 2], np.int32)
FIELDS = [0, 1, 1, 2, 3]
DIM = 3


def shape_of(op, sizes=(0, 1), shortcut=0.0):
    return Shape(
        np.int64(op), np.int64(EXACT), np.array(sizes, np.int64), np.int64(max(sizes[0], DIM)), F32(shortcut), GROUPS, F32(1.0)
    )


def defined(op, x):
    """z_0 of features x (features, G, K), by definition."""
    if op == CONCAT:
        return np.concatenate([sum((x[j, 0] for j in range(5) if FIELDS[j] == f), np.zeros(DIM)) for f in range(4)])
    if op == SUM:
        return x[:, 0].sum(axis=0)
    group, z = GROUPS[FIELDS], np.zeros(DIM)
    for i, j in itertools.combinations(range(5), 2):
        if op == FM or (op == GROUP_FM and group[i] != group[j]):
            z += x[i, 0] * x[j, 0]
        elif op == FFM:
            z += x[i, group[j]] * x[j, group[i]]
    return z


@pytest.mark.nojit
@pytest.mark.parametrize("op", [CONCAT, SUM, FM, FFM, GROUP_FM])
def test_operations_are_what_they_are_defined_to_be(op):
    vectors = 3 if op == FFM else 1
    x = np.random.default_rng(op).normal(size=(5, vectors, DIM)).astype(F32)
    shape = shape_of(op)
    total, squares = make_point_sums(shape, vectors * DIM)
    classes, z = class_of_fields(op, GROUPS), np.zeros((4 * DIM, BLOCK), F32)
    for feature, field in zip(x, FIELDS, strict=True):
        add_point(op, classes[field], feature.reshape(-1), total, squares)
    points_forward(op, total, squares, 7, z)
    ref = defined(op, x.astype(np.float64))
    np.testing.assert_allclose(z[: len(ref), 7], ref, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("sizes", "shortcut"), [((DIM, 5, 4, 1), 0.0), ((DIM, 3, 1), 0.5), ((0, 1), 1.0)])
def test_layers_are_matrix_products_and_rectifiers(sizes, shortcut):
    rng, layers, widest = np.random.default_rng(3), len(sizes) - 1, max(sizes) + 1
    weights = rng.normal(size=(layers, max(sizes[1:]), widest)).astype(F32)
    centre = rng.normal(size=(layers, widest)).astype(F32)
    dense = Dense(weights, np.ones_like(weights), np.zeros(1), np.ones_like(weights), centre, np.zeros(centre.shape), weights)
    shape = shape_of(SUM, sizes, shortcut)
    (z_0, a), z = make_point_block(shape), np.full(6, 0.25)
    inputs = rng.normal(size=(DIM, 6)).astype(F32)
    z_0[:DIM, :6] = inputs
    ref = 0.25 + shortcut * inputs.sum(axis=0)
    x = inputs[: sizes[0]].astype(np.float64)
    for layer, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        x = x - (centre[layer, :n_in, None] if layer else 0.0)
        x = (weights[layer, :n_out, :n_in] @ x + weights[layer, :n_out, n_in, None]) / np.sqrt(n_in + 1)
        x = np.maximum(x, 0.0) if layer < layers - 1 else x
    add_layers(pack_layers(dense, shape.sizes), shape, z_0, a, z)
    np.testing.assert_allclose(z, ref + x[0], rtol=1e-4, atol=1e-5)
