"""The variance by slopes against numeric derivatives of the naive network."""

import numpy as np
import pytest
from scipy.special import log_ndtr

from tests.kernels.arrays import as_arrays, as_features, learn, predict, random_network, read
from tests.kernels.test_network import SAMPLES, assert_same_weights
from tests.oracles import naive

OPS = ["concat", "sum", "fm", "ffm", "group-fm"]


def network(seed, op, hidden, straight=0.0):
    made = random_network(seed, op, hidden, fm_variance="slopes")
    made.straight = straight
    rng = np.random.default_rng(seed)
    made.centre = {(1 + layer, i): float(np.float32(rng.normal())) for layer, n in enumerate(hidden) for i in range(n)}
    return made


@pytest.mark.parametrize("straight", [0.0, 0.5])
@pytest.mark.parametrize("hidden", [(), (3,), (3, 2), (2, 3, 2)])
@pytest.mark.parametrize("op", OPS)
def test_every_weight_counts_by_its_slope(op, hidden, straight):
    made = network(31, op, hidden, straight)
    ref = np.array([naive.forward_by_slopes(made, sample) for sample in SAMPLES])
    mean, variance = predict(as_arrays(made), as_features(SAMPLES))
    np.testing.assert_allclose(mean, ref[:, 0], rtol=3e-6, atol=3e-6)
    np.testing.assert_allclose(variance, ref[:, 1], rtol=2e-5)
    for number, sample in enumerate(SAMPLES):
        comp = learn(as_arrays(made), [sample], [1])
        np.testing.assert_allclose((comp.mean[0], comp.variance[0]), ref[number], rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("op", OPS)
def test_without_layers_every_weight_is_updated_by_the_derivatives_of_log_z(op):
    for number, sample in enumerate(SAMPLES):
        made = network(32 + number, op, ())
        arrays, before = as_arrays(made), dict(made.weights)
        learn(arrays, [sample], [number % 2])
        naive.learn(made, sample, number % 2)
        assert_same_weights(made, arrays, before)


@pytest.mark.parametrize("straight", [0.0, 0.5])
@pytest.mark.parametrize("op", ["concat", "sum"])
def test_embeddings_lose_variance_by_the_slope_of_all_ways(op, straight):
    """Where z_0 is a plain sum, ∂log Z/∂v of an embedding is its squared slope times that of z_L."""
    made, sample = network(36, op, (3, 2), straight), SAMPLES[1]
    arrays, before = as_arrays(made), dict(made.weights)
    mean, variance = naive.forward_by_slopes(made, sample)
    learn(arrays, [sample], [1])
    step, frozen = 1e-4 * max(variance, 1.0), naive.mean_with_frozen_units(made, sample, None)[1]
    by_variance = (log_ndtr(mean / np.sqrt(1 + variance + step)) - log_ndtr(mean / np.sqrt(1 + variance - step))) / (2 * step)
    for name in [("embedding", item.row, 0, k) for item in sample for k in range(made.dim)]:
        (m, v), (m_new, v_new) = before[name], read(arrays, name)
        ends = []
        for sign in (1, -1):
            made.weights[name] = (m + sign * 1e-4, v)
            ends.append(naive.mean_with_frozen_units(made, sample, frozen)[0])
        made.weights[name] = (m, v)
        slope = (ends[0] - ends[1]) / 2e-4
        assert v_new == pytest.approx(v - v**2 * (((m_new - m) / v) ** 2 - 2 * slope**2 * by_variance), rel=1e-4)


@pytest.mark.nojit
def test_a_small_network_as_plain_python():
    made = network(37, "ffm", (2,), 0.5)
    ref = naive.forward_by_slopes(made, SAMPLES[0])
    comp = learn(as_arrays(made), SAMPLES[:1], [1])
    np.testing.assert_allclose((comp.mean[0], comp.variance[0]), ref, rtol=2e-5, atol=3e-6)
