"""The time that events agree on."""

import numpy as np

from pbodl.streaming.join.stream_clock import AHEAD, DAY, LEAP, STEADY, STRAY, advance, copied, find_strays, new_clock

HOUR = 3600.0


def heard(times: list[float], skew: float = HOUR) -> tuple[list[int], float]:
    clock = new_clock()
    return [int(advance(clock, time, skew)) for time in times], float(clock.times[0])


def test_it_is_the_earliest_of_the_last_five_and_never_goes_back() -> None:
    draws, times, ref = np.random.default_rng(0), [], -np.inf
    clock = new_clock()
    for number in range(300):
        times.append(1000.0 + number + draws.uniform(-30, 30))
        advance(clock, times[-1], HOUR)
        agreed = min(times[-5:])
        ref = agreed if number < 5 else max(ref, agreed)
        assert clock.times[0] == ref


def test_one_event_ahead_moves_nothing() -> None:
    steady = [1000.0 + n for n in range(20)]
    assert heard([*steady, 2000.0, 1020.0, 1021.0])[1] == 1018.0
    assert heard([2000.0, *steady])[1] == 1015.0
    told, now = heard([*steady, 1000.0 + 5 * HOUR, 1000.0 + 2 * DAY, 1020.0])
    assert told[-3:] == [AHEAD, STRAY, STEADY] and now == 1016.0


def test_ten_in_a_row_are_believed() -> None:
    told, now = heard([1000.0] * 6 + [1000.0 + 5 * HOUR + n for n in range(10)])
    assert told[-10:] == [AHEAD] * 9 + [LEAP] and now == 1000.0 + 5 * HOUR + 9
    told, _ = heard([1000.0] * 6 + [1000.0 + 5 * HOUR] * 9 + [1001.0] + [1000.0 + 5 * HOUR] * 9)
    assert LEAP not in told


def test_strays_are_found_before_anything_changes() -> None:
    clock = new_clock()
    for time in (1000.0, 1001.0):
        advance(clock, time, HOUR)
    times, marks = np.array([1002.0, 1e8, 1003.0, *[1e8] * 10]), np.zeros(13, bool)
    assert find_strays(times, copied(clock), HOUR, marks) == 12
    assert np.flatnonzero(marks).tolist() == [1, *range(3, 12)]
    assert clock.counts[0] == 2
