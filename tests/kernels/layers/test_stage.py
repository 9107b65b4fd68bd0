"""A stage: its factors multiply to the history, its slopes vanish at the truth, and nothing overflows anywhere."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from pbodl.kernels.layers.probit import probit_backward, probit_log_z
from pbodl.kernels.layers.stage import logit_stage_slope, stage_backward, stage_corrections, stage_log_z
from pbodl.kernels.normal import corrections
from tests.oracles.differences import derivative
from tests.oracles.stages import Stage, chance, histories, history_likelihood, posterior_of, precise_slopes

AGES = ((0.6, 0.95, 0.995), (0.525, 0.83, 0.9), (0.01, 0.02, 1.0), (1.0,), (0.3,))
POINTS = [-6.0, -2.5, -1.2, -0.3, 0.0, 0.4, 1.5, 3.0]
FRACTIONS = [0.0, 1e-12, 0.3, 0.5, 0.83, 0.995, 1.0 - 2.0**-24, 1.0]


def pairs():
    return [(a, b) for a in FRACTIONS for b in FRACTIONS if a < b]


@pytest.mark.nojit
@pytest.mark.parametrize("fractions", AGES)
@pytest.mark.parametrize("m", POINTS)
@pytest.mark.parametrize("v", [1e-12, 0.2, 3.0])
def test_factors_multiply_to_the_likelihood_of_the_history_wherever_it_stops(fractions, m, v):
    p = float(ndtr(m / math.sqrt(1.0 + v)))
    for history in histories(fractions):
        for seen in range(1, len(history) + 1):
            stages = history[:seen]
            comp = sum(stage_log_z(m, v, stage.clicked, stage.before, stage.by) for stage in stages)
            if stages[-1].clicked:
                comp += math.log(stages[-1].by - stages[-1].before)
            assert comp == pytest.approx(math.log(history_likelihood(np.float64(p), stages)), rel=1e-7, abs=1e-12)


@pytest.mark.nojit
@pytest.mark.parametrize("fractions", AGES)
@pytest.mark.parametrize("t", POINTS)
def test_slopes_and_information_add_up_to_those_of_the_history(fractions, t):
    for history in histories(fractions):
        last = history[-1]
        slope, information = np.sum([stage_corrections(t, *stage) for stage in history], axis=0)
        ref, known = precise_slopes(t, Stage(last.clicked, 0.0, last.by))
        assert slope == pytest.approx(ref, rel=1e-9, abs=1e-12)
        if t <= 0.0:  # above, "not clicked by b < 1" may have less than no information, which counts as none
            assert information == pytest.approx(known, rel=1e-8, abs=1e-11)


@pytest.mark.nojit
@pytest.mark.parametrize("p", [1e-4, 0.01, 0.17, 0.5, 0.9])
@pytest.mark.parametrize("fractions", AGES)
def test_at_the_truth_the_expected_slope_of_every_stage_is_zero(p, fractions):
    t = float(ndtri(p))
    for stage in histories(fractions)[-1]:
        q = chance(p, stage)
        for slope in (
            lambda clicked, stage=stage: stage_corrections(t, clicked, stage.before, stage.by)[0],
            lambda clicked, stage=stage: stage_backward(t, 0.0, clicked, stage.before, stage.by)[0],
            lambda clicked, stage=stage: logit_stage_slope(p, 1.0 - p, clicked, stage.before, stage.by),
        ):
            assert q * slope(True) + (1.0 - q) * slope(False) == pytest.approx(0.0, abs=1e-12 * abs(slope(True)) + 1e-13)


@pytest.mark.nojit
@pytest.mark.parametrize("p", [1e-4, 0.01, 0.17, 0.5])
@pytest.mark.parametrize("fractions", AGES)
def test_the_expected_information_is_that_of_the_stages_bernoulli_variable(p, fractions):
    t = float(ndtri(p))
    for stage in histories(fractions)[-1]:
        q = chance(p, stage)
        comp = sum(share * stage_corrections(t, clicked, stage.before, stage.by)[1] for clicked, share in ((1, q), (0, 1.0 - q)))
        slope = derivative(lambda x, stage=stage: chance(float(ndtr(x)), stage), t, 1e-3)
        if q < 1.0:
            assert comp == pytest.approx(slope**2 / (q * (1.0 - q)), rel=1e-6)


@pytest.mark.parametrize("t", POINTS)
def test_backward_equals_differences(t):
    v = 0.7
    s = math.sqrt(1.0 + v)
    for before, by in pairs():
        for clicked in (False, True):
            slope, information = precise_slopes(t, Stage(clicked, before, by))
            dm, dv = stage_backward(t * s, v, clicked, before, by)
            assert dm == pytest.approx(slope / s, rel=1e-8, abs=1e-12)
            if 0.0 <= information <= 1.0 and (t <= 0.0 or before == 0.0):
                assert dm * dm - 2.0 * dv == pytest.approx(information / s**2, rel=1e-6, abs=1e-11)


@pytest.mark.nojit
@pytest.mark.parametrize("clicked", [False, True])
@pytest.mark.parametrize("m", [-40.0, -7.0, -1.0, 0.0, 2.0, 6.0])
@pytest.mark.parametrize("v", [1e-12, 0.1, 3.0, 1e6])
def test_final_labels_are_the_probit_bit_for_bit(clicked, m, v):
    sign = 1.0 if clicked else -1.0
    assert stage_backward(m, v, clicked, 0.0, 1.0) == probit_backward(m, v, sign)
    assert stage_log_z(m, v, clicked, 0.0, 1.0) == probit_log_z(m, v, sign)
    r, w = corrections(sign * m)
    assert stage_corrections(m, clicked, 0.0, 1.0) == (sign * r, w)
    p = 1.0 / (1.0 + math.exp(-m))
    assert logit_stage_slope(p, 1.0 - p, clicked, 0.0, 1.0) == float(clicked) - p
    if clicked:  # a click at the first look is a click, whenever that is
        assert stage_backward(m, v, True, 0.0, 0.3) == probit_backward(m, v, 1.0)


@pytest.mark.nojit
@pytest.mark.parametrize("clicked", [False, True])
def test_a_stage_close_to_a_final_label_is_close_to_it(clicked):
    for t in POINTS:
        ref = stage_corrections(t, clicked, 0.0, 1.0)
        assert stage_corrections(t, clicked, 1e-9, 1.0 - 1e-9) == pytest.approx(ref, rel=1e-4, abs=1e-6)


@pytest.mark.nojit
def test_nothing_overflows():
    far = [0.0, 1e-300, 1e-12, 1.0, 5.0, 37.0, 39.0, 1e3, 1e6]
    for before, by in [*pairs(), (1.0, 1.0), (0.3, 0.3), (0.0, 0.0)]:
        for clicked in (False, True):
            for t in (*far, *(-x for x in far)):
                slope, w = stage_corrections(t, clicked, before, by)
                assert math.isfinite(slope) and 0.0 <= w <= 1.0
                assert slope >= 0.0 if clicked else slope <= 0.0
                for v in (1e-12, 1.0, 1e6):
                    m = t * math.sqrt(1.0 + v)
                    dm, dv = stage_backward(m, v, clicked, before, by)
                    assert math.isfinite(dm) and math.isfinite(dv) and math.isfinite(stage_log_z(m, v, clicked, before, by))
            for logit in (*far, *(-x for x in far)):
                e = math.exp(-min(abs(logit), 745.0))
                small, large = e / (1.0 + e), 1.0 / (1.0 + e)
                p, q = (large, small) if logit > 0 else (small, large)
                assert 0.0 <= logit_stage_slope(p, q, clicked, before, by) * (1 if clicked else -1) <= 1.0 + 1e-12


@settings(max_examples=200)
@given(st.floats(-40.0, 40.0), st.floats(-12.0, 6.0), st.booleans(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_stage_takes_a_share_of_the_variance(m, exponent, clicked, one, other):
    v, before, by = 10.0**exponent, min(one, other), max(one, other)
    dm, dv = stage_backward(m, v, clicked, before, by)
    rounding = 1e-12 * dm * dm  # of the difference of two squares
    assert -rounding <= dm * dm - 2.0 * dv <= 1.0 / (1.0 + v) * (1.0 + 1e-9) + rounding


@pytest.mark.parametrize(("v", "of_mean", "of_variance"), [(0.01, 1e-3, 1e-4), (0.1, 0.025, 0.006), (0.5, 0.16, 0.09)])
def test_moments_are_near_those_of_the_exact_integral(v, of_mean, of_variance):
    # Exact from nothing; later stages take the ratio's mean as the ratio of the means. In deviations, and in shares of v.
    worst = np.zeros(2)
    for fractions in AGES[:2]:
        for m in (-2.5, -1.5, -1.0, -0.5, 0.0):
            for history in histories(fractions):
                stage = history[-1]
                dm, dv = stage_backward(m, v, *stage)

                def likelihood(p, stage=stage):
                    return (p if stage.clicked else 1.0 - stage.by * p) / (1.0 - stage.before * p)

                mean, variance = posterior_of(m, v, likelihood)
                error = [abs(m + v * dm - mean) / math.sqrt(v), abs(v - v * v * (dm * dm - 2.0 * dv) - variance) / v]
                if stage.before == 0.0:
                    assert max(error) < 1e-6
                worst = np.maximum(worst, error)
    assert worst[0] < of_mean and worst[1] < of_variance


@pytest.mark.nojit
@pytest.mark.parametrize("z", [-800.0, -3.0, 0.0, 2.0, 40.0])
def test_the_logistic_slope_equals_differences(z):
    def log_likelihood(z, clicked, before, by):
        p, q = 1.0 / (1.0 + math.exp(-z)), 1.0 / (1.0 + math.exp(z))
        return math.log(p if clicked else 1.0 - by + by * q) - math.log(1.0 - before + before * q)

    for before, by in ((0.0, 0.6), (0.3, 0.9), (0.6, 0.995), (0.995, 1.0)):
        for clicked in (False, True):
            x = min(max(z, -30.0), 30.0)
            p, q = 1.0 / (1.0 + math.exp(-x)), 1.0 / (1.0 + math.exp(x))
            ref = derivative(lambda at, c=clicked, a=before, b=by: log_likelihood(at, c, a, b), x, 1e-3)
            assert logit_stage_slope(p, q, clicked, before, by) == pytest.approx(ref, rel=1e-6, abs=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("p", [0.01, 0.2, 0.6])
@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("delay", [(0.5, 0.9, 1.0), (0.2, 1.0)])
def test_kept_non_clicks_teach_the_sampled_rate(p, rate, delay):
    # Non-clicks are kept at a rate when they are shown. Stages of kept rows go by F'' with 1 - F'' = rate (1 - F); clicks of rows
    # that were not kept are plain clicks. After all stages, the expected slope at odds' = odds/rate is zero.
    sampled = p / (p + rate * (1.0 - p))
    t = float(ndtri(sampled))
    total, came_before, open_share = (1.0 - rate) * p * stage_corrections(t, True, 0.0, 1.0)[0], 0.0, 1.0
    edges = [0.0, *(1.0 - rate * (1.0 - f) for f in delay)]
    for k, f in enumerate(delay):
        clicks = p * (f - came_before)
        open_share -= clicks
        total += rate * clicks * stage_corrections(t, True, edges[k], edges[k + 1])[0]
        total += rate * open_share * stage_corrections(t, False, edges[k], edges[k + 1])[0]
        came_before = f
    assert total == pytest.approx(0.0, abs=1e-9)
