"""The update of one weight against its true posterior by quadrature; powers, guards, the step's cap, and decay."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

import pbodl
from pbodl.kernels.adf import adf_update, decay, decay_home, powered
from pbodl.kernels.guards import LARGEST
from pbodl.kernels.layers.probit import probit_backward
from tests.oracles.differences import derivative
from tests.oracles.quadrature import posterior

F32 = np.float32
ONE, NO_CAP = F32(1.0), F32(0.0)


def update(m, v, dm, dv, power=1.0, cap=0.0):
    with np.errstate(all="ignore"):
        return tuple(float(x) for x in adf_update(F32(m), F32(v), F32(dm), F32(dv), F32(power), F32(cap)))


def power_of_probit(power, w):
    return power * log_ndtr(w)


def divergence(mean, variance, other_mean, other_variance):
    """KL of one Gaussian from another; infinite if the other is none."""
    if other_variance <= 0.0:
        return math.inf
    return 0.5 * (math.log(other_variance / variance) + (variance + (mean - other_mean) ** 2) / other_variance - 1.0)


@pytest.mark.nojit
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("v", [1e-6, 0.02, 0.5, 10.0, 1e3])
@pytest.mark.parametrize("m", [-8.0, -1.0, 0.0, 0.7, 5.0])
def test_one_linear_weight_gets_its_true_posterior(m, v, sign):
    # A Gaussian prior and a probit likelihood: for one linear weight ADF's moments are exact.
    _, mean, variance = posterior(m, float(F32(v)), lambda w: log_ndtr(sign * w))
    comp = update(m, v, *probit_backward(m, float(F32(v)), sign))
    assert comp[0] == pytest.approx(mean, rel=2e-6, abs=2e-6 * math.sqrt(v))
    assert comp[1] == pytest.approx(variance, rel=2e-5)
    assert comp[2] == 0.0


@pytest.mark.nojit
def test_any_likelihood_gets_its_true_posterior():
    # Bimodal, with no closed form: PBODL eq. 6 and eq. 7 are identities for every likelihood, given the derivatives of its log Z.
    def log_likelihood(w):
        return np.log(0.3 * np.exp(-4 * (w - 1.5) ** 2) + np.exp(-2 * (w + 1) ** 2) + 1e-3)

    m, v = 0.25, 0.75
    dm = derivative(lambda x: math.log(posterior(x, v, log_likelihood)[0]), m, 1e-2)
    dv = derivative(lambda x: math.log(posterior(m, x, log_likelihood)[0]), v, 1e-2)
    _, mean, variance = posterior(m, v, log_likelihood)
    comp = update(m, v, dm, dv)
    assert comp[:2] == pytest.approx((mean, variance), rel=1e-5)


def test_erratum_e6_a_variance_may_rise_and_be_right():
    # z = w u, and the click contradicts the sign of both means: w may have either sign now, so less is known about it than before.
    m_w, v_w, m_u, v_u = 1.0, 0.5, -1.0, 0.5

    def log_likelihood(w):
        return log_ndtr(w * m_u / np.sqrt(1 + w**2 * v_u))

    _, _, true_variance = posterior(m_w, v_w, log_likelihood)
    assert true_variance > v_w
    dm = derivative(lambda x: math.log(posterior(x, v_w, log_likelihood)[0]), m_w, 1e-2)
    dv = derivative(lambda x: math.log(posterior(m_w, x, log_likelihood)[0]), v_w, 1e-2)
    assert dm * dm < 2 * dv
    assert update(m_w, v_w, dm, dv)[1] == pytest.approx(true_variance, rel=1e-5)


@pytest.mark.nojit
@pytest.mark.parametrize("v", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("m", [-3.0, -1.0, 0.0, 1.0, 3.0])
def test_a_power_of_the_message_is_closer_than_a_scaled_log_z(m, v):
    dm, dv = probit_backward(m, v, 1.0)
    for power in (0.1, 0.5, 2.0, 5.0):
        _, exact_mean, exact_variance = posterior(m, v, partial(power_of_probit, power))
        mean, variance, rejected = update(m, v, dm, dv, power)
        scaled = m + v * power * dm, v - v**2 * ((power * dm) ** 2 - 2 * power * dv)
        assert rejected == 0.0
        assert variance < v
        ours, theirs = (divergence(exact_mean, exact_variance, *other) for other in ((mean, variance), scaled))
        # Where next to nothing is learned both are right to more digits than float32 has.
        assert ours < theirs or ours < 1e-9
        if v <= 0.5 and power <= 2.0:
            assert ours < 5e-4
    # Scaling raises the variance on a surprising click of little weight, and drives it below zero on one of large weight.
    if m <= -1.0 and v <= 0.5:
        low, high = (v - v**2 * ((p * dm) ** 2 - 2 * p * dv) for p in (0.1, 5.0))
        assert low > v and high < 0.0


@pytest.mark.nojit
@settings(max_examples=40)
@given(st.floats(-4.0, 4.0), st.floats(0.01, 4.0), st.integers(2, 5))
def test_a_whole_power_is_that_many_messages(m, v, power):
    m, v = float(F32(m)), float(F32(v))
    dm, dv = probit_backward(m, v, 1.0)
    once = update(m, v, dm, dv)
    # In natural parameters a message is a difference, and a power of it a multiple.
    precision = 1 / v + power * (1 / once[1] - 1 / v)
    precision_mean = m / v + power * (once[0] / once[1] - m / v)
    comp = update(m, v, dm, dv, power)
    assert comp[1] == pytest.approx(1 / precision, rel=1e-4)
    assert comp[0] == pytest.approx(precision_mean / precision, rel=1e-4, abs=1e-4)


@pytest.mark.nojit
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 20.0])
def test_the_power_of_one_weight_may_be_taken_at_z(power):
    for m, v, sign in ((0.3, 2.0, 1.0), (-1.0, 0.5, 1.0), (2.0, 0.1, -1.0)):
        dm, dv = probit_backward(m, v, sign)
        at_z = powered(v, dm, dv, F32(power))
        assert update(m, v, *at_z) == pytest.approx(update(m, v, dm, dv, power), rel=1e-5)
        assert at_z == (dm, dv, power) or power > 1.0


@pytest.mark.parametrize("kind", ["sum", "adpredictor"])
@pytest.mark.parametrize("fields", [1, 5, 40])
@pytest.mark.parametrize(("power", "least"), [(2.0, 0.85), (5.0, 0.8), (20.0, 0.7)])
def test_weights_that_share_a_row_step_together_as_far_as_its_weight_says(kind, fields, power, least):
    """A linear probit whose z has one prior, however many weights make it: the posterior of z is an integral in one dimension."""
    schema = pbodl.Schema(label="click", weight="weight", fields=[pbodl.Field(f"f{n}") for n in range(fields)])
    row = {f"f{n}": "a" for n in range(fields)} | {"click": 1}
    for variance in (0.3, 1.0, 4.0):
        if kind == "sum":
            prior = pbodl.Prior(embedding=variance / (fields + 1), dense=variance / (fields + 1), bias=None)
            model = pbodl.SparseMLP(schema, dim=1, hidden=(), linear=False, initial_spread=0.0, prior=prior)
        else:
            model = pbodl.AdPredictor(schema, prior_variance=variance / (fields + 1))
        before = model.predict(row)
        model.learn(row | {"weight": power})
        after = model.predict(row)
        _, mean, _ = posterior(float(before.mean[0]), float(before.variance[0]), partial(power_of_probit, power))
        step = (after.mean[0] - before.mean[0]) / (mean - before.mean[0])
        assert least < step < 1.15  # weight by weight it was up to 9


@pytest.mark.nojit
def test_a_power_of_zero_changes_nothing():
    for m in (-2.0, 0.3):
        dm, dv = probit_backward(m, 0.5, 1.0)
        assert update(m, 0.5, dm, dv, power=0.0) == pytest.approx((m, 0.5, 0.0), rel=1e-6)


BAD = [
    (math.nan, 0.0), (0.0, math.nan), (math.inf, 0.0), (-math.inf, 0.0), (0.0, math.inf), (0.0, -math.inf),
    (math.nan, math.inf), (1e20, 0.0), (1e30, -1e38), (0.0, -1e10), (10.0, 0.0),
]  # fmt: skip


@pytest.mark.nojit
@pytest.mark.parametrize(("dm", "dv"), BAD)
@pytest.mark.parametrize("power", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("cap", [0.0, 0.5])
def test_a_bad_update_is_rejected_whole(dm, dv, power, cap):
    assert update(0.25, 0.125, dm, dv, power, cap) == (0.25, 0.125, 1.0)


@pytest.mark.nojit
def test_numbers_stay_below_the_largest():
    assert update(0.0, 1.0, 0.0, float(LARGEST)) == (0.0, 1.0, 1.0)  # the variance would pass it
    assert update(-9.9e5, 5e5, -1e-1, 0.0, 1.0) == (-9.9e5, 5e5, 1.0)  # the mean would
    assert update(0.0, 1.0, 0.0, -0.5) == (0.0, 1.0, 1.0)  # the variance would be exactly 0
    assert update(0.0, 1.0, 0.0, 0.5, 1.0) == (0.0, 2.0, 0.0)


@pytest.mark.nojit
@pytest.mark.parametrize("power", [1.5, 3.0, 20.0, 1e6])
@pytest.mark.parametrize("dv", [0.01, 0.1, 0.5, 5.0])
def test_no_power_makes_a_variance_rise_by_more_than_two_messages(power, dv):
    # The message's own precision is negative: near a whole number of them, their product is flat, and beyond it none at all.
    _, once, _ = update(0.3, 1.0, 0.05, dv)
    mean, variance, rejected = update(0.3, 1.0, 0.05, dv, power)
    assert rejected == 0.0
    assert 1.0 < variance <= 1.0 + 2.0 * (once - 1.0)
    assert mean == pytest.approx(0.3 + power * 0.05, rel=1e-5)


@settings(max_examples=150)
@given(
    st.floats(-1e5, 1e5, width=32),
    st.floats(-12.0, 5.9),
    st.floats(width=32),
    st.floats(width=32),
    st.sampled_from([0.0, 0.1, 1.0, 3.0, 100.0]),
    st.sampled_from([0.0, 1.0]),
)
def test_whatever_comes_a_weight_stays_a_gaussian(m, exponent, dm, dv, power, cap):
    v = float(F32(10.0**exponent))
    mean, variance, rejected = update(m, v, dm, dv, power, cap)
    assert math.isfinite(mean) and abs(mean) <= LARGEST
    assert 0.0 < variance < LARGEST
    assert rejected in (0.0, 1.0)
    if rejected:
        assert (mean, variance) == (m, v)


@pytest.mark.nojit
def test_the_cap_limits_the_step_of_the_mean_alone():
    m, v = 0.5, 0.25
    free = update(m, v, 3.0, 4.0)
    assert free == pytest.approx((m + v * 3.0, v - v * v * (9.0 - 8.0), 0.0))
    for sign in (-1.0, 1.0):
        capped = update(m, v, sign * 3.0, 4.0, cap=0.5)
        assert capped == pytest.approx((m + sign * 0.5 * math.sqrt(v), free[1], 0.0))
    assert update(m, v, 0.1, 0.0, cap=0.5) == update(m, v, 0.1, 0.0)


def forget(m, v, v_prior, kept, also_mean=False):
    return tuple(float(x) for x in decay(F32(m), F32(v), F32(v_prior), F32(kept), also_mean))


@pytest.mark.nojit
@pytest.mark.parametrize("v", [1e-9, 1e-3, 0.05, 0.3])
@pytest.mark.parametrize("epsilon", [1e-3, 0.02, 0.3])
def test_many_steps_of_decay_at_once(v, epsilon):
    v_prior, ref = 0.1, v
    for steps in range(1, 60):
        ref = ref * v_prior / ((1 - epsilon) * v_prior + epsilon * ref)  # PBODL eq. 28
        comp = forget(0.7, v, v_prior, (1 - epsilon) ** steps)
        assert comp == pytest.approx((0.7, ref), rel=1e-4 if epsilon < 0.01 else 1e-5)
        assert 1 / comp[1] == pytest.approx(1 / v_prior + (1 - epsilon) ** steps * (1 / v - 1 / v_prior), rel=1e-4)


@pytest.mark.nojit
def test_decay_of_the_mean_is_decay_of_the_precision_mean():
    m, v, v_prior, kept = -0.8, 0.02, 0.1, 0.6
    mean, variance = forget(m, v, v_prior, kept, also_mean=True)
    assert 1 / variance == pytest.approx(kept / v + (1 - kept) / v_prior, rel=1e-6)
    assert mean / variance == pytest.approx(kept * m / v, rel=1e-6)


@pytest.mark.nojit
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 1.0])
def test_a_mean_that_goes_home_forgets_what_the_likelihood_said(kept):
    m, v, start, v_prior = -0.8, 0.02, 1.3, 0.1
    mean, variance = (float(x) for x in decay_home(F32(m), F32(v), F32(start), F32(v_prior), F32(kept)))
    ref = 1.0 / (1.0 / v_prior + kept * (1.0 / v - 1.0 / v_prior))
    assert variance == pytest.approx(ref, rel=1e-5)
    assert mean == pytest.approx(ref * (start / v_prior + kept * (m / v - start / v_prior)), rel=1e-5)


@pytest.mark.nojit
def test_decay_has_its_ends():
    assert forget(0.5, 0.01, 0.1, 1.0, True) == pytest.approx((0.5, 0.01), rel=1e-6)
    assert forget(0.5, 0.01, 0.1, 0.0, True) == pytest.approx((0.0, 0.1), rel=1e-6)
    assert forget(0.5, 0.1, 0.1, 0.4) == pytest.approx((0.5, 0.1), rel=1e-6)
    for v, v_prior in ((1e-30, 1e6), (9e5, 1e-6), (1e-12, 0.1)):
        for kept in (1e-30, 1e-7, 0.5, 1 - 1e-6):
            _, variance = forget(0.5, v, v_prior, kept)
            assert min(v, v_prior) * 0.999 <= variance <= max(v, v_prior) * 1.001
