"""Initial means as a pure function; gathering, previewing and forgetting of rows."""

import numpy as np
import pytest

from pbodl.kernels.arguments import Features, Forgetting, RowPrior, Rows
from pbodl.kernels.layers.embedding import (
    embedding_forward,
    embedding_preview,
    forget_rows,
    initialise_rows,
    kept_share,
    standard_draw,
    standard_draws,
)

F32, U64 = np.float32, np.uint64
MASK = 2**64 - 1

# (seed, key) -> the first three draws. Models of different machines and releases rely on them: they never change.
GOLDEN = {
    (0, 0): [1.0707973241806030, 2.3903706073760986, 0.07955128699541092],
    (0, 1): [-0.19393599033355713, 0.020746763795614243, -0.7355189919471741],
    (1, 0): [0.6045368909835815, 1.9818313121795654, 0.5539517998695374],
    (42, 0x123456789ABCDEF): [0.66384357213974, 1.5312696695327759, -2.5575077533721924],
    (2**63 - 1, 2**64 - 1): [-2.1618919372558594, 0.105980284512043, 1.1272231340408325],
}


def draws(seed, key, n):
    with np.errstate(over="ignore"):
        return standard_draws(U64(seed), U64(key), n)


def naive_draw(seed, key, k):
    """The rule in unbounded integers: mix seed and dimension, mix in the key, add up the four quarters."""

    def mix(h):
        h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        h = (h ^ (h >> 27)) * 0x94D049BB133111EB & MASK
        return h ^ (h >> 31)

    h = mix(key ^ mix((seed + (k + 1) * 0x9E3779B97F4A7C15) & MASK))
    quarters = [(h >> shift) & 0xFFFF for shift in (0, 16, 32, 48)]
    return (sum(quarters) - 4 * 32767.5) / (4 * (65536**2 - 1) / 12) ** 0.5


@pytest.mark.nojit
def test_draws_are_what_they_always_were():
    for (seed, key), ref in GOLDEN.items():
        np.testing.assert_array_equal(draws(seed, key, 3), np.array(ref, F32))


@pytest.mark.nojit
def test_draws_follow_their_rule():
    for seed, key in ((0, 0), (1, 2**64 - 1), (2**63 - 1, 0x123456789ABCDEF), (7, 7)):
        ref = [naive_draw(seed, key, k) for k in range(20)]
        np.testing.assert_array_equal(draws(seed, key, 20), np.array(ref, F32))


def test_draws_are_standard_and_uncorrelated():
    sample = np.array([draws(3, key, 16) for key in range(20_000)], np.float64)
    n = sample.size
    assert abs(sample.mean()) < 5 / np.sqrt(n)
    assert abs(sample.var() - 1.0) < 5 * np.sqrt(1.7 / n)  # the sum of four uniforms has kurtosis 2.7
    assert np.abs(sample).max() <= 4 * 32767.5 / 37837.2
    between = np.corrcoef(sample.T) - np.eye(16)
    assert np.abs(between).max() < 5.5 / np.sqrt(len(sample))
    # Neighbouring keys, and neighbouring seeds.
    assert abs((sample[1:] * sample[:-1]).mean()) < 5 / np.sqrt(n)
    other = np.array([draws(4, key, 16) for key in range(20_000)], np.float64)
    assert abs((sample * other).mean()) < 5 / np.sqrt(n)


def some_rows(seed, n, depth, linear=True):
    rng = np.random.default_rng(seed)
    m = n if linear else 0
    return Rows(
        rng.normal(size=(n, depth)).astype(F32), rng.uniform(0.01, 0.4, (n, depth)).astype(F32),
        rng.normal(size=(m, 1)).astype(F32), rng.uniform(0.01, 0.4, (m, 1)).astype(F32),
        rng.uniform(1.0, 5.0, n), np.ones(n, np.uint32),
    )  # fmt: skip


PRIOR = RowPrior(np.array([[0.5, 0.4, 0.3, 0.2], [0.25, 0.2, 0.15, 0.1]], F32), np.array([0.75, 0.125], F32), F32(0.05), U64(11))
# Sample 0 is another's; sample 1 has a category, a number, and a feature that was never seen.
FEATURES = Features(
    np.array([0, 1, 4], np.int64), np.array([2, 0, 1, -1], np.int32), np.array([12, 10, 11, 99], np.uint64),
    np.array([1.0, 1.0, -2.5, 3.0], F32), np.array([0, 0, 1, 1], np.int32),
)  # fmt: skip
SEEN = FEATURES._replace(indptr=np.array([0, 1, 3], np.int64))


@pytest.mark.nojit
@pytest.mark.parametrize("linear", [True, False])
def test_new_rows_are_their_prior(linear):
    rows = some_rows(1, 5, 3, linear)
    old = [array.copy() for array in rows]
    keys, fields = np.array([10, 99], np.uint64), np.array([0, 1], np.int32)
    with np.errstate(over="ignore"):
        initialise_rows(rows, keys, fields, 3, PRIOR)
    for n, (key, field) in enumerate(zip(keys, fields, strict=True)):
        np.testing.assert_allclose(rows.mean[3 + n], 0.05 * draws(11, key, 3), rtol=1e-6)
        assert (rows.variance[3 + n] == PRIOR.variance[field, :3]).all() and rows.count[3 + n] == 0
        if linear:
            assert rows.linear_mean[3 + n] == 0.0 and rows.linear_variance[3 + n] == PRIOR.linear_variance[field]
    for before, after in zip(old, rows, strict=True):
        np.testing.assert_array_equal(before[:3], after[:3])


@pytest.mark.nojit
def test_a_value_multiplies_the_mean_and_its_square_the_variance():
    rows = some_rows(2, 3, 4)
    m_x, v_x = np.zeros((2, 4), F32), np.zeros((2, 4), F32)
    m_linear, v_linear = embedding_forward(rows, SEEN, 1, m_x, v_x)
    x = np.array([[1.0], [-2.5]])
    np.testing.assert_allclose(m_x, x * rows.mean[:2], rtol=1e-6)
    np.testing.assert_allclose(v_x, x**2 * rows.variance[:2], rtol=1e-6)
    assert m_linear == pytest.approx(float((x * rows.linear_mean[:2]).sum()), rel=1e-6)
    assert v_linear == pytest.approx(float((x**2 * rows.linear_variance[:2]).sum()), rel=1e-6)


@pytest.mark.nojit
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("half_life", [0.0, 2.0])
@pytest.mark.parametrize("also_mean", [True, False])
def test_a_preview_is_what_learning_would_see(half_life, also_mean, linear):
    rows, now = some_rows(3, 3, 4, linear), 6.0
    forgetting = Forgetting(np.float64(half_life), np.bool_(also_mean))
    before = [array.copy() for array in rows]
    m_x, v_x = np.zeros((3, 4), F32), np.zeros((3, 4), F32)
    with np.errstate(over="ignore"):
        comp_linear = embedding_preview(rows, FEATURES, 1, now, PRIOR, forgetting, m_x, v_x)
    for old, new in zip(before, rows, strict=True):
        np.testing.assert_array_equal(old, new)

    kept = 2.0 ** (-(now - rows.last_seen[:2]) / half_life) if half_life else np.ones(2)

    def forgotten(mean, variance, prior, fades):
        precision = kept[:, None] / variance[:2] + (1 - kept)[:, None] / prior
        share = kept[:, None] / variance[:2] / precision if fades else 1.0
        return share * mean[:2], 1 / precision

    x = np.array([[1.0], [-2.5]])
    mean, variance = forgotten(rows.mean, rows.variance, PRIOR.variance, False)
    np.testing.assert_allclose(m_x[:2], x * mean, rtol=2e-6)
    np.testing.assert_allclose(v_x[:2], x**2 * variance, rtol=2e-6)
    # The unseen feature: field 1, key 99, value 3.
    np.testing.assert_allclose(m_x[2], 3.0 * 0.05 * draws(11, 99, 4), rtol=1e-6)
    np.testing.assert_allclose(v_x[2], 9.0 * PRIOR.variance[1], rtol=1e-6)
    if linear:
        mean, variance = forgotten(rows.linear_mean, rows.linear_variance, PRIOR.linear_variance[:, None], also_mean)
        ref = (x * mean).sum(), (x**2 * variance).sum() + 9.0 * PRIOR.linear_variance[1]
        assert comp_linear == pytest.approx(ref, rel=2e-6)
    else:
        assert comp_linear == (0.0, 0.0)

    if half_life:
        forget_rows(rows, SEEN, 1, now, PRIOR, forgetting)
        np.testing.assert_allclose(x * rows.mean[:2], m_x[:2], rtol=1e-6)
        np.testing.assert_allclose(x**2 * rows.variance[:2], v_x[:2], rtol=1e-6)
        np.testing.assert_array_equal(rows.mean[2], before[0][2])  # of no concern to sample 1


@pytest.mark.nojit
def test_nothing_is_forgotten_backwards_in_time():
    assert kept_share(-5.0, 2.0) == 1.0 and kept_share(0.0, 2.0) == 1.0
    assert kept_share(2.0, 2.0) == pytest.approx(0.5) and kept_share(1e9, 2.0) == 0.0


@pytest.mark.nojit
def test_a_row_that_was_never_learned_has_nothing_to_forget():
    # Its clock says 0: with decay of the means, its small initial draw would otherwise be gone before it is ever used (erratum E7).
    rows = some_rows(4, 3, 2)
    rows.last_seen[:] = 0.0
    rows.count[:] = 0
    before = [array.copy() for array in rows]
    forget_rows(rows, SEEN, 1, 1.7e9, PRIOR, Forgetting(np.float64(604800.0), np.bool_(True)))
    for old, new in zip(before[:4], rows[:4], strict=True):
        np.testing.assert_array_equal(old, new)


def test_standard_draw_alone_and_in_a_row():
    with np.errstate(over="ignore"):
        assert standard_draw(U64(5), U64(6), U64(2)) == draws(5, 6, 3)[2]
