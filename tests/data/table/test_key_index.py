"""The index of keys against a dict; keys that share their low bits, and keys that begin in the same slot."""

import numpy as np
import pytest

from pbodl.data.table import key_index

pytestmark = [pytest.mark.nojit, pytest.mark.filterwarnings("ignore:overflow encountered")]  # keys wrap around

SLOTS = 128


def keys_of(kind, n):
    numbers = np.arange(1, n + 1, dtype=np.uint64)
    return {
        "drawn": np.random.default_rng(0).integers(0, 2**63, n, dtype=np.uint64),
        "low bits shared": numbers << np.uint64(40),
        "one slot": numbers * np.uint64(pow(int(key_index.MIX_1), -1, 2**64)),  # the products are 1, 2, 3, ...
    }[kind]


@pytest.fixture(params=["drawn", "low bits shared", "one slot"])
def keys(request):
    return keys_of(request.param, 90)


def inserted(keys, limit=90):
    slots, row_keys = np.zeros(SLOTS, np.uint32), np.zeros(96, np.uint64)
    rows = np.full(len(keys), -9, np.int32)
    stopped, size = key_index.insert_keys(slots, row_keys, 0, limit, keys, 0, rows)
    return slots, row_keys, rows, stopped, size


def test_rows_are_numbered_as_keys_first_come(keys):
    given = keys[np.array([0, 1, 0, 2, 89, 1, 3])]
    slots, row_keys, rows, stopped, size = inserted(given)
    assert rows.tolist() == [0, 1, 0, 2, 3, 1, 4] and (stopped, size) == (7, 5)
    places = np.zeros(3, np.int64)
    key_index.find_first_entries(rows, 2, places)
    assert places.tolist() == [3, 4, 6]
    found = np.zeros(3, np.int64)
    key_index.find_rows(slots, row_keys, keys[np.array([89, 50, 0])], found)
    assert found.tolist() == [3, -1, 0]


def test_inserting_stops_where_there_is_no_room(keys):
    given = keys[np.array([0, 1, 2, 1, 0, 3, 1])]
    *_, rows, stopped, size = inserted(given, limit=3)
    assert (stopped, size) == (5, 3) and rows.tolist() == [0, 1, 2, 1, 0, -9, -9]


def test_many_keys_are_found_again(keys):
    slots, row_keys, rows, _, size = inserted(keys)
    assert size == len(keys) and rows.tolist() == list(range(90))
    again = np.zeros(SLOTS, np.uint32)
    assert key_index.enter_rows(again, row_keys, size) == -1
    for index in (slots, again):
        found = np.zeros(len(keys), np.int64)
        key_index.find_rows(index, row_keys, keys, found)
        np.testing.assert_array_equal(found, rows)


def test_a_key_that_stands_there_twice_is_told(keys):
    row_keys = keys[np.array([0, 1, 2, 1])]
    assert key_index.enter_rows(np.zeros(SLOTS, np.uint32), row_keys, 4) == 3


@pytest.mark.parametrize(("room", "ref"), [(0, 1), (1, 1), (2, 2), (3, 3), (9, 4)])
def test_samples_that_fit(keys, room, ref):
    slots, row_keys, *_ = inserted(keys[:2])
    # Samples: known and known; two new; one of these and another new; a fourth new.
    samples = keys[np.array([0, 1, 5, 6, 5, 7, 8])]
    indptr = np.array([0, 2, 4, 6, 7])
    fresh = np.zeros(64, np.uint32)
    assert key_index.fitting_samples(slots, row_keys, room, samples, indptr, 0, fresh) == ref


def test_samples_that_fit_from_a_later_one_on(keys):
    slots, row_keys, *_ = inserted(keys[:1])
    samples, indptr = keys[np.array([0, 5, 6, 6, 7])], np.array([0, 1, 2, 3, 4, 5])
    assert key_index.fitting_samples(slots, row_keys, 1, samples, indptr, 2, np.zeros(64, np.uint32)) == 4


@pytest.mark.parametrize("rows", [0, 1, 47, 48, 49, 1000, 1536])
def test_slots_are_a_power_of_two_filled_to_three_quarters_at_most(rows):
    slots = key_index.slots_for(rows)
    assert slots >= key_index.SMALLEST and slots & (slots - 1) == 0 and rows <= 0.75 * slots
