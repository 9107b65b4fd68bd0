"""Predictions that wait for their final label."""

import numpy as np

from pbodl.streaming.served_predictions import ServedPredictions


def test_they_come_back_by_number_and_those_that_were_never_made_are_nan() -> None:
    served = ServedPredictions()
    served.put(np.array([3, 4, 7]), np.array([0.3, 0.4, 0.7]))
    served.put(np.array([8, 9]), np.array([0.8, 0.9]))
    np.testing.assert_array_equal(served.take(np.array([3, 4, 5])), [0.3, 0.4, np.nan])
    again = ServedPredictions()
    again.load_state(served.state())
    for one in (served, again):
        np.testing.assert_array_equal(one.take(np.array([7, 9, 30])), [0.7, 0.9, np.nan])
        one.put(np.array([31]), np.array([0.1]))
        np.testing.assert_array_equal(one.take(np.array([31])), [0.1])
        assert not len(one.take(np.zeros(0, np.int64)))


def test_memory_follows_what_waits() -> None:
    served, numbers = ServedPredictions(), np.arange(100)
    for turn in range(200):
        served.put(numbers + 100 * turn, np.full(100, float(turn)))
        if turn >= 3:
            np.testing.assert_array_equal(served.take(numbers + 100 * (turn - 3)), np.full(100, turn - 3.0))
    assert len(served.state()["ctr"]) == 300
