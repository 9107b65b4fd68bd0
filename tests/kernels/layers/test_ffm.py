"""FFM against enumerated covariances and drawing; with one group it is FM; its printed sums are shown wrong."""

import numpy as np
import pytest

from pbodl.kernels.layers.ffm import ffm_backward, ffm_forward
from pbodl.kernels.layers.interaction import EXACT, PAPER, fm_forward
from tests.oracles import monte_carlo, naive
from tests.oracles.differences import derivative
from tests.oracles.naive import Feature, Network

F32 = np.float32
MODES = {"exact": EXACT, "paper": PAPER}
# Groups of the features: mixed, with a group that has one feature, with an empty group, in any order.
GROUPS = [[0, 1, 2, 0, 1], [2, 0, 0], [1, 1, 1], [2, 1, 0, 2, 2], [0], []]


def vectors(seed, n, n_groups, dim):
    rng = np.random.default_rng(seed)
    return rng.normal(0.5, 1.0, (n, n_groups, dim)).astype(F32), rng.uniform(0.05, 1.0, (n, n_groups, dim)).astype(F32)


def comp_forward(m_x, v_x, groups, mode="exact"):
    """z_0's moments, and what forward keeps for backward."""
    n, n_groups, dim = m_x.shape
    kept = (
        np.array([*groups, 0], np.int64), MODES[mode], np.zeros((n_groups, n + 1), np.int64), np.zeros(n_groups, np.int64),
        np.full((n_groups, n_groups, dim), np.nan, F32), np.full((n_groups, n_groups, dim), np.nan, F32),
        np.full((n_groups, 3, dim), np.nan, F32),
    )  # fmt: skip
    m_z, v_z = np.zeros(dim, F32), np.zeros(dim, F32)
    ffm_forward(m_x, v_x, n, *kept, m_z, v_z)
    return m_z, v_z, kept


def ref_forward(m_x, v_x, groups, mode="exact"):
    n, n_groups, dim = m_x.shape
    values = {index: (float(m_x[index]), float(v_x[index])) for index in np.ndindex(n, n_groups, dim)}
    network = Network("ffm", dim, (), False, tuple(range(n_groups)), mode)
    return np.array(naive.operation(network, [Feature(i, 1.0, group) for i, group in enumerate(groups)], values)).T


@pytest.mark.nojit
@pytest.mark.parametrize("mode", ["exact", "paper"])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("dim", [1, 3, 17])
def test_forward_equals_naive(dim, groups, mode):
    m_x, v_x = vectors(1, len(groups), 3, dim)
    m_z, v_z, _ = comp_forward(m_x, v_x, groups, mode)
    np.testing.assert_allclose((m_z, v_z), ref_forward(m_x, v_x, groups, mode), rtol=2e-6, atol=2e-6)


@pytest.mark.nojit
@pytest.mark.parametrize("mode", ["exact", "paper"])
@pytest.mark.parametrize("groups", [[0, 1, 2, 0], [2, 0, 0], [1, 1]])
def test_backward_equals_differences(groups, mode):
    m_x, v_x = vectors(2, len(groups), 3, 2)
    _, _, kept = comp_forward(m_x, v_x, groups, mode)
    rng = np.random.default_rng(3)
    dm_z, dv_z = rng.normal(size=2).astype(F32), rng.normal(size=2).astype(F32)
    comp = np.full(m_x.shape, np.nan, F32), np.full(m_x.shape, np.nan, F32)
    ffm_backward(m_x, v_x, len(groups), *kept, dm_z, dv_z, *comp)
    start = [m_x.astype(np.float64), v_x.astype(np.float64)]
    for which in (0, 1):
        for index in np.ndindex(*m_x.shape):

            def moved(value, which=which, index=index):
                arrays = [array.copy() for array in start]
                arrays[which][index] = value
                return float(np.sum(np.array([dm_z, dv_z], np.float64) * ref_forward(arrays[0], arrays[1], groups, mode)))

            assert comp[which][index] == pytest.approx(derivative(moved, start[which][index], 1e-2), rel=1e-5, abs=2e-5)


@pytest.mark.nojit
@pytest.mark.parametrize("mode", ["exact", "paper"])
def test_with_one_group_it_is_fm(mode):
    m_x, v_x = vectors(4, 5, 1, 3)
    ref, sums = (np.zeros(3, F32), np.zeros(3, F32)), np.zeros((3, 3), F32)
    fm_forward(m_x, v_x, np.arange(5), 5, 0, MODES[mode], False, sums, *ref)
    m_z, v_z, _ = comp_forward(m_x, v_x, [0] * 5, mode)
    np.testing.assert_array_equal((m_z, v_z), ref)


@pytest.mark.nojit
def test_order_of_features_does_not_matter():
    groups = np.array([0, 1, 2, 0, 1, 2, 2])
    m_x, v_x = vectors(5, 7, 3, 4)
    order = np.random.default_rng(6).permutation(7)
    ref = comp_forward(m_x, v_x, groups)
    comp = comp_forward(m_x[order].copy(), v_x[order].copy(), groups[order])
    np.testing.assert_allclose(comp[0], ref[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(comp[1], ref[1], rtol=1e-5)


def printed(m_x, v_x):
    """PBODL eq. 23 and eq. 24 to the letter: every sum over all features, one index for the group."""
    m, v = m_x.astype(np.float64), v_x.astype(np.float64)
    sm = m**2 + v
    n_groups = m.shape[1]
    mean = 0.5 * (m.sum(0) ** 2 - (m**2).sum(0)).sum(0)
    variance = 0.5 * (sm.sum(0) ** 2 - (sm**2).sum(0)).sum(0) - 0.5 * ((m**2).sum(0) ** 2 - (m**4).sum(0)).sum(0)
    m_sum, v_sum = m.sum(0), v.sum(0)
    for f in range(n_groups):
        for g in range(f + 1, n_groups):
            mean += m_sum[f] * m_sum[g]
            variance += m_sum[f] ** 2 * v_sum[g] + m_sum[g] ** 2 * v_sum[f] + v_sum[f] * v_sum[g]
    return mean, variance


def test_erratum_e4_sums_run_per_group_with_crossed_indices():
    groups = [0, 1, 2, 0, 1, 1]
    m_x, v_x = vectors(7, 6, 3, 2)
    draws = monte_carlo.crossed_pair_sums(monte_carlo.gaussians(m_x.astype(float), v_x.astype(float), seed=8), groups)
    m_z, v_z, _ = comp_forward(m_x, v_x, groups)
    assert (np.array(monte_carlo.deviations(draws, m_z, v_z)) < monte_carlo.FAR).all()
    assert (np.array(monte_carlo.deviations(draws, *printed(m_x, v_x))) > 5 * monte_carlo.FAR).all()
    # Inside a group it is FM, with FM's own erratum.
    _, v_paper, _ = comp_forward(m_x, v_x, groups, "paper")
    assert monte_carlo.deviations(draws, m_z, v_paper)[1].max() > 4 * monte_carlo.FAR
