"""FM between groups against enumerated covariances, differences and drawing; with one feature to a group it is FM."""

import numpy as np
import pytest

from pbodl.kernels.layers.group_fm import group_fm_backward, group_fm_forward
from pbodl.kernels.layers.interaction import EXACT, PAPER, fm_forward
from tests.oracles import monte_carlo, naive
from tests.oracles.differences import derivative
from tests.oracles.naive import Feature, Network

F32 = np.float32
MODES = {"exact": EXACT, "paper": PAPER}
# Groups of the features: mixed, with a group that has one feature, with an empty group, in any order.
GROUPS = [[0, 1, 2, 0, 1], [2, 0, 0], [1, 1, 1], [2, 1, 0, 2, 2], [0] * 4 + [1] * 9 + [2] * 5, [0], []]
pytestmark = pytest.mark.nojit


def vectors(seed, n, dim):
    rng = np.random.default_rng(seed)
    return rng.normal(0.5, 1.0, (n, 1, dim)).astype(F32), rng.uniform(0.05, 1.0, (n, 1, dim)).astype(F32)


def comp_forward(m_x, v_x, groups, mode="exact", n_groups=3):
    """z_0's moments, and what forward keeps for backward."""
    n, _, dim = m_x.shape
    kept = (
        np.array([*groups, 0], np.int64), MODES[mode], np.arange(max(n, n_groups)), np.full((n_groups, 1, dim), np.nan, F32),
        np.full((n_groups, 1, dim), np.nan, F32), np.full((3, dim), np.nan, F32),
    )  # fmt: skip
    m_z, v_z = np.zeros(dim, F32), np.zeros(dim, F32)
    group_fm_forward(m_x, v_x, np.arange(n), n, *kept, m_z, v_z)
    return m_z, v_z, kept


def ref_forward(m_x, v_x, groups, mode="exact"):
    values = {index: (float(m_x[index]), float(v_x[index])) for index in np.ndindex(*m_x.shape)}
    network = Network("group-fm", m_x.shape[2], (), False, (0, 1, 2), mode)
    return np.array(naive.operation(network, [Feature(i, 1.0, group) for i, group in enumerate(groups)], values)).T


@pytest.mark.parametrize("mode", ["exact", "paper"])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("dim", [1, 3, 17])
def test_forward_equals_naive(dim, groups, mode):
    m_x, v_x = vectors(1, len(groups), dim)
    m_z, v_z, _ = comp_forward(m_x, v_x, groups, mode)
    np.testing.assert_allclose((m_z, v_z), ref_forward(m_x, v_x, groups, mode), rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("mode", ["exact", "paper"])
@pytest.mark.parametrize("groups", [[0, 1, 2, 0], [2, 0, 0], [1, 1]])
def test_backward_equals_differences(groups, mode):
    m_x, v_x = vectors(2, len(groups), 2)
    _, _, kept = comp_forward(m_x, v_x, groups, mode)
    rng = np.random.default_rng(3)
    dm_z, dv_z = rng.normal(size=2).astype(F32), rng.normal(size=2).astype(F32)
    comp, scratch = [np.full(m_x.shape, np.nan, F32) for _ in range(2)], [np.full((3, 1, 2), np.nan, F32) for _ in range(2)]
    group_fm_backward(len(groups), *kept, dm_z, dv_z, *scratch, *comp)
    start = [m_x.astype(np.float64), v_x.astype(np.float64)]
    for which in (0, 1):
        for index in np.ndindex(*m_x.shape):

            def moved(value, which=which, index=index):
                arrays = [array.copy() for array in start]
                arrays[which][index] = value
                return float(np.sum(np.array([dm_z, dv_z], np.float64) * ref_forward(arrays[0], arrays[1], groups, mode)))

            assert comp[which][index] == pytest.approx(derivative(moved, start[which][index], 1e-2), rel=1e-5, abs=2e-5)


@pytest.mark.parametrize("mode", ["exact", "paper"])
def test_with_one_feature_to_a_group_it_is_fm(mode):
    m_x, v_x = vectors(4, 5, 3)
    ref, sums = (np.zeros(3, F32), np.zeros(3, F32)), np.zeros((3, 3), F32)
    fm_forward(m_x, v_x, np.arange(5), 5, 0, MODES[mode], False, sums, *ref)
    m_z, v_z, _ = comp_forward(m_x, v_x, range(5), mode, n_groups=5)
    np.testing.assert_array_equal((m_z, v_z), ref)


def test_moments_equal_those_of_draws():
    groups = np.array([0, 1, 2, 0, 1, 1])
    m_x, v_x = vectors(7, 6, 2)
    drawn = monte_carlo.gaussians(m_x[:, 0].astype(float), v_x[:, 0].astype(float), seed=8)
    s = [drawn[:, groups == g].sum(axis=1) for g in range(3)]
    draws = s[0] * s[1] + s[0] * s[2] + s[1] * s[2]
    m_z, v_z, _ = comp_forward(m_x, v_x, groups)
    assert (np.array(monte_carlo.deviations(draws, m_z, v_z)) < monte_carlo.FAR).all()
    # As printed, the products are taken for independent; but two of them share a sum.
    _, v_paper, _ = comp_forward(m_x, v_x, groups, "paper")
    assert monte_carlo.deviations(draws, m_z, v_paper)[1].max() > 4 * monte_carlo.FAR
