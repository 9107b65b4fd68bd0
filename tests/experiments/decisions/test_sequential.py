"""Confidence sequences and the test of shares: right at all times at once, by simulation."""

import math

import numpy as np

from pbodl.experiments.decisions.sequential import clustered_deviation, half_width, shares_factor


def test_an_ordinary_interval_fails_who_looks_often_and_a_sequence_does_not():
    draws = np.random.default_rng(3)
    runs, looks = 400, np.arange(200, 20_001, 200)
    ordinary = sequence = 0
    for _ in range(runs):
        terms = draws.standard_normal(looks[-1])
        sums, squares = np.cumsum(terms)[looks - 1], np.cumsum(terms**2)[looks - 1]
        means, deviations = sums / looks, np.sqrt(squares / looks - (sums / looks) ** 2)
        ordinary += bool((np.abs(means) > 1.96 * deviations / np.sqrt(looks)).any())
        widths = np.array([half_width(int(n), float(s)) for n, s in zip(looks, deviations, strict=True)])
        sequence += bool((np.abs(means) > widths).any())
    assert ordinary / runs > 0.25
    assert sequence / runs <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / runs)
    assert sequence > 0  # and is not needlessly wide


def test_terms_of_one_unit_count_together():
    draws = np.random.default_rng(4)
    units = draws.standard_normal(500)
    terms, unit = np.repeat(units, 8), np.repeat(np.arange(500), 8)
    ref = units.std() / math.sqrt(500)  # the error of the mean of the units
    assert abs(clustered_deviation(terms, unit) / math.sqrt(4000) / ref - 1.0) < 0.01
    alone = clustered_deviation(terms, np.arange(4000)) / math.sqrt(4000)
    assert alone < 0.5 * ref


def test_wrong_shares_are_found_and_right_ones_rarely_suspected():
    draws = np.random.default_rng(5)
    level = -math.log(0.01)
    suspected = 0
    for _ in range(400):
        arms = np.cumsum(draws.random(30_000) < 0.3)[299::300]
        suspected += any(
            shares_factor([int(n), 300 * (look + 1) - int(n)], [0.3, 0.7]) > level for look, n in enumerate(arms.tolist())
        )
    assert suspected / 400 <= 0.01 + 3.0 * math.sqrt(0.01 * 0.99 / 400)
    assert shares_factor([31_200, 68_800], [0.3, 0.7]) > level
    assert shares_factor([30_000, 70_000], [0.3, 0.7]) < 0.0
