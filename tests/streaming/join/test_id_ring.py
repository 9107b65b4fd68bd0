"""The ring of ids against a dict, with ids that crowd in the index."""

import numpy as np
import pytest

from pbodl.streaming.join.id_ring import DONE, empty_ring, enter, enter_all, find, leave, retire

pytestmark = [pytest.mark.nojit, pytest.mark.filterwarnings("ignore:overflow encountered")]  # keys wrap around

CAPACITY = 8


def put(ring, number, key):
    """A new entry, as the join adds it."""
    ring.ids[number % CAPACITY] = key
    ring.status[number % CAPACITY] = 0
    enter(ring, number)
    ring.marks[2] = number + 1


def number_of(ring, key):
    slot = find(ring, np.uint64(key))
    return None if slot < 0 else int(ring.slots[slot]) - 1


def test_ids_come_and_go_as_in_a_dict():
    rng = np.random.default_rng(0)
    ring, ref, number = empty_ring(CAPACITY), {}, 0
    for _ in range(500):
        absent = [key for key in range(1, 30) if key not in ref]
        if number - ring.marks[0] < CAPACITY and rng.random() < 0.6:
            key = int(rng.choice(absent))
            put(ring, number, key)
            ref[key] = number
            number += 1
        elif ref and rng.random() < 0.4:
            key = int(rng.choice(list(ref)))
            ring.status[ref[key] % CAPACITY] = DONE
            leave(ring, find(ring, np.uint64(key)))
            del ref[key]
        elif number > ring.marks[0]:
            oldest = int(ring.marks[0])
            retire(ring)
            ref = {key: at for key, at in ref.items() if at != oldest}
        assert {key: number_of(ring, key) for key in range(1, 30)} == {key: ref.get(key) for key in range(1, 30)}


def test_the_index_is_made_again_from_the_entries():
    ring = empty_ring(CAPACITY)
    for number in range(5):
        put(ring, number, 100 + number)
    ring.slots[:] = 1  # nonsense, as before a state is loaded
    enter_all(ring, np.array([1, 3]))
    assert [number_of(ring, 100 + number) for number in range(5)] == [None, 1, None, 3, None]


def test_the_index_is_never_more_than_half_full():
    for capacity in (1, 2, 3, 8, 9, 1000):
        assert len(empty_ring(capacity).slots) >= 2 * capacity
