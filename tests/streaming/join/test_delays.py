"""F against the truth of drawn delays, also of a young stream; the guess at the start; the choice of ages."""

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.streaming.join.delays import LEAST, MOST, TARGETS, choose_ages, count_click, follow, guessed_delays, guessed_share

HORIZON = 3600.0


def counted(delays, drawn: np.ndarray, ages: np.ndarray) -> None:
    """Count drawn delays of impressions of some ages, as the join does: at each edge that an impression has passed."""
    for delay, age in zip(drawn, ages, strict=True):
        for edge, at in enumerate(delays.edges):
            if delay <= at <= age:
                count_click(delays, edge, delay)
    follow(delays)


@pytest.mark.parametrize("young", [False, True])
def test_the_share_is_that_of_the_delays_also_in_a_young_stream(young: bool) -> None:
    draws = np.random.default_rng(0)
    drawn = np.where(draws.random(6000) < 0.8, draws.exponential(60.0, 6000), draws.uniform(600.0, 3600.0, 6000))
    drawn = np.minimum(drawn, HORIZON)
    ages = draws.uniform(0.0, 1.2 * HORIZON, 6000) if young else np.full(6000, HORIZON)
    delays = guessed_delays(600.0, HORIZON)
    counted(delays, drawn, ages)
    truth = np.array([np.mean(drawn <= at) for at in delays.edges])
    np.testing.assert_allclose(delays.came, np.clip(truth, LEAST, MOST), atol=0.03)
    if young:  # counting the delays that have been seen would not do
        seen = drawn[drawn <= ages]
        assert abs(np.mean(seen <= 600.0) - np.mean(drawn <= 600.0)) > 0.03


def test_it_follows_a_stream_that_changes() -> None:
    draws = np.random.default_rng(1)
    delays = guessed_delays(600.0, HORIZON)
    for mean in (30.0, 300.0):
        drawn = np.minimum(draws.exponential(mean, 16_000), HORIZON)
        counted(delays, drawn, np.full(16_000, HORIZON))
    truth = 1.0 - np.exp(-delays.edges / 300.0)
    often = truth > 0.3  # the other ages have counted few clicks since
    np.testing.assert_allclose(delays.came[often], np.clip(truth, LEAST, MOST)[often], atol=0.05)


def test_a_new_stream_starts_from_a_mild_guess() -> None:
    delays = guessed_delays(600.0, HORIZON)
    np.testing.assert_allclose(delays.came, np.clip(guessed_share(delays.edges, 600.0, HORIZON), LEAST, MOST))
    assert guessed_share(np.array([60.0]), 600.0, HORIZON)[0] == pytest.approx(0.5, abs=0.02)
    at = delays.edges[delays.judged]
    assert 60.0 < at[0] < 400.0 and 600.0 < at[-1] <= HORIZON


def test_ages_are_those_at_which_the_targets_have_come() -> None:
    delays = guessed_delays(600.0, HORIZON)
    delays.came[:] = np.linspace(0.3, MOST, len(delays.edges))
    choose_ages(delays)
    chosen = delays.came[delays.judged]
    before = [delays.came[k - 1] for k in np.flatnonzero(delays.judged)]
    assert (chosen >= TARGETS).all() and (np.array(before) < TARGETS).all()


def test_ages_may_be_given_and_are_exact() -> None:
    delays = guessed_delays(600.0, 4200.0, (60.0, 600.0, 4200.0))
    assert delays.edges[delays.judged].tolist() == [60.0, 600.0, 4200.0] and delays.choice[1] == -1
    for ages in ((5000.0,), (0.0, 10.0), tuple(float(n) for n in range(1, 11))):
        with pytest.raises(InputError, match=r"--ages has .* at most --late"):
            guessed_delays(600.0, 4200.0, ages)
