"""Scores a request under one draw of the weights: what the candidates share, a user or an advertiser, moves them together.

Noise and meaning are those of `kernels.draws`: the draw with a seed is line 0 of `model.sample` with it. Draws of `PairFM` are
linearised, and are made in `pair_candidates`.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit, kernel, prefetch
from pbodl._registers import all_eight, eight, plus_product, product, put_eight, roots
from pbodl.kernels.arguments import USUAL
from pbodl.kernels.draws import fill_noise, pack_drawn, stir
from pbodl.kernels.layers.dense import BLOCK
from pbodl.kernels.layers.interaction import FFM, FM, GROUP_FM
from pbodl.kernels.layers.points import add_layers, make_point_block, points_forward
from pbodl.kernels.normal import HALF, ONE, ZERO
from pbodl.serving.scoring.candidate_kernels import REGISTER, work_out_feature

SOON = 2  # candidates to prefetch
LINE = 16  # floats in a cache line
TWO, EIGHT = np.uint64(2), np.uint64(REGISTER)


class DrawScratch(NamedTuple):
    """Room for the features of one sample under a draw."""

    row: np.ndarray  # float32 (slots, row): packed, as it is now
    stirred: np.ndarray  # uint64
    noise: np.ndarray  # float32 (slots, dimensions)


@jit
def make_draw_scratch(slots, packed, operation, seed):
    """Scratch for features of so many slots, under the draw with this seed."""
    stirred, noise = stir(seed, operation.vectors * operation.dim + 1)
    # What is read beyond the last dimension, to fill a register, must be finite.
    rooms = np.zeros((slots, len(noise) + REGISTER), np.float32)
    return DrawScratch(np.empty((slots, packed.weights.shape[1]), np.float32), stirred, rooms)


@inlined
def noise_of_sample(samples, s, d):
    """The noise of all features of a sample. MODIFIES: d.noise."""
    # All of it before any is used: reading a register of numbers that were just written one by one would wait for memory.
    for j in range(np.uint64(d.noise.shape[0])):
        fill_noise(samples.keys[s, j], d.stirred, d.noise[j])


@inlined
def prefetch_soon(flat, width, samples, s):
    """Prefetch the packed rows of a sample that comes soon; flat is all rows, of this width, in one line."""
    soon = min(s + SOON, samples.rows.shape[0] - 1)
    for j in range(samples.rows.shape[1]):
        begin = np.uint32(max(samples.rows[soon, j], 0)) * np.uint32(width)
        for i in range(0, width, LINE):
            prefetch(flat, begin + np.uint32(i))


@inlined
def add_drawn(x, r, value, c, op, dim, noise, j, total, squares):
    """Add the drawn vectors of row r of packed rows x to class c, with the noise in line j; returns its linear term. MODIFIES:
    total, squares."""
    vectors, dim = np.uint64(total.shape[1]), np.uint64(dim)
    width, begin, more, values = TWO * vectors * dim, r * np.uint64(x.shape[1]), j * np.uint64(noise.shape[1]), all_eight(value)
    for g in range(vectors):
        squared, row, to = op == FM or (op == FFM and g == c), begin + TWO * g * dim, (c * vectors + g) * dim
        if dim == EIGHT * (dim // EIGHT):
            for i in range(dim // EIGHT):
                k = i * EIGHT
                point = plus_product(eight(x, row + k), roots(eight(x, row + dim + k)), eight(noise, more + g * dim + k))
                put_eight(total, to + k, plus_product(eight(total, to + k), values, point))
                if squared:
                    point = product(values, point)
                    put_eight(squares, c * dim + k, plus_product(eight(squares, c * dim + k), point, point))
        else:
            for d in range(dim):
                one = value * (x[r, TWO * g * dim + d] + np.sqrt(x[r, TWO * g * dim + dim + d]) * noise[j, g * dim + d])
                total[c, g, d] += one
                if squared:
                    squares[c, d] += one * one
    return value * (x[r, width] + np.sqrt(x[r, width + np.uint64(1)]) * noise[j, vectors * dim]) if x.shape[1] > width else ZERO


@inlined
def add_sample(packed, samples, s, operation, dim, now, prior, forgetting, d, total, squares):
    """Add all drawn features of a sample; returns their linear terms. MODIFIES: total, squares; d: scratch."""
    linear = ZERO
    noise_of_sample(samples, s, d)
    for j in range(np.uint64(samples.rows.shape[1])):
        r, c, value = samples.rows[s, j], np.uint64(samples.classes[j]), samples.values[s, j]
        if r >= 0 and forgetting.half_life == 0.0:
            linear += add_drawn(packed.weights, np.uint64(r), value, c, operation.op, dim, d.noise, j, total, squares)
        else:
            work_out_feature(packed, samples, s, j, operation, now, prior, forgetting, d.row)
            linear += add_drawn(d.row, j, value, c, operation.op, dim, d.noise, j, total, squares)
    return linear


@inlined
def products_forward(op, total, squares, dim, s, z):
    """`points_forward` of an FM with vectors of whole registers. MODIFIES: z; and squares[0], which is scratch then."""
    classes, dim, halves, nothing = np.uint64(total.shape[0]), np.uint64(dim), all_eight(HALF), all_eight(ZERO)
    for i in range(dim // EIGHT):
        k, whole, square = i * EIGHT, nothing, nothing
        for c in range(classes):
            of_c = eight(total, (c * classes + c) * dim + k) if op == FFM else eight(total, c * dim + k)
            if op == FFM:
                whole = plus_product(whole, product(halves, of_c), of_c)
                square = plus_product(square, halves, eight(squares, c * dim + k))
                for g in range(c + np.uint64(1), classes):
                    whole = plus_product(
                        whole, eight(total, (c * classes + g) * dim + k), eight(total, (g * classes + c) * dim + k)
                    )  # fmt: skip
            else:
                whole = plus_product(whole, all_eight(ONE), of_c)
                square = plus_product(square, of_c, of_c) if op == GROUP_FM else eight(squares, k)
        if op != FFM:
            whole, square = product(product(halves, whole), whole), product(halves, square)
        put_eight(squares, k, plus_product(whole, all_eight(-ONE), square))
        for at in range(EIGHT):
            z[k + at, s] = squares[0, k + at]


@inlined
def draw_block(packed, own, begin, n, operation, dim, now, prior, forgetting, totals, squares, d, z_0, z):
    """The linear terms and z_0 of n candidates; totals[0] and squares[0] are of the shared features. MODIFIES: all but these."""
    total, square, flat = totals[1], squares[1], packed.weights.reshape(-1)
    for s in range(n):
        prefetch_soon(flat, packed.weights.shape[1], own, begin + s)
        for c in range(total.shape[0]):
            for g in range(total.shape[1]):
                for k in range(dim):
                    total[c, g, k] = totals[0, c, g, k]
            for k in range(dim):
                square[c, k] = squares[0, c, k]
        z[begin + s] += add_sample(packed, own, begin + s, operation, dim, now, prior, forgetting, d, total, square)
        if dim % REGISTER == 0 and operation.op in (FM, FFM, GROUP_FM):
            products_forward(operation.op, total, square, dim, s, z_0)
        else:
            points_forward(operation.op, total, square, s, z_0)


@kernel
def draw_usual_block(packed, own, begin, n, operation, now, prior, forgetting, totals, squares, d, z_0, z):
    """`draw_block`, with a branch for the usual dimension, so that the compiler sees the constant."""
    if operation.dim == USUAL:
        draw_block(packed, own, begin, n, operation, USUAL, now, prior, forgetting, totals, squares, d, z_0, z)
    else:
        draw_block(packed, own, begin, n, operation, operation.dim, now, prior, forgetting, totals, squares, d, z_0, z)


@jit
def linear_deviations(packed, samples, operation, now, prior, forgetting, linear):
    """The standard deviation of every feature's linear weight. MODIFIES: linear (samples, slots)."""
    row, at = np.empty((samples.rows.shape[1], packed.weights.shape[1]), np.float32), 2 * operation.vectors * operation.dim + 1
    for s in range(samples.rows.shape[0]):
        for j in range(samples.rows.shape[1]):
            work_out_feature(packed, samples, s, j, operation, now, prior, forgetting, row)
            linear[s, j] = np.sqrt(row[j, at]) if row.shape[1] > at else ZERO


@jit
def draw_candidates(packed, shared, own, operation, now, network, dense, seed, z):
    """z_L of every candidate under the draw with this seed. MODIFIES: z (candidates,)."""
    shape, prior, forgetting, _ = network
    dim = operation.dim
    totals = np.zeros((2, operation.classes, operation.vectors, dim), np.float32)
    squares = np.zeros((2, operation.classes, dim), np.float32)
    d = make_draw_scratch(shared.rows.shape[1], packed, operation, seed)
    z[:] = add_sample(packed, shared, 0, operation, dim, now, prior, forgetting, d, totals[0], squares[0])
    layers, (z_0, a) = pack_drawn(dense, shape.sizes, seed), make_point_block(shape)
    d = make_draw_scratch(own.rows.shape[1], packed, operation, seed)
    for begin in range(0, len(z), BLOCK):
        n = min(BLOCK, len(z) - begin)
        draw_usual_block(packed, own, begin, n, operation, now, prior, forgetting, totals, squares, d, z_0, z)
        add_layers(layers, shape, z_0, a, z[begin : begin + n])
