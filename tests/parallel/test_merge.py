"""The shares of the merge rule."""

import numpy as np
import pytest

from pbodl.parallel.merge import SLOWNESS, all_of_it, fair_shares


def shares(workers=16, rows=256, touches=(1, 3, 256), frequency=(1e-6, 0.01, 1.0), variance=0.12):
    return fair_shares(workers, rows, np.array(touches, np.int32), np.array(frequency), 22.0, variance)


def test_shares_run_from_all_to_one_part_in_w():
    share = shares()
    assert share.mean[0] == pytest.approx(1.0, abs=1e-4)
    assert (np.diff(share.mean) < 0).all() and (share.mean > 1 / 16).all()
    assert shares(touches=(10**9,), frequency=(1.0,)).mean[0] == pytest.approx(1 / 16, rel=1e-4)
    assert share.dense_mean == 1 / 16


def test_shares_are_those_of_a_naive_loop():
    touches, frequency, comp = (1, 2, 2, 50), (0.0, 0.0, 0.3, 0.1), []
    for n, f in zip(touches, frequency, strict=True):
        others = max(n - 1, 256 * f)  # samples of the other workers that meet the row while this one learns
        comp.append(1 / (1 + 15 * others / (others + SLOWNESS * 22.0 / 0.12)))
    share = shares(touches=touches, frequency=frequency)
    np.testing.assert_allclose(share.mean, comp)
    assert share.mean[0] == 1.0


def test_power_and_precision_take_the_root():
    share = shares()
    np.testing.assert_allclose(share.power**2 * share.mean, 1.0, rtol=1e-6)
    np.testing.assert_allclose(share.precision**2, share.mean)


def test_the_surer_the_model_the_more_each_worker_sends():
    assert (shares(variance=0.01).mean >= shares(variance=1.0).mean).all()


def test_before_the_first_message_nothing_is_held_back():
    np.testing.assert_allclose(shares(variance=0.0).mean, 1.0, rtol=1e-5)


def test_all_of_it_is_all_of_it():
    share = all_of_it(3)
    assert share.mean.tolist() == share.precision.tolist() == share.power.tolist() == [1.0] * 3 and share.dense_mean == 1.0
