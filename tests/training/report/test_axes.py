"""Axes: round ticks, within the axis, not too many."""

from hypothesis import given
from hypothesis import strategies as st

from pbodl.training.report.axes import MOST_TICKS, chance_scale, number_scale, time_scale

numbers = st.floats(-1e12, 1e12).filter(lambda x: x == 0 or abs(x) > 1e-9)


@given(numbers, st.floats(1e-6, 1e12))
def test_ticks_of_numbers(low, span):
    scale = number_scale(low, low + span)
    values = [value for value, _ in scale.ticks]
    slack = 1e-6 * (scale.high - scale.low) + 1e-6 * abs(low)
    assert len(values) <= 8
    assert values == sorted(values)
    assert all(scale.low - slack <= value <= scale.high + slack for value in values)


def test_labels_tell_ticks_apart():
    for low, high in ((0.3821, 0.3829), (0.0, 1.0), (0.0, 5_000_000.0), (-3.0, 3.0)):
        labels = [label for _, label in number_scale(low, high).ticks]
        assert len(labels) >= 3
        assert len(set(labels)) == len(labels)


@given(st.floats(0.0, 2e9), st.floats(60.0, 3e8))
def test_ticks_of_times(low, span):
    scale = time_scale(low, low + span)
    assert len(scale.ticks) <= MOST_TICKS + 1
    assert all(low <= value <= low + span for value, _ in scale.ticks)


def test_days_and_hours():
    assert [label for _, label in time_scale(0.0, 3 * 86400.0).ticks][:2] == ["1 Jan", "12:00"]
    assert [label for _, label in time_scale(0.0, 8 * 86400.0).ticks][:3] == ["1 Jan", "2 Jan", "3 Jan"]


def test_places():
    scale = number_scale(0.0, 10.0)
    assert (scale.place(0.0, 50, 150), scale.place(10.0, 50, 150), scale.place(5.0, 150, 50)) == (50, 150, 100)
    chances = chance_scale(0.1, 0.9)
    assert round(chances.place(0.5, 0, 100)) == 50
    assert chances.place(0.01, 0, 100) < 0
