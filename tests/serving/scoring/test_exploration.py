"""Exploring: draws that a key keeps, bounds where they are said to be, and no exploration at a spread of 0."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import norm

from pbodl.models.joint_draws import draw_seeds
from pbodl.serving.scoring.exploration import seed_of_draw, thompson, upper_bounds
from pbodl.serving.scoring.predictor import Scores

MEAN, VARIANCE, DRAWN = np.array([-1.0, -1.5, -0.5]), np.array([0.25, 0.5, 0.1]), np.array([-0.8, 0.2, -1.1])
CTR = norm.cdf(MEAN / np.sqrt(1.0 + VARIANCE))
SCORES = Scores(CTR, 0.1 * CTR, MEAN, VARIANCE)


def test_a_spread_of_nothing_is_no_exploration():
    np.testing.assert_allclose(thompson(SCORES, DRAWN, 0.0, 1.0), CTR, rtol=1e-9)
    np.testing.assert_allclose(upper_bounds(SCORES, 0.0, 2.0, 1.0), CTR, rtol=1e-9)


def test_a_draw_is_answered_as_it_is_or_closer_to_the_mean():
    np.testing.assert_allclose(thompson(SCORES, DRAWN, 1.0, 1.0), norm.cdf(DRAWN), rtol=1e-9)
    half = norm.cdf((MEAN + DRAWN) / 2 / np.sqrt(1 + 0.75 * VARIANCE))
    np.testing.assert_allclose(thompson(SCORES, DRAWN, 0.5, 1.0), half, rtol=1e-9)


def test_an_upper_bound_counts_the_excess_over_the_least_uncertain():
    upper, excess = upper_bounds(SCORES, 1.0, 2.0, 1.0), VARIANCE - 0.1
    np.testing.assert_allclose(upper, norm.cdf((MEAN + 2.0 * np.sqrt(excess)) / np.sqrt(1.1)), rtol=1e-9)
    assert upper[2] == pytest.approx(CTR[2])  # the least uncertain one stays
    half = norm.cdf((MEAN + np.sqrt(excess)) / np.sqrt(1 + VARIANCE - excess / 4))
    np.testing.assert_allclose(upper_bounds(SCORES, 0.5, 2.0, 1.0), half, rtol=1e-9)


@pytest.mark.parametrize(
    "rule", [lambda kept: thompson(SCORES, DRAWN, 1.0, kept), lambda kept: upper_bounds(SCORES, 1.0, 1.0, kept)]
)
def test_what_is_explored_is_recalibrated(rule):
    all_kept, some_kept = rule(1.0), rule(0.1)
    # With a tenth of the non-clicks kept, the odds are ten times too high.
    np.testing.assert_allclose(some_kept / (1 - some_kept), 0.1 * all_kept / (1 - all_kept), rtol=1e-5)


def test_a_key_keeps_its_draw_and_a_seed_is_that_of_sample():
    assert seed_of_draw("session 7", None) == seed_of_draw("session 7", 0) == seed_of_draw("session 7", None)
    assert seed_of_draw(7, None) == seed_of_draw("7", None)
    others = [seed_of_draw(*given) for given in (("session 8", None), ("session 7", 1), (None, 1), (None, None), (None, None))]
    assert len({int(seed) for seed in [*others, seed_of_draw("session 7", None)]}) == 6
    assert seed_of_draw(None, 5) == draw_seeds(5, 1)[0]


def test_another_process_has_the_same_draw_for_a_key():
    code = "from pbodl.serving.scoring.exploration import seed_of_draw; print(int(seed_of_draw('user 3', 2)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(told) == seed_of_draw("user 3", 2)
