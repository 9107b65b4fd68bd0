"""Negative sampling: which rows are kept, and what that does to the odds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.convert import from_data
from pbodl.data.sampling import NegativeSets, auto_rate, check_rate, kept_rows, recalibrate, selected, sets_with
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError

SCHEMA = Schema(label="click", time="time", weight="weight", fields=[Field("tags", kind="multi"), Field("ad", group="ad")])


@given(st.floats(1e-6, 1 - 1e-6), st.floats(0.001, 1.0))
def test_recalibration_is_bayes_rule(p: float, kept: float) -> None:
    # Of a stream with this share of clicks, all clicks and a share of the others are left: undo it by counting.
    sampled = np.array([p / (p + (1 - p) * kept)])
    np.testing.assert_allclose(recalibrate(sampled, kept), p, rtol=1e-9)


def test_recalibration_keeps_the_ends_and_the_order() -> None:
    ctr = np.linspace(0, 1, 101)
    comp = recalibrate(ctr, 0.05)
    assert comp[0] == 0.0
    assert comp[-1] == 1.0
    assert (np.diff(comp) > 0).all()
    assert recalibrate(ctr, 1.0) is ctr


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.01, float("nan"), "auto"])
def test_rates_outside_are_refused(rate: float | str) -> None:
    with pytest.raises(InputError, match=r"negative_rate is .*; it must be above 0 and at most 1"):
        check_rate(rate)


@pytest.mark.parametrize("rate", [1e-6, 0.5, 1.0, 1])
def test_rates_inside_are_given_back(rate: float) -> None:
    assert check_rate(rate) == rate
    assert type(check_rate(rate)) is float


@given(st.floats(0.0, 1.0))
def test_the_automatic_rate_leaves_ten_negatives_to_a_click_at_most(ctr: float) -> None:
    rate = auto_rate(ctr)
    assert 0.0 <= rate <= 1.0
    if rate < 1.0:
        assert ctr == pytest.approx(0.1 * rate * (1 - ctr), rel=1e-9)
    else:
        assert ctr >= 0.0999 * (1 - ctr)


@pytest.mark.nojit
def test_clicks_are_kept_and_of_the_others_their_share() -> None:
    clicks = (np.arange(20_000) % 10 == 0).astype(np.float32)
    kept = kept_rows(clicks, 0, 7, 0.3)
    assert kept[clicks == 1].all()
    share = kept[clicks == 0].mean()
    assert share == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / 18_000))


def test_a_rate_of_one_keeps_all() -> None:
    assert kept_rows(np.zeros(100, np.float32), 0, 0, 1.0).all()


def test_what_is_kept_depends_on_the_place_in_the_stream_alone() -> None:
    clicks = np.zeros(1000, np.float32)
    ref = kept_rows(clicks, 500, 3, 0.4)
    parts = [kept_rows(clicks[a:b], 500 + a, 3, 0.4) for a, b in ((0, 1), (1, 400), (400, 1000))]
    np.testing.assert_array_equal(np.concatenate(parts), ref)
    np.testing.assert_array_equal(kept_rows(clicks[:500], 1000, 3, 0.4), ref[500:])


def test_another_seed_keeps_others() -> None:
    clicks = np.zeros(10_000, np.float32)
    one, other = (kept_rows(clicks, 0, seed, 0.5) for seed in (1, 2))
    # As often together as two coins.
    assert np.mean(one & other) == pytest.approx(0.25, abs=0.025)
    shifted = kept_rows(clicks, 1, 1, 0.5)
    assert np.mean(one & shifted) == pytest.approx(0.25, abs=0.025)


def test_a_lower_rate_keeps_a_part_of_what_a_higher_does() -> None:
    clicks = np.zeros(5_000, np.float32)
    few, many = (kept_rows(clicks, 0, 0, rate) for rate in (0.1, 0.6))
    assert not (few & ~many).any()


def test_sets_are_independent_samples_that_together_count_a_row_once() -> None:
    clicks = np.where(np.arange(50_000) % 10 == 0, 1.0, 0.0).astype(np.float32)
    positions, rate = np.arange(100, 50_100, dtype=np.uint64), 0.3
    alone = [kept_rows(clicks, 100, 7 + number, rate) for number in range(3)]
    times = sets_with(clicks, positions, 7, rate, 3)
    np.testing.assert_array_equal(times, np.sum(alone, axis=0))
    np.testing.assert_array_equal(kept_rows(clicks, 100, 7, rate, 3), times > 0)
    once, paper = (NegativeSets(3, paper).powers(clicks, positions, 7, rate) for paper in (False, True))
    assert (once[clicks > 0] == 1.0).all() and (paper[clicks > 0] == 3.0).all()
    np.testing.assert_allclose(once, times / 3, rtol=1e-6)
    # A non-click counts 0.3 on the whole, as with one set; 1 - 0.7^3 of them are seen.
    others = clicks == 0
    assert abs(once[others].mean() - rate) < 4 * np.sqrt(rate * 0.7 / 3 / others.sum())
    assert abs((times[others] > 0).mean() - NegativeSets(3).share(rate)) < 4 * np.sqrt(0.25 / others.sum())
    assert NegativeSets(3).share(rate) == pytest.approx(1 - 0.7**3) and NegativeSets().share(rate) == rate


def test_kept_rows_of_a_batch() -> None:
    rows = [
        {"tags": [f"t{j}" for j in range(i % 4)], "ad": i, "time": float(i), "weight": 1.0 + i, "click": i % 2} for i in range(9)
    ]
    batch = from_data(SCHEMA, rows, labelled=True)
    kept = np.array([True, False, True, True, False, False, True, False, True])
    comp = selected(batch, kept)
    ref = from_data(SCHEMA, [row for row, keep in zip(rows, kept, strict=True) if keep], labelled=True)
    assert len(comp) == 5
    for left, right in zip(comp[:7], ref[:7], strict=True):
        assert left is not None and right is not None
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert selected(batch, np.ones(9, bool)) is batch
    assert len(selected(batch, np.zeros(9, bool))) == 0
    unlabelled = from_data(SCHEMA, rows, labelled=False)
    assert selected(unlabelled, kept).clicks is None
