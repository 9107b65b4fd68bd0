"""Running moments: against numpy's on the values so far."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.convert import from_data
from pbodl.data.running_scale import FARTHEST, RunningScale
from pbodl.data.schema import Field, Schema

SCHEMA = Schema(
    label="click",
    fields=[
        Field("age", kind="number", transform="scale"),
        Field("ad", group="ad"),
        Field("price", kind="number"),
        Field("speed", kind="number", transform="scale"),
    ],
)
numbers = st.floats(-1e4, 1e4, width=32)


def batch_of(ages: list[Any], speeds: list[Any] | None = None) -> Any:
    speeds = speeds or [0.0] * len(ages)
    rows = [{"age": age, "ad": "x", "price": 3.0, "speed": speed} for age, speed in zip(ages, speeds, strict=True)]
    return from_data(SCHEMA, rows, labelled=False)


def naive(values: list[float]) -> list[float]:
    """Each value standardised by those before it."""
    scaled = []
    for i, x in enumerate(values):
        before = np.array(values[:i])
        if len(set(values[:i])) < 2:
            scaled.append(0.0)
            continue
        deviation = before.std(ddof=1) * np.sqrt(1 + 1 / len(before))
        scaled.append(float(np.clip((x - before.mean()) / deviation, -FARTHEST, FARTHEST)))
    return scaled


@pytest.mark.nojit
@given(st.lists(numbers, min_size=1, max_size=30))
def test_values_are_standardised_by_those_before_them(values: list[float]) -> None:
    comp = RunningScale(SCHEMA).learn(batch_of(values))[::4]
    np.testing.assert_allclose(comp, naive(values), rtol=1e-3, atol=1e-3)


def test_other_features_and_missing_numbers_pass_as_they_are() -> None:
    scale = RunningScale(SCHEMA)
    batch = batch_of([None, float("nan"), 5.0], [2.0, 2.0, 2.0])
    scaled = scale.learn(batch).reshape(3, 4)
    np.testing.assert_array_equal(scaled[:2, 0], 1.0)
    np.testing.assert_array_equal(scaled[:, 1:3], 1.0)
    assert scale.moments[0, 0] == 1
    assert scale.moments[3, 0] == 3
    np.testing.assert_array_equal(scale.moments[1:3], 0.0)


@pytest.mark.parametrize(("mean", "deviation"), [(40.0, 10.0), (2014.0, 3.0), (0.002, 1e-4), (-3e5, 1e5), (1e6, 10.0)])
def test_wherever_numbers_lie_they_are_soon_standard(mean: float, deviation: float) -> None:
    rng = np.random.default_rng(0)
    ages, speeds = rng.normal(mean, deviation, 400), rng.normal(1.0, 5.0, 400)
    scaled = RunningScale(SCHEMA).learn(batch_of(ages.tolist(), speeds.tolist())).reshape(-1, 4)
    for column in (0, 3):
        assert abs(scaled[30:, column].mean()) < 0.3
        assert scaled[30:, column].std() == pytest.approx(1.0, abs=0.15)


def test_a_constant_says_nothing() -> None:
    np.testing.assert_array_equal(RunningScale(SCHEMA).learn(batch_of([0.1] * 50))[::4], 0.0)


def test_an_outlier_is_held_at_ten_deviations() -> None:
    scale = RunningScale(SCHEMA)
    scale.learn(batch_of([1.0, 2.0, 3.0] * 20))
    np.testing.assert_array_equal(scale.peek(batch_of([1e30, -1e30]))[::4], [FARTHEST, -FARTHEST])
    scale.learn(batch_of([3e38, -3e38]))
    assert np.isfinite(scale.moments).all()


@given(st.lists(numbers, min_size=1, max_size=30), st.integers(0, 30))
def test_batches_and_single_rows_agree(values: list[float], cut: int) -> None:
    ref, comp = RunningScale(SCHEMA), RunningScale(SCHEMA)
    whole = ref.learn(batch_of(values))
    parts = [comp.learn(batch_of(part)) for part in (values[:cut], values[cut:]) if part]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(comp.moments, ref.moments)


def test_peek_sees_what_learn_would_and_changes_nothing() -> None:
    scale = RunningScale(SCHEMA)
    scale.learn(batch_of([1.0, 5.0, 9.0]))
    before = scale.moments.copy()
    peeked = scale.peek(batch_of([7.0]))
    np.testing.assert_array_equal(scale.moments, before)
    np.testing.assert_array_equal(scale.learn(batch_of([7.0])), peeked)


def test_without_scaled_fields_values_are_not_even_copied() -> None:
    schema = Schema(label="click", fields=[Field("ad", group="ad"), Field("price", kind="number")])
    batch = from_data(schema, {"ad": 1, "price": 3.5}, labelled=False)
    assert RunningScale(schema).learn(batch) is batch.values


def test_loaded_moments_are_a_copy() -> None:
    ref, comp = RunningScale(SCHEMA), RunningScale(SCHEMA)
    ref.learn(batch_of([1.0, 5.0]))
    state = {"scale.moments": ref.moments.copy()}
    comp.load(state)
    state["scale.moments"][:] = 9.0
    np.testing.assert_array_equal(comp.moments, ref.moments)


def list_schema():
    return Schema(label="click", fields=[Field("seen", kind="multi"), Field("ad")])


def lists_of(*lengths):
    return [{"seen": [f"v{i}" for i in range(n)] if n is not None else None, "ad": 1, "click": 0} for n in lengths]


def test_a_list_counts_by_the_mean_length_of_those_before_it():
    batch = from_data(list_schema(), lists_of(8, 2, None, 0, 30, 100), labelled=True)
    whole, single = RunningScale(list_schema()), RunningScale(list_schema())
    comp = whole.learn(batch)
    # The first list by its own length; 30 by the mean of 8 and 2, or by a quarter of its own; missing and empty ones not at all.
    usual = [8.0, 8.0, None, None, max(5.0, 30 / 4), max(40 / 3, 100 / 4)]
    for s, length in enumerate(usual):
        row = comp[batch.indptr[s] : batch.indptr[s + 1]]
        assert row[-1] == 1.0  # the ad
        np.testing.assert_allclose(row[:-1], 1.0 if length is None else np.sqrt(2.0 / length), rtol=1e-6)
    for s in range(len(batch)):
        one = batch.rows(s, s + 1)
        np.testing.assert_array_equal(single.peek(one), comp[batch.indptr[s] : batch.indptr[s + 1]])
        single.learn(one)
    np.testing.assert_array_equal(single.moments, whole.moments)
    np.testing.assert_array_equal(batch.values, 1.0)


def test_short_lists_and_those_of_older_snapshots_count_1_for_every_value():
    short, long = (from_data(list_schema(), lists_of(*lengths), labelled=True) for lengths in ([2, 1, 2, 3], [50, 50]))
    np.testing.assert_array_equal(RunningScale(list_schema()).learn(short), 1.0)
    older = RunningScale(list_schema())
    older.load({"scale.moments": np.zeros_like(older.moments)})
    np.testing.assert_array_equal(older.learn(long), 1.0)
    assert not older.moments.any()
