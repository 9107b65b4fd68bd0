"""The fused network against the naive one: forward moments, and the ADF update of every kind of weight by numeric derivatives."""

from functools import partial

import numpy as np
import pytest
from scipy.special import log_ndtr

from pbodl.kernels.layers.probit import probit_backward
from tests.kernels.arrays import as_arrays, as_features, copied, learn, predict, random_network, read
from tests.oracles import monte_carlo, naive
from tests.oracles.naive import Feature
from tests.oracles.quadrature import posterior

# Two features in field 0 (one of them numeric), a field that is missing, numbers below zero, one feature alone, none at all.
SAMPLES = [
    [Feature(0, 1.0, 0), Feature(1, -0.5, 0), Feature(2, 1.0, 1), Feature(3, 2.0, 2)],
    [Feature(4, 1.0, 1), Feature(3, -1.5, 2)],
    [Feature(2, 0.75, 1)],
    [],
]
OPS = [("concat", "exact"), ("sum", "exact")] + [(op, mode) for op in ("fm", "ffm", "group-fm") for mode in ("exact", "paper")]
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


@pytest.mark.parametrize(("op", "mode", "hidden", "linear"), DEEP)
def test_every_weight_is_updated_by_the_derivatives_of_log_z(op, mode, hidden, linear):
    for number, sample in enumerate(SAMPLES):
        made = random_network(10 + number, op, hidden, linear, mode)
        arrays, before, click = as_arrays(made), dict(made.weights), (number + len(hidden)) % 2
        comp = learn(arrays, [sample], [click])
        ref = naive.forward(made, sample)
        naive.learn(made, sample, click)
        np.testing.assert_allclose((comp.mean[0], comp.variance[0]), ref, rtol=3e-6, atol=2e-6)
        assert not comp.rejected.any()
        assert_same_weights(made, arrays, before)


@pytest.mark.nojit
@pytest.mark.parametrize(("op", "mode"), OPS)
def test_a_small_network_as_plain_python(op, mode):
    made = random_network(2, op, (2,), True, mode)
    arrays, before = as_arrays(made), dict(made.weights)
    comp = learn(arrays, SAMPLES[:1], [1])
    ref = naive.forward(made, SAMPLES[0])
    naive.learn(made, SAMPLES[0], 1)
    np.testing.assert_allclose((comp.mean[0], comp.variance[0]), ref, rtol=3e-6, atol=2e-6)
    assert_same_weights(made, arrays, before)


@pytest.mark.parametrize(("op", "mode"), OPS)
def test_samples_are_learned_one_after_the_other(op, mode):
    made = random_network(3, op, (3,), True, mode)
    arrays = as_arrays(made)
    samples, clicks = SAMPLES * 2, [1, 0, 0, 1, 1, 1, 0, 0]
    comp = learn(arrays, samples, clicks)
    for number, (sample, click) in enumerate(zip(samples, clicks, strict=True)):
        ref = naive.forward(made, sample)
        np.testing.assert_allclose((comp.mean[number], comp.variance[number]), ref, rtol=2e-5, atol=2e-5)
        naive.learn(made, sample, click)
    assert_same_weights(made, arrays, relative=2e-5)
    # Five rows were seen, some twice per pass; the sixth never.
    np.testing.assert_array_equal(arrays.rows.count, [2, 2, 4, 4, 2, 0])


@pytest.mark.parametrize("hidden", [(4, 3, 2, 3), (2, 3, 4, 3, 2)])
@pytest.mark.parametrize("op", ["concat", "sum", "fm", "ffm"])
def test_deeper_still(op, hidden):
    made = random_network(4, op, hidden, dim=1)
    arrays, before = as_arrays(made), dict(made.weights)
    np.testing.assert_allclose(
        np.array(predict(arrays, as_features(SAMPLES))).T, [naive.forward(made, s) for s in SAMPLES], rtol=5e-6, atol=5e-6
    )
    learn(arrays, SAMPLES[:1], [0])
    naive.learn(made, SAMPLES[0], 0)
    assert_same_weights(made, arrays, before, relative=5e-5)


@pytest.mark.parametrize("op", ["concat", "sum", "fm", "ffm"])
def test_the_shortcut_beside_the_hidden_layers(op):
    made = random_network(21, op, (3, 2))
    made.straight = 0.5
    arrays, before = as_arrays(made), dict(made.weights)
    ref = naive.forward(made, SAMPLES[0])
    mean, variance = predict(arrays, as_features(SAMPLES[:1]))
    comp = learn(arrays, SAMPLES[:1], [1])
    np.testing.assert_allclose((mean[0], variance[0]), ref, rtol=3e-6, atol=2e-6)
    np.testing.assert_allclose((comp.mean[0], comp.variance[0]), ref, rtol=3e-6, atol=2e-6)
    naive.learn(made, SAMPLES[0], 1)
    assert_same_weights(made, arrays, before)


@pytest.mark.parametrize("hidden", [(3,), (3, 2), (2, 3, 2)])
@pytest.mark.parametrize("op", ["concat", "sum", "fm", "ffm", "group-fm"])
def test_hidden_units_count_from_their_centre(op, hidden):
    rng = np.random.default_rng(22)
    for number, sample in enumerate(SAMPLES):
        made = random_network(23 + number, op, hidden)
        made.straight = 0.5
        uncentred = naive.forward(made, sample)
        made.centre = {(1 + layer, i): float(np.float32(rng.normal())) for layer, n in enumerate(hidden) for i in range(n)}
        arrays, before = as_arrays(made), dict(made.weights)
        ref = naive.forward(made, sample)
        assert ref != pytest.approx(uncentred, rel=1e-3)
        mean, variance = predict(arrays, as_features([sample]))
        comp = learn(arrays, [sample], [number % 2])
        np.testing.assert_allclose((mean[0], variance[0]), ref, rtol=5e-6, atol=5e-6)
        np.testing.assert_allclose((comp.mean[0], comp.variance[0]), ref, rtol=5e-6, atol=5e-6)
        naive.learn(made, sample, number % 2)
        assert_same_weights(made, arrays, before)


def test_what_hidden_units_were_is_added_up():
    arrays = as_arrays(random_network(27, "fm", (3, 2)))
    before = copied(arrays)
    learn(arrays, SAMPLES[:1], [1])
    once = arrays.dense.total.copy()
    learn(before, SAMPLES[:1] * 2, [1, 1])
    units = before.dense.total[1]
    assert units[3] == 2.0 and once[1, 3] == 1.0 and (once[1, :3] > 0.0).all()
    learn(arrays, SAMPLES[:1], [1])
    np.testing.assert_array_equal(arrays.dense.total[1:, :3], before.dense.total[1:, :3])
    assert not before.dense.total[0, :3].any()  # z_0 has no centre


@pytest.mark.parametrize("dim", [1, 3, 16, 17])
@pytest.mark.parametrize("op", ["concat", "sum", "fm", "ffm"])
def test_any_dimension(op, dim):
    made = random_network(5, op, (), True, dim=dim)
    arrays, before = as_arrays(made), dict(made.weights)
    learn(arrays, SAMPLES[1:2], [1])
    naive.learn(made, SAMPLES[1], 1)
    assert_same_weights(made, arrays, before)


@pytest.mark.parametrize("op", ["concat", "sum", "fm", "ffm"])
@pytest.mark.parametrize("power", [0.25, 0.9])
def test_a_small_weight_of_a_sample_is_a_power_of_every_message(op, power):
    made = random_network(6, op, (3,), variances=(0.05, 0.3))
    arrays, before = as_arrays(made), dict(made.weights)
    learn(arrays, SAMPLES[:1], [1], powers=[power])
    naive.learn(made, SAMPLES[0], 1)
    for name in naive.involved(made, SAMPLES[0]):
        (m, v), (m_once, v_once) = before[name], made.weights[name]
        precision = 1 / v + power * (1 / v_once - 1 / v)
        precision_mean = m / v + power * (m_once / v_once - m / v)
        assert read(arrays, name) == pytest.approx((precision_mean / precision, 1 / precision), rel=2e-5, abs=1e-6)


@pytest.mark.parametrize("op", ["concat", "sum", "fm", "ffm"])
@pytest.mark.parametrize("power", [1.5, 3.0, 1000.0])
def test_a_large_weight_is_the_power_of_every_message_that_moves_z_no_further_than_it_says(op, power):
    made = random_network(6, op, (3,), variances=(0.05, 0.3))
    arrays, before, sample = as_arrays(made), dict(made.weights), SAMPLES[0]
    dm, dv = probit_backward(*naive.forward(made, sample), 1.0)
    by_slopes = naive.forward_by_slopes(made, sample)[1]
    ref = power / np.hypot(1.0, (power - 1.0) * by_slopes * (dm * dm - 2.0 * dv))
    learn(arrays, [sample], [1], powers=[power])
    naive.learn(made, sample, 1)
    shrunk = 0
    for name in naive.involved(made, sample):
        (m, v), (m_once, v_once), (m_new, v_new) = before[name], made.weights[name], read(arrays, name)
        if v_once < v * (1.0 - 1e-3):
            comp = (1 / v_new - 1 / v) / (1 / v_once - 1 / v)
            assert comp == pytest.approx(ref, rel=0.02 if op in ("concat", "sum") else 0.15), name
            assert m_new / v_new - m / v == pytest.approx(comp * (m_once / v_once - m / v), rel=1e-2, abs=1e-4)
            shrunk += 1
        elif v_once > v:  # by two messages at most
            assert v <= v_new <= v + 2.0 * (v_once - v) * (1.0 + 1e-5)
    assert shrunk > 5


@pytest.mark.parametrize("op", ["fm", "ffm"])
def test_the_cap_holds_for_every_weight(op):
    made = random_network(7, op, (3,))
    free, capped, cap = as_arrays(made), as_arrays(made), 0.05
    learn(free, SAMPLES[:1], [1])
    learn(capped, SAMPLES[:1], [1], cap=cap)
    limited = 0
    for name, (m, v) in made.weights.items():
        step = read(free, name)[0] - m
        ref = float(np.clip(step, -cap * v**0.5, cap * v**0.5))
        limited += ref != step
        assert read(capped, name)[0] - m == pytest.approx(ref, rel=1e-4, abs=1e-6)
        assert read(capped, name)[1] == pytest.approx(read(free, name)[1], rel=1e-6)
    assert 0 < limited < len(made.weights)


def test_linear_weights_get_their_true_marginal_posteriors():
    # Without hidden layers and products the network is linear, and ADF exact: against quadrature, weight by weight.
    made = random_network(8, "sum", (), True)
    arrays, sample = as_arrays(made), SAMPLES[0]
    values = {item.row: item.x for item in sample}
    mean, variance = naive.forward(made, sample)
    learn(arrays, [sample], [1])

    def log_likelihood(x, rest, noise, w):
        return log_ndtr((x * w + rest) / noise)

    for name in naive.involved(made, sample):
        m, v = made.weights[name]
        x = 1.0 if name[0] == "dense" else values[name[1]]
        rest_mean, noise = mean - x * m, np.sqrt(1 + variance - x**2 * v)
        _, *ref = posterior(m, v, partial(log_likelihood, x, rest_mean, noise))
        assert read(arrays, name) == pytest.approx(tuple(ref), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("op", ["concat", "sum", "fm", "ffm"])
def test_moments_of_a_shallow_network_by_drawing(op):
    # Without hidden layers all moments are exact, whatever the operation: draw every weight, and apply the definitions.
    made, sample = random_network(9, op, (), True), SAMPLES[0]
    names = naive.involved(made, sample)
    means, variances = np.array([made.weights[name] for name in names]).T
    drawn = dict(zip(names, monte_carlo.gaussians(means, variances, seed=1).T, strict=True))
    vectors = np.array(
        [[[i.x * drawn["embedding", i.row, g, k] for k in range(2)] for g in range(made.groups)] for i in sample]
    ).transpose(3, 0, 1, 2)
    groups = [made.group_of_field[item.field] for item in sample] if op == "ffm" else [0] * len(sample)
    z_0 = vectors.sum(axis=1)[:, 0] if op in ("concat", "sum") else monte_carlo.crossed_pair_sums(vectors, groups)
    z = z_0.sum(axis=1) + drawn["dense", 0, 0, 0] + sum(item.x * drawn["linear", item.row] for item in sample)
    comp = predict(as_arrays(made), as_features([sample]))
    assert (np.array(monte_carlo.deviations(z[:, None], *comp)) < monte_carlo.FAR).all()


def test_erratum_e7_zero_means_are_a_saddle():
    for op in ("fm", "ffm"):
        made = random_network(11, op, ())
        arrays = as_arrays(made)
        arrays.rows.mean[:] = 0.0
        learn(arrays, SAMPLES * 5, [1, 0, 1, 1] * 5)
        assert not arrays.rows.mean.any()  # nothing was learned about any pair
    made = random_network(12, "fm", (3,))
    for name in made.weights:
        made.weights[name] = (0.5 if name[0] == "embedding" else 0.0, 0.3)
    arrays = as_arrays(made)
    learn(arrays, SAMPLES * 5, [1, 0, 1, 1] * 5)
    for layer, part in ((0, arrays.dense.mean[0]), (1, arrays.dense.mean[1].T)):
        units = part[:3, :3] if layer == 0 else part[:3]
        np.testing.assert_array_equal(units, np.broadcast_to(units[0], units.shape))  # the units are still one


def test_erratum_e8_the_last_layer_is_linear():
    made = random_network(13, "sum", (3,), linear=False)
    made.weights["dense", 1, 0, 3] = (-50.0, 0.1)
    mean, _ = predict(as_arrays(made), as_features(SAMPLES))
    assert (mean < -10.0).all()
