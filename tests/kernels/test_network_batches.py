"""What the fused kernels promise about batches: neighbours, order, decay, guards, and numbers at the edge of what float32 holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbodl.kernels.arguments import Forgetting, NoForgetting
from pbodl.kernels.layers.embedding import initialise_rows
from pbodl.kernels.network import forget_dense
from tests.kernels.arrays import NEVER, START, as_arrays, as_features, copied, learn, predict, random_network, read
from tests.oracles import naive
from tests.oracles.naive import Feature

F32 = np.float32
OPS = ["concat", "sum", "fm", "ffm", "group-fm"]
GROUPS = (0, 1, 2, 1)


def some_samples(seed, n, rows=12):
    """Samples of none to seven features, each row at most once, in fields 0 to 3."""
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(rows, size, replace=False).tolist() for size in rng.integers(0, 8, n)]
    return [[Feature(row, rng.choice([1.0, 1.0, -0.5, 2.5]), row % 4) for row in sample] for sample in chosen]


def larger_network(seed, op, hidden, dim=5, linear=True, **options):
    return random_network(seed, op, hidden, linear, dim=dim, rows=12, group_of_field=GROUPS, **options)


def assert_unchanged(arrays, before, but_clocks=False):
    """Every weight as before, bit for bit; also the rows' clocks and counts, unless a sample went by that was refused."""
    parts = 4 if but_clocks else 6
    for old, new in zip(before.rows[:parts], arrays.rows[:parts], strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(before.dense.mean, arrays.dense.mean)
    np.testing.assert_array_equal(before.dense.variance, arrays.dense.variance)


@pytest.mark.parametrize("hidden", [(), (7,), (16, 5), (3, 2, 3, 2, 3)])
@pytest.mark.parametrize("op", OPS)
def test_a_prediction_does_not_depend_on_its_neighbours(op, hidden):
    arrays, samples = as_arrays(larger_network(1, op, hidden)), some_samples(2, 75)
    before = copied(arrays)
    together = np.array(predict(arrays, as_features(samples)))
    alone = np.array([predict(arrays, as_features([sample])) for sample in samples])[:, :, 0].T
    np.testing.assert_array_equal(together, alone)
    order = np.random.default_rng(3).permutation(75)
    np.testing.assert_array_equal(predict(arrays, as_features([samples[i] for i in order])), together[:, order])
    assert_unchanged(arrays, before)


@pytest.mark.parametrize("hidden", [(), (7,), (16, 5, 3)])
@pytest.mark.parametrize("op", OPS)
def test_learning_says_what_prediction_would_have_said(op, hidden):
    arrays, samples = as_arrays(larger_network(4, op, hidden)), some_samples(5, 20)
    for sample in samples:
        mean, variance = predict(arrays, as_features([sample]))
        comp = learn(arrays, [sample], [1])
        np.testing.assert_allclose(comp.mean, mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(comp.variance, variance, rtol=1e-5)


@pytest.mark.parametrize("op", OPS)
def test_a_batch_is_its_samples_one_by_one(op):
    made, samples = larger_network(6, op, (7, 3)), some_samples(7, 40)
    clicks, powers, clock = [n % 2 for n in range(40)], [1.0, 0.5] * 20, np.linspace(1.0, 3.0, 40)
    forgetting = Forgetting(np.float64(1.0), np.bool_(True))
    ref, comp = as_arrays(made), as_arrays(made)
    together = learn(ref, samples, clicks, powers, clock, forgetting, cap=1.0)
    for n in range(40):
        alone = learn(comp, samples[n : n + 1], clicks[n : n + 1], powers[n : n + 1], clock[n : n + 1], forgetting, cap=1.0)
        assert alone.mean[0] == together.mean[n] and alone.variance[0] == together.variance[n]
    assert_unchanged(comp, ref)


@pytest.mark.nojit
@pytest.mark.parametrize("op", ["fm", "ffm"])
def test_a_model_that_never_forgets_is_one_with_half_life_0(op):
    made, samples, clicks, clock = larger_network(17, op, (3,)), some_samples(18, 20), [0, 1] * 10, np.arange(20.0)
    ref, comp, never = as_arrays(made), as_arrays(made), NoForgetting(np.float64(0.0), np.bool_(True))
    first, second = learn(ref, samples, clicks, clock=clock), learn(comp, samples, clicks, clock=clock, forgetting=never)
    np.testing.assert_allclose(second.mean, first.mean, rtol=1e-5, atol=1e-5)
    for name in made.weights:
        assert read(comp, name) == pytest.approx(read(ref, name), rel=1e-5, abs=1e-6)
    np.testing.assert_array_equal(comp.rows.last_seen, ref.rows.last_seen)
    later = [predict(arrays, as_features(samples), 1e9, forgetting) for arrays, forgetting in ((ref, NEVER), (comp, never))]
    np.testing.assert_allclose(*later, rtol=1e-5, atol=1e-5)


@pytest.mark.nojit
@pytest.mark.parametrize("op", OPS)
def test_order_of_a_sample_s_features_does_not_matter(op):
    made, sample = larger_network(8, op, (3,)), [Feature(row, 1.0 + row, row % 4) for row in range(6)]
    ref, comp = as_arrays(made), as_arrays(made)
    first, second = learn(ref, [sample], [1]), learn(comp, [sample[::-1]], [1])
    np.testing.assert_allclose(second.mean, first.mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second.variance, first.variance, rtol=1e-5)
    for name in made.weights:
        assert read(comp, name) == pytest.approx(read(ref, name), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("mode", ["exact", "paper"])
@pytest.mark.parametrize("hidden", [(), (7, 3)])
def test_ffm_with_one_group_is_fm(hidden, mode):
    networks = [random_network(9, op, hidden, True, mode, 5, 12, (0, 0, 0, 0)) for op in ("fm", "ffm")]
    ref, comp = (as_arrays(made) for made in networks)
    samples = some_samples(10, 20)
    first, second = (learn(arrays, samples, [1, 0] * 10) for arrays in (ref, comp))
    np.testing.assert_allclose(second.mean, first.mean, rtol=1e-6)
    for name in networks[0].weights:
        assert read(comp, name) == pytest.approx(read(ref, name), rel=1e-6)


@pytest.mark.parametrize("op", OPS)
def test_an_unseen_feature_is_predicted_as_it_will_be_initialised(op):
    arrays, samples = as_arrays(larger_network(11, op, (7,))), some_samples(12, 10)
    features = as_features(samples)
    unseen = features._replace(rows=np.where(features.rows >= 8, -1, features.rows).astype(np.int32))
    comp = predict(arrays, unseen)
    with np.errstate(over="ignore"):
        initialise_rows(arrays.rows, np.arange(8, 12, dtype=np.uint64), np.arange(4, dtype=np.int32), 8, arrays.prior)
    np.testing.assert_allclose(comp, predict(arrays, features), rtol=1e-6, atol=1e-6)


def test_no_samples_at_all():
    arrays = as_arrays(larger_network(13, "fm", (3,)))
    before = copied(arrays)
    assert len(predict(arrays, as_features([]))[0]) == 0
    learn(arrays, [], [])
    assert_unchanged(arrays, before)


def decayed(gauss, kept, v_prior, also_mean, start=0.0):
    m, v = gauss
    precision = kept / v + (1 - kept) / v_prior
    return ((kept * m / v + (1 - kept) * start / v_prior) / precision if also_mean else m), 1 / precision


@pytest.mark.parametrize("also_mean", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_decay_comes_before_learning(op, also_mean):
    made, sample = larger_network(14, op, (3,), dim=2), [Feature(0, 1.0, 0), Feature(1, -0.5, 1), Feature(2, 1.0, 2)]
    arrays, half_life, now = as_arrays(made), 2.0, 5.0
    arrays.rows.count[:] = 1
    arrays.rows.last_seen[:] = np.linspace(1.0, 4.0, 12)
    arrays.dense.last_seen[:] = 4.0
    kept = 2.0 ** (-(now - arrays.rows.last_seen) / half_life)
    comp = learn(arrays, [sample], [1], clock=[now], forgetting=Forgetting(np.float64(half_life), np.bool_(also_mean)))
    for name in naive.involved(made, sample):
        share = 2.0**-0.5 if name[0] == "dense" else kept[name[1]]
        # Means of embeddings, which started from a draw, do not decay (erratum E7); those of dense weights go back to their start.
        home = name[0] == "dense" and name[3] < made.sizes[name[1]]
        made.weights[name] = decayed(made.weights[name], share, 0.5, home or (also_mean and name[0] == "linear"), START * home)
    np.testing.assert_allclose((comp.mean[0], comp.variance[0]), naive.forward(made, sample), rtol=1e-5, atol=1e-5)
    naive.learn(made, sample, 1)
    for name, ref in made.weights.items():
        assert read(arrays, name) == pytest.approx(ref, rel=1e-5, abs=1e-6)
    np.testing.assert_array_equal(arrays.rows.last_seen[:3], now)
    assert arrays.dense.last_seen[0] == now and (arrays.rows.last_seen[3:] < now).all()


@pytest.mark.parametrize("step", [1e-8, 1e-6, 3e-5, 1e-3])
def test_small_steps_of_decay_add_up(step):
    # A row seen all the time must forget as fast as one seen now and then: its variance must not shrink for ever (PBODL §4.4).
    made = random_network(15, "sum", (2,), True, variances=(0.001, 0.002))
    arrays, start, steps = as_arrays(made), 100.0, 20_000
    arrays.rows.count[:] = 1
    arrays.rows.last_seen[:] = arrays.dense.last_seen[:] = start
    clock, forgetting = start + step * np.arange(1, steps + 1), Forgetting(np.float64(1.0), np.bool_(False))
    part = copied(arrays)
    learn(part, [[Feature(0, 0.0, 0)]] * steps, [1] * steps, clock=clock, forgetting=forgetting)  # 0 x teaches x nothing
    for now in clock:
        forget_dense(arrays.dense, arrays.shape, now, forgetting)
    for name, (m, v) in made.weights.items():
        if name[:2] == ("embedding", 0) or name[0] == "dense":
            _, ref = decayed((m, v), 2.0 ** (-step * steps), 0.5, False)
            comp = read(arrays if name[0] == "dense" else part, name)[1]
            # The last step, of at most 1e-4 half-lives, may still be due.
            assert abs(comp - ref) <= 0.01 * (ref - v) + 1e-4 * ref


def test_what_was_never_learned_has_nothing_to_forget():
    # A clock of seconds since 1970 begins far from 0; with decay of the means, the initial draws must survive it (erratum E7).
    made = random_network(16, "fm", (3,))
    comp, ref = as_arrays(made), as_arrays(made)
    sample, forgetting = [Feature(0, 1.0, 0), Feature(1, 1.0, 1)], Forgetting(np.float64(86400.0), np.bool_(True))
    learn(comp, [sample], [1], clock=[1.7e9], forgetting=forgetting)
    learn(ref, [sample], [1])
    for name in made.weights:
        assert read(comp, name) == read(ref, name)
    assert comp.dense.last_seen[0] == 1.7e9 and (comp.rows.last_seen[:2] == 1.7e9).all()


def test_the_clock_of_a_row_without_decay():
    arrays = as_arrays(random_network(17, "sum", ()))
    learn(arrays, [[Feature(0, 1.0, 0)], [Feature(0, 1.0, 0), Feature(1, 1.0, 1)]], [1, 0], clock=[5.0, 7.5])
    np.testing.assert_array_equal(arrays.rows.last_seen, [7.5, 7.5, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(arrays.rows.count, [2, 1, 0, 0, 0, 0])


@pytest.mark.nojit
@pytest.mark.parametrize("hidden", [(), (3,), (3, 2)])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("x", [np.nan, np.inf, 1e30])
def test_numbers_that_are_none_change_nothing_and_are_counted(op, hidden, x):
    made = random_network(18, op, hidden)
    arrays = as_arrays(made)
    before = copied(arrays)
    out = learn(arrays, [[Feature(0, x, 0), Feature(2, 1.0, 1)]], [1])
    assert_unchanged(arrays, before, but_clocks=True)
    if np.isnan(x):  # every weight of the sample had its update refused
        dense = sum(name[0] == "dense" for name in made.weights)
        np.testing.assert_array_equal(out.rejected[:3], [2 * made.groups * made.dim, 2, dense])
    assert out.rejected.sum() > 0
    # The model goes on as if nothing had happened.
    sample = [[Feature(1, 1.0, 0), Feature(3, 1.0, 1)]]
    comp, ref = learn(arrays, sample, [0]), learn(before, sample, [0])
    assert comp.mean[0] == ref.mean[0] and np.isfinite(comp.mean[0]) and not comp.rejected.any()


@pytest.mark.parametrize("op", OPS)
def test_a_damaged_row_harms_nobody_else(op):
    made = random_network(19, op, (3, 2))
    arrays = as_arrays(made)
    arrays.rows.mean[0], arrays.rows.variance[1] = np.nan, np.inf
    before = copied(arrays)
    for row in (0, 1):
        out = learn(arrays, [[Feature(row, 1.0, 0), Feature(2, 1.0, 1)]], [1])
        assert out.rejected.sum() > 0
    assert_unchanged(arrays, before, but_clocks=True)


@settings(max_examples=40)
@given(st.sampled_from(OPS), st.integers(0, 3), st.integers(0, 10_000), st.floats(-12.0, 6.0), st.floats(-3.0, 3.0))
def test_learning_from_anything_leaves_gaussians(op, depth, seed, exponent, size):
    made = random_network(seed, op, (3, 2, 3)[:depth], variances=(10.0 ** (exponent - 1), 10.0**exponent * 0.99))
    arrays = as_arrays(made)
    arrays.rows.mean[:] *= F32(10.0**size)
    arrays.rows.linear_mean[:] *= F32(10.0 ** (2 * size))
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(6, 4, replace=False).tolist() for _ in range(30)]
    samples = [[Feature(row, rng.choice([1.0, -3.0]), row % 3) for row in sample] for sample in chosen]
    out = learn(arrays, samples, rng.integers(0, 2, 30), powers=rng.choice([1.0, 0.3, 20.0], 30))
    assert np.isfinite(out.mean).all() and (out.variance >= 0.0).all()
    for name in made.weights:
        mean, variance = read(arrays, name)
        assert np.isfinite(mean) and 0.0 < variance <= 1e6


@pytest.mark.parametrize("hidden", [(), (3,)])
def test_a_click_forty_deviations_out_is_learned(hidden):
    # The linear term holds that this ad is never clicked; it is, and the update still has the right direction and size.
    made = random_network(20, "fm", hidden, variances=(0.01, 0.02))
    made.weights["linear", 0] = (-45.0, 0.02)
    arrays, before = as_arrays(made), dict(made.weights)
    sample = [Feature(0, 1.0, 0), Feature(1, 1.0, 1)]
    out = learn(arrays, [sample], [1])
    assert out.mean[0] / np.sqrt(1 + out.variance[0]) < -40.0
    naive.learn(made, sample, 1)
    improper = [name for name, (_, variance) in made.weights.items() if variance <= 0.0]
    made.weights |= {name: before[name] for name in improper}
    assert out.rejected.sum() == len(improper) < 4
    for name, (mean, variance) in made.weights.items():
        comp = read(arrays, name)
        assert comp[0] == pytest.approx(mean, rel=1e-5, abs=1e-4 * abs(mean - before[name][0]) + 1e-7)
        # dm² - 2 dv cancels in float32 as the distance squared: 40² roundings.
        assert comp[1] == pytest.approx(variance, rel=1e-3)
