"""The fused network against the naive one: forward moments, and the ADF update of every kind of weight by numeric derivatives."""

import numpy as np
import pytest

from tests.kernels.arrays import as_arrays, as_features, learn, predict, random_network, read
from tests.oracles import naive
from tests.oracles.naive import Feature

# Two features in field 0 (one of them numeric), a field that is missing, numbers below zero, one feature alone, none at all.
SAMPLES = [
    [Feature(0, 1.0, 0), Feature(1, -0.5, 0), Feature(2, 1.0, 1), Feature(3, 2.0, 2)],
    [Feature(4, 1.0, 1), Feature(3, -1.5, 2)],
    [Feature(2, 0.75, 1)],
    [],
]
OPS = [("concat", "exact"), ("sum", "exact"), ("fm", "exact"), ("fm", "paper"), ("ffm", "exact"), ("ffm", "paper")]
HIDDEN = [(), (3,), (3, 2), (2, 3, 2)]
DEEP = [(op, mode, hidden, linear) for op, mode in OPS for hidden in HIDDEN for linear in (True, False)]


def assert_same_weights(made, arrays, before=None, relative=2e-5):
    """Every weight as in the naive network; the steps, not only the sums, must agree."""
    for name, (mean, variance) in made.weights.items():
        comp = read(arrays, name)
        start = before[name] if before else (0.0, 0.0)
        for ref, got, old in zip((mean, variance), comp, start, strict=True):
            assert abs(got - ref) <= relative * abs(ref - old) + 4e-7 * abs(old) + 1e-9, (name, old, ref, got)


@pytest.mark.parametrize(("op", "mode", "hidden", "linear"), DEEP)
def test_moments_equal_the_naive_ones(op, mode, hidden, linear):
    made = random_network(1, op, hidden, linear, mode)
    arrays = as_arrays(made)
    ref = np.array([naive.forward(made, sample) for sample in SAMPLES])
    mean, variance = predict(arrays, as_features(SAMPLES))
    np.testing.assert_allclose(mean, ref[:, 0], rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(variance, ref[:, 1], rtol=3e-6)


@pytest.mark.parametrize("click", [0, 1])
@pytest.mark.parametrize(("op", "mode", "hidden", "linear"), DEEP)
def test_every_weight_is_updated_by_the_derivatives_of_log_z(op, mode, hidden, linear, click):
    for number, sample in enumerate(SAMPLES):
        made = random_network(10 + number, op, hidden, linear, mode)
        arrays, before = as_arrays(made), dict(made.weights)
        comp = learn(arrays, [sample], [click])
        ref = naive.forward(made, sample)
        naive.learn(made, sample, click)
        np.testing.assert_allclose((comp.mean[0], comp.variance[0]), ref, rtol=3e-6, atol=2e-6)
        assert not comp.rejected.any()
        assert_same_weights(made, arrays, before)
