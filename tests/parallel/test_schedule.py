"""Burn-in, ramp and brake."""

import warnings

import pytest

from pbodl.errors import InputError
from pbodl.models.clock import Duration
from pbodl.parallel.schedule import RAMP, Round, Schedule


def test_the_ramp_takes_a_hundredth_of_what_was_seen():
    schedule, seen, rounds = Schedule(16, 256), 0, []
    while seen < 600_000:
        now = schedule.next(seen, 0.0, 0.1)
        rounds.append(now)
        assert now.workers == 1 or now.workers * now.rows <= RAMP * seen
        seen += now.workers * now.rows
    assert rounds[0] == Round(1, 64) and rounds[-1] == Round(16, 256)
    assert [r.workers for r in rounds] == sorted(r.workers for r in rounds)
    # Workers come first, and only then do minibatches grow.
    assert all(r.rows < 128 for r in rounds if r.workers < 16)


def test_small_minibatches_stay_small():
    assert Schedule(4, 8).next(10**6, 0.0, 0.1) == Round(4, 8)
    assert Schedule(4, 8).next(0, 0.0, 0.1) == Round(1, 8)


def test_burn_in_by_rows_and_by_time():
    rows, time = Schedule(4, 256, Duration(1000, True)), Schedule(4, 256, Duration(3600.0, False))
    assert [rows.next(seen, 0.0, 0.1) for seen in (0, 999)] == [Round(1, 256)] * 2
    assert [time.next(10**6, now, 0.1) for now in (50.0, 3649.0)] == [Round(1, 256)] * 2
    assert time.next(10**6, 3650.0, 0.1) == Round(4, 256)
    assert rows.next(10**6, 0.0, 0.1) == Round(4, 256)


def test_after_a_change_of_the_prior_the_variance_is_held_against_what_follows():
    schedule = Schedule(16, 256)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for variance in (0.2, 0.2, 0.2):
            schedule.next(10**6, 0.0, variance)
        schedule.start_anew()
        for step in range(30):
            schedule.next(10**6, 0.0, min(0.2 + 0.04 * step, 0.5))
    with pytest.warns(UserWarning, match="overshoot"):
        schedule.next(10**6, 0.0, 1.0)


def test_after_a_change_of_the_prior_a_rise_too_far_still_brakes():
    schedule = Schedule(16, 256)
    for variance in (0.2, 0.2):
        schedule.next(10**6, 0.0, variance)
    schedule.start_anew()
    with pytest.warns(UserWarning, match="overshoot"):
        schedule.next(10**6, 0.0, 0.7)
    assert schedule.brakes == 1


def test_a_sharp_rise_of_the_variance_brakes_with_a_warning():
    schedule = Schedule(16, 256)
    for variance in (0.2, 0.19, 0.21, 0.2):
        assert schedule.next(10**6, 0.0, variance) == Round(16, 256)
    with pytest.warns(UserWarning, match=r"overshoot: after 1,000,000 rows the predictive variance has risen from 0.19 to 0.5"):
        assert schedule.next(10**6, 0.0, 0.5) == Round(16, 128)
    with pytest.warns(UserWarning, match="half as many rows"):
        schedule.next(10**6, 0.0, 0.5)
        assert schedule.next(10**6, 0.0, float("nan")) == Round(16, 64)
    assert schedule.brakes == 2


def test_a_slow_rise_does_not_brake_until_it_is_threefold():
    schedule, variance = Schedule(16, 256), 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while variance < 0.299:
            variance *= 1.002
            schedule.next(10**6, 0.0, variance)
    assert schedule.brakes == 0
    with pytest.warns(UserWarning, match="risen from 0.1 to 0.305"):
        schedule.next(10**6, 0.0, 0.305)


def test_braking_ends_at_one_worker():
    schedule = Schedule(2, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(40):
            last = schedule.next(10**6, 0.0, 2.0**n)
    assert last == Round(1, 64)


@pytest.mark.parametrize(("workers", "rows"), [(0, 64), (-1, 64), (10_000, 64), (2, 0), (2, 10**6)])
def test_numbers_out_of_range_are_refused(workers, rows):
    with pytest.raises(InputError, match="it must be a whole number from 1 to"):
        Schedule(workers, rows)
