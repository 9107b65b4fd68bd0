"""From new buckets to old ones: by numbers that lie inside both."""

import numpy as np
import pytest

from pbodl.data.hashing import hash_value
from pbodl.data.numbers import bucket
from pbodl.data.schema import Field
from pbodl.models.migration.rebinning import key_map

FINE = Field("age", kind="number", resolution=8)
USUAL = Field("age", kind="number")
EDGES = Field("age", kind="number", edges=[-2.0, 0.5, 10.0, 1000.0])


def key(field: Field, number: float) -> int:
    return hash_value(field.key_name, bucket(number, field.resolution, field.edges))


@pytest.mark.parametrize("numbers", [np.linspace(-50, 50, 401), np.geomspace(0.01, 1e9, 200)])
def test_a_finer_bucket_comes_from_the_one_around_it(numbers):
    to_old = key_map(USUAL, FINE)
    for number in numbers.tolist():
        assert to_old[key(FINE, number)] == key(USUAL, number)


def test_edges_take_over_what_is_in_their_middle():
    to_old = key_map(USUAL, EDGES)
    assert len(to_old) == 5
    assert to_old[key(EDGES, 5.0)] == key(USUAL, 0.5 * (0.5 + 10.0))
    assert to_old[key(EDGES, 1e6)] == key(USUAL, 1000.001) and to_old[key(EDGES, -9.0)] == key(USUAL, -2.000002)


def test_keys_stay_those_of_the_oldest_name():
    renamed = Field("years", kind="number", resolution=8, aliases=["age"])
    assert key_map(USUAL, renamed) == key_map(USUAL, FINE)


def test_the_edges_of_a_curve_start_from_the_bucket_that_they_lie_in_or_the_nearest_edge():
    curve = Field("age", kind="number", transform="curve", edges=[0.0, 5.0, 40.0])
    assert key_map(EDGES, curve) == {hash_value("age", i): key(EDGES, edge) for i, edge in enumerate(curve.edges)}
    other = Field("age", kind="number", transform="curve", edges=[-1.0, 4.0, 30.0, 50.0])
    assert key_map(curve, other) == {hash_value("age", i): hash_value("age", old) for i, old in enumerate([0, 1, 2, 2])}
    assert key_map(curve, EDGES)[key(EDGES, 5.0)] == hash_value("age", 1)
