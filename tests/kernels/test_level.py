"""The level, for which the linear term answers: its running mean, and what the network is given instead of it."""

import numpy as np
import pytest

from pbodl.kernels.probit import probit_backward
from tests.kernels.arrays import as_arrays, as_features, copied, learn, predict, random_network
from tests.oracles.naive import Feature

SAMPLES = [[Feature(0, 1.0, 0), Feature(2, 0.5, 1)], [Feature(1, 1.0, 0), Feature(3, 1.0, 2)], [Feature(0, 1.0, 0)]] * 3
CLICKS = [1, 1, 0, 1, 1, 1, 0, 1, 1]


def gradients(learned, clicks):
    return [probit_backward(m, v, 1.0 if c else -1.0) for m, v, c in zip(learned.mean, learned.variance, clicks, strict=True)]


@pytest.mark.nojit
def test_it_is_the_running_mean_of_the_gradient():
    arrays = as_arrays(random_network(1, "fm", (3,)), level_share=0.2)
    powers = [1.0, 0.5, 1.0, 1.0, 0.0, 1.0, 2.0, 1.0, 9.0]
    learned = learn(arrays, SAMPLES, CLICKS, powers)
    level = 0.0
    for (dm, _), power in zip(gradients(learned, CLICKS), powers, strict=True):
        level += min(0.2 * power, 1.0) * (dm - level)
    assert arrays.dense.level[0] == pytest.approx(level, rel=1e-5)


@pytest.mark.parametrize(("level", "given"), [(0.015, 0.015), (-0.3, -0.02), (0.3, 0.02)])
def test_the_linear_term_gets_the_whole_gradient_and_the_network_the_rest_at_the_same_precision(level, given):
    # Without hidden layers the network is a sum of embeddings, and every step can be written down.
    arrays = as_arrays(random_network(2, "sum", (), dim=1), level_share=0.2)
    arrays.dense.level[0] = level
    before = copied(arrays)
    learned = learn(arrays, SAMPLES[:1], [1])
    ((dm, dv),) = gradients(learned, [1])
    h = dm * dm - 2.0 * dv
    for row, x in ((0, 1.0), (2, 0.5)):
        for name, pull in (("linear_mean", dm), ("mean", dm - given)):
            m, v = (getattr(before.rows, which)[row, 0] for which in (name, name.replace("mean", "variance")))
            assert getattr(arrays.rows, name)[row, 0] == pytest.approx(m + v * x * pull, rel=1e-5)
            assert getattr(arrays.rows, name.replace("mean", "variance"))[row, 0] == pytest.approx(v - v * v * x * x * h, rel=1e-5)


@pytest.mark.parametrize("op", ["concat", "sum", "fm", "ffm", "group-fm"])
def test_with_no_share_the_level_is_neither_used_nor_changed(op):
    ref, comp = (as_arrays(random_network(3, op, (3,))) for _ in range(2))
    comp.dense.level[0] = 5.0
    learn(ref, SAMPLES, CLICKS)
    learn(comp, SAMPLES, CLICKS)
    assert comp.dense.level[0] == 5.0
    np.testing.assert_array_equal(comp.rows.mean, ref.rows.mean)
    np.testing.assert_array_equal(predict(comp, as_features(SAMPLES)), predict(ref, as_features(SAMPLES)))


def test_a_gradient_that_is_no_number_leaves_it_alone():
    arrays = as_arrays(random_network(4, "sum", (), dim=1), level_share=0.2)
    arrays.dense.level[0] = 0.25
    arrays.rows.linear_mean[0, 0] = np.nan
    learn(arrays, SAMPLES[:1], [1])
    assert arrays.dense.level[0] == 0.25
