"""Many requests in one call, for simulations: each is scored, and drawn, by the kernels that answer a single request.

A request of eighty candidates takes a kernel some 50 µs, and Python around it twice that. Here Python is left once for all.
All features are categories and given by their keys, as a simulation has them; the answers are those of one request at a time.
"""

import numpy as np

from pbodl._jit import jit
from pbodl.serving.scoring.candidate_kernels import Samples, score_candidates
from pbodl.serving.scoring.drawn_candidates import draw_candidates
from pbodl.serving.scoring.pair_candidates import prepare_draw, score_pair_candidates


@jit
def part_of(samples, first, last):
    """Samples first to last."""
    return Samples(samples.rows[first:last], samples.keys[first:last], samples.values[first:last], samples.fields, samples.classes)


@jit
def score_layers(
    packed, shared, own, operation, own_operation, now, network, sums, places, indptr, layers, dense, seeds, scores, drawn
):  # fmt: skip
    """`score_candidates` for every request, and `draw_candidates`, if there are seeds. MODIFIES: scores, drawn."""
    shape, prior, forgetting, _ = network
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        common, found = part_of(shared, i, i + 1), np.empty((4, last - first))
        score_candidates(
            packed, common, operation, own_operation, now, prior, forgetting, sums, places[first:last], layers, shape, found
        )  # fmt: skip
        scores[:, first:last] = found
        if len(seeds) > 0:
            draw_candidates(
                packed, common, part_of(own, first, last), operation, now, network, dense, seeds[i], drawn[first:last]
            )  # fmt: skip


@jit
def score_pairs(
    packed, shared, own, linear, operation, now, network, sums, own_fields, places, indptr, dense, seeds, scores, drawn
):
    """`score_pair_candidates` for every request, with a draw, if there are seeds. MODIFIES: scores, drawn."""
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        common, found = part_of(shared, i, i + 1), np.empty((4, last - first))
        of_draw, seed = (last, seeds[i]) if len(seeds) > 0 else (first, np.uint64(0))
        draw = prepare_draw(
            packed, common, part_of(own, first, of_draw), linear[first:of_draw], operation, now, network, dense, own_fields, seed,
            drawn[first:of_draw],
        )  # fmt: skip
        score_pair_candidates(
            packed, common, operation, now, network, sums, own_fields, places[first:last], dense.mean[0, 0], dense.variance[0, 0],
            found, draw,
        )  # fmt: skip
        scores[:, first:last] = found
