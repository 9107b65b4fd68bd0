"""Copies of weights, and sums of running moments."""

import numpy as np

from pbodl.data.running_scale import RunningScale
from pbodl.parallel.weights import moments_of, put, sums_of, take
from tests.click_log import RICH
from tests.parallel.logs import differing, fm, plain_log, rich_log


def test_taken_and_put_is_the_same_model():
    ref, comp = fm(), fm()
    ref.learn(plain_log(300))
    comp.learn(plain_log(300, seed=0))
    every = np.arange(ref.table.size, dtype=np.int32)
    comp.table.column("mean")[:] = 7.0
    comp.dense.mean[:] = 7.0
    put(take(ref, every), comp, every)
    comp.dense.mean[comp.dense.mean == 7.0] = 0.0  # the padding, which no weight stands in
    assert differing(ref, comp) == []


def test_what_is_taken_is_a_copy():
    model = fm()
    model.learn(plain_log(300))
    weights = take(model, np.arange(5, dtype=np.int32))
    before = [array.copy() for array in weights]
    model.learn(plain_log(300, seed=1))
    assert all(np.array_equal(a, b) for a, b in zip(weights, before, strict=True))


def test_without_the_shared_part_there_are_no_dense_weights():
    model = fm()
    model.learn(plain_log(50))
    assert len(take(model, np.arange(5, dtype=np.int32), shared=False).dense_mean) == 0


def test_moments_of_two_halves_add_up():
    batch = rich_log(400)
    whole, halves = RunningScale(RICH), [RunningScale(RICH), RunningScale(RICH)]
    whole.learn(batch)
    for n, scale in enumerate(halves):
        scale.learn(batch.rows(200 * n, 200 * n + 200))
    comp = moments_of(sums_of(halves[0].moments) + sums_of(halves[1].moments) - sums_of(RunningScale(RICH).moments))
    np.testing.assert_allclose(comp, whole.moments, rtol=1e-9, atol=1e-9)
