"""Pairs of fields: z_L from its definition, slopes from differences, the linearised variance from drawing, the update by hand."""

import itertools

import numpy as np
import pytest

from pbodl.kernels.layers.pairs import field_sums, learn_pairs, make_pair_scratch, pairs_backward, pairs_forward
from tests.oracles import monte_carlo
from tests.oracles.differences import derivative

F32 = np.float32
GROUPS = np.array([0, 1, 1, 2], np.int32)
FIELDS = np.array([0, 1, 1, 3], np.int64)  # a list in field 1, and nothing in field 2
PAIRS = list(itertools.combinations(range(len(GROUPS)), 2))
pytestmark = pytest.mark.nojit


def weights(seed, n, dim, spread=1.0):
    """Means and variances of n features' vectors, and of the pairs' weights and the bias."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(0, 1, (n, 3, dim)).astype(F32), (spread * rng.uniform(0.1, 1.0, (n, 3, dim))).astype(F32)
    return (
        *vectors, rng.normal(0.3, 0.5, len(PAIRS) + 1).astype(F32), (spread * rng.uniform(0.1, 1.0, len(PAIRS) + 1)).astype(F32)
    )  # fmt: skip


def latent(e, w):
    """z_L by its definition; e (..., features, groups, dim), w (..., pairs + 1)."""
    fields = np.zeros((*e.shape[:-3], len(GROUPS), *e.shape[-2:]))
    for j, field in enumerate(FIELDS):
        fields[..., field, :, :] += e[..., j, :, :]
    z = w[..., -1].astype(np.float64)
    for pair, (f, g) in enumerate(PAIRS):
        z = z + w[..., pair] * (fields[..., f, GROUPS[g], :] * fields[..., g, GROUPS[f], :]).sum(axis=-1)
    return z


def forward(m_x, v_x, m_w, v_w):
    w = make_pair_scratch(len(GROUPS), 3, m_x.shape[2])
    field_sums(m_x, v_x, np.arange(len(m_x), dtype=np.int32), len(m_x), FIELDS, 0, w)
    return *pairs_forward(m_w, v_w, GROUPS, w), w


@pytest.mark.parametrize("dim", [1, 3, 8, 16])
def test_the_mean_is_the_definition_at_the_means(dim):
    m_x, v_x, m_w, v_w = weights(1, 4, dim)
    mean, _, _ = forward(m_x, v_x, m_w, v_w)
    assert mean == pytest.approx(latent(m_x, m_w), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_the_variance_is_every_weight_s_squared_slope_times_its_variance(dim):
    m_x, v_x, m_w, v_w = weights(2, 4, dim)
    _, variance, _ = forward(m_x, v_x, m_w, v_w)
    ref = sum(
        v_w[i] * derivative(lambda x, i=i: latent(m_x, replaced(m_w, i, x)), float(m_w[i]), 0.1) ** 2 for i in range(len(m_w))
    )
    for at in np.ndindex(*m_x.shape):
        ref += v_x[at] * derivative(lambda x, at=at: latent(replaced(m_x, at, x), m_w), float(m_x[at]), 0.1) ** 2
    assert variance == pytest.approx(ref, rel=1e-4)


def test_narrow_weights_spread_z_as_drawing_them_does():
    # In the limit of narrow weights the linearised moments are exact, covariances of shared features and all.
    m_x, v_x, m_w, v_w = weights(3, 4, 3, spread=1e-4)
    mean, variance, _ = forward(m_x, v_x, m_w, v_w)
    drawn = latent(monte_carlo.gaussians(m_x, v_x, 4), monte_carlo.gaussians(m_w, v_w, 5))
    assert mean == pytest.approx(drawn.mean(), abs=5 * drawn.std() / np.sqrt(len(drawn)) + 1e-4)
    assert variance == pytest.approx(drawn.var(), rel=0.03)


def test_gradients_by_the_features_are_slopes():
    m_x, v_x, m_w, v_w = weights(6, 4, 2)
    _, _, w = forward(m_x, v_x, m_w, v_w)
    dm_x, dv_x = np.full(m_x.shape, np.nan, F32), np.full(m_x.shape, np.nan, F32)
    pairs_backward(4, FIELDS, 0, F32(0.7), F32(-0.2), w, dm_x, dv_x)
    for at in np.ndindex(*m_x.shape):
        slope = derivative(lambda x, at=at: latent(replaced(m_x, at, x), m_w), float(m_x[at]), 0.1)
        assert dm_x[at] == pytest.approx(0.7 * slope, rel=1e-4, abs=1e-5)
        assert dv_x[at] == pytest.approx(-0.2 * slope**2, rel=1e-3, abs=1e-5)


def test_pair_weights_learn_as_the_linear_probit_of_their_products():
    # Given the vectors, z_L is linear in the pairs' weights: the update is AdPredictor's with the products as values.
    m_x, v_x, m_w, v_w = weights(7, 4, 2)
    _, _, w = forward(m_x, v_x, m_w, v_w)
    dm, dv = 0.1, -0.02
    values = np.append(w.products, 1.0).astype(np.float64)
    ref_mean = m_w + v_w * values * dm
    ref_variance = v_w - v_w**2 * values**2 * (dm**2 - 2 * dv)
    assert (ref_variance > 0).all()
    assert learn_pairs(m_w, v_w, F32(dm), F32(dv), F32(1), F32(0), w) == 0
    np.testing.assert_allclose(m_w, ref_mean, rtol=1e-5)
    np.testing.assert_allclose(v_w, ref_variance, rtol=1e-4)


def test_rejected_updates_leave_a_weight_alone_and_are_counted():
    m_x, v_x, m_w, v_w = weights(8, 4, 2)
    _, _, w = forward(m_x, v_x, m_w, v_w)
    w.products[0] = np.nan
    before = m_w.copy(), v_w.copy()
    assert learn_pairs(m_w, v_w, F32(0.1), F32(-0.01), F32(1), F32(0), w) == 1
    assert (m_w[0], v_w[0]) == (before[0][0], before[1][0]) and (m_w[1:] != before[0][1:]).any()


def replaced(array, at, value):
    changed = array.astype(np.float64)
    changed[at] = value
    return changed
