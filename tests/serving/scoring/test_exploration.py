"""Exploring: the draws have the distribution that they are said to have, and bounds are where they are said to be."""

import numpy as np
import pytest
from scipy.stats import norm

from pbodl.serving.scoring.exploration import explored
from pbodl.serving.scoring.predictor import Scores


def scores(n=1, mean=-1.0, variance=0.25):
    full = np.full(n, 1.0, np.float32)
    values = {name: full * 0 for name in Scores._fields} | {"mean": mean * full, "variance": variance * full}
    return Scores(**values)


def test_without_exploring_nothing_changes():
    given = scores()
    assert explored(given, "none", 1.0) is given


def test_an_upper_bound_is_so_many_deviations_above_the_mean():
    comp = explored(scores(), "ucb", 1.0, c=2.0).ctr
    np.testing.assert_allclose(comp, norm.cdf(-1.0 + 2.0 * 0.5), rtol=1e-6)


def test_draws_have_the_mean_and_the_spread_of_z():
    n = 20_000
    z = norm.ppf(explored(scores(n), "thompson", 1.0, seed=3).ctr)
    assert z.mean() == pytest.approx(-1.0, abs=5 * 0.5 / np.sqrt(n))
    assert z.std() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(2 * n))


def test_a_seed_gives_the_same_draws_again_and_none_gives_others():
    draws = [explored(scores(5), "thompson", 1.0, seed).ctr for seed in (1, 1, 2, None, None)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2]) and not np.array_equal(draws[3], draws[4])


@pytest.mark.parametrize("explore", ["thompson", "ucb"])
def test_what_is_explored_is_recalibrated(explore):
    all_kept, some_kept = (explored(scores(), explore, kept, seed=1).ctr for kept in (1.0, 0.1))
    # With a tenth of the non-clicks kept, the odds are ten times too high.
    np.testing.assert_allclose(some_kept / (1 - some_kept), 0.1 * all_kept / (1 - all_kept), rtol=1e-5)
