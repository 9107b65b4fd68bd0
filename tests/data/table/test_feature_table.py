"""The table against a dict, with keys that are made to collide."""

import copy
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pbodl.data.table.feature_table import Table
from pbodl.errors import InputError
from tests.oracles.table import NaiveTable

EVIL = [0, 1, 2**64 - 1, 2**63, *(i << 32 for i in range(40)), *(i << 56 for i in range(40))]
KEYS = st.lists(st.one_of(st.sampled_from(EVIL), st.integers(0, 60), st.integers(0, 2**64 - 1)), max_size=40)


def as_keys(keys: list[int]) -> np.ndarray:
    return np.array(keys, dtype=np.uint64)


def fill(table: Table, ref: NaiveTable, old_size: int, clock: float) -> None:
    """Initialise new rows as a model would, with what can be told apart afterwards."""
    for row in range(old_size, table.size):
        stamp = float(int(table.keys[row]) % 1000 + row)
        table.column("mean")[row] = (stamp, stamp + 0.5)
        table.last_seen[row] = clock
        table.field[row] = int(stamp) % 7
        ref.rows[int(table.keys[row])] = [stamp, clock]


def in_parts(work, n):
    """A spread as threads make it, the last part first."""
    edges = [0, n // 3, n // 2, n]
    for start, stop in reversed(list(pairwise(edges))):
        work(start, stop)


class TableMachine(RuleBasedStateMachine):
    @initialize(capacity=st.one_of(st.none(), st.integers(5, 60)), shared=st.booleans(), beside=st.booleans())
    def start(self, capacity, shared, beside):
        self.comp = Table({"mean": 2, "linear": 1}, capacity=capacity)
        if beside:
            self.comp.put_beside("linear")
        if shared:
            self.comp.spread = in_parts
        self.ref = NaiveTable(capacity)
        self.clock = 0.0

    @rule(keys=KEYS)
    def insert(self, keys):
        old_size, self.clock = self.comp.size, self.clock + 1.0
        assert self.comp.insert(as_keys(keys)).tolist() == self.ref.insert(keys)
        assert not self.comp.count[old_size:].any()
        fill(self.comp, self.ref, old_size, self.clock)

    @rule(samples=st.lists(st.lists(st.sampled_from(EVIL), max_size=5), max_size=12), skip=st.integers(0, 3))
    def insert_samples(self, samples, skip):
        skip, old_size, self.clock = min(skip, len(samples)), self.comp.size, self.clock + 1.0
        indptr = np.cumsum([0] + [len(sample) for sample in samples]).astype(np.int64)
        flat = as_keys([key for sample in samples for key in sample])
        rows, stop = self.comp.insert_samples(flat, indptr, skip)
        assert (rows.tolist(), stop) == self.ref.insert_samples(samples, skip)
        fill(self.comp, self.ref, old_size, self.clock)

    @rule(data=st.data(), n=st.integers(0, 30))
    def evict(self, data, n):
        size = self.comp.size
        scores = data.draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, np.inf]), min_size=size, max_size=size))
        self.comp.evict(np.array(scores), n)
        self.ref.evict(scores, n)

    @rule(age=st.integers(0, 4))
    def remove_older(self, age):
        self.comp.remove_older(self.clock - age)
        self.ref.remove_older(self.clock - age)

    @rule()
    def save_and_load(self):
        loaded = Table({"mean": 2, "linear": 1}, capacity=self.comp.capacity)
        loaded.load_state(self.comp.state())
        self.comp = loaded

    @invariant()
    def same_content(self):
        assert self.comp.size == len(self.comp) == len(self.ref.rows)
        assert self.comp.keys.tolist() == list(self.ref.rows)
        ref = [(stamp, stamp + 0.5, seen, int(stamp) % 7) for stamp, seen in self.ref.rows.values()]
        means = self.comp.column("mean").T.tolist()
        comp = list(zip(*means, self.comp.last_seen.tolist(), self.comp.field.tolist(), strict=True))
        assert comp == ref
        assert (self.comp.evicted, self.comp.expired) == (self.ref.evicted, self.ref.expired)
        probes = [*EVIL, 5, 12345]
        assert self.comp.find(as_keys(probes)).tolist() == self.ref.find(probes)


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=15)


@given(st.lists(KEYS, max_size=10))
def test_find_changes_nothing(many):
    table = Table({"mean": 1})
    table.insert(as_keys(EVIL))
    before = table.state()
    for keys in many:
        table.find(as_keys(keys))
    for name, array in table.state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.nojit
def test_growth_keeps_the_contents():
    table = Table({"mean": 3})
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**64, 1500, dtype=np.uint64)
    for start in range(0, len(keys), 100):
        old_size = table.size
        rows = table.insert(keys[start : start + 100])
        assert rows.tolist() == list(range(old_size, old_size + 100))
        table.column("mean")[old_size:] = np.arange(old_size, table.size)[:, None]
        table.count[old_size:] = 7
    assert table.find(keys).tolist() == list(range(1500))
    np.testing.assert_array_equal(table.column("mean"), np.repeat(np.arange(1500), 3).reshape(1500, 3))
    assert (table.count == 7).all()
    assert table.column("mean").flags.c_contiguous


def test_keys_that_share_their_low_bits_do_not_crowd():
    table = Table({})
    keys = np.arange(200_000, dtype=np.uint64) << np.uint64(40)
    table.insert(keys)
    assert table.find(keys).tolist() == list(range(len(keys)))


def test_memory_per_row_is_bounded():
    columns = {"mean": 16, "variance": 16, "linear_mean": 1, "linear_variance": 1}
    table = Table(columns)
    table.put_beside("linear_mean", "linear_variance")
    per_row = []
    rng = np.random.default_rng(0)
    while table.size < 2_000_000:
        table.insert(rng.integers(0, 2**64, 50_000, dtype=np.uint64))
        if table.size > 1_000_000:
            per_row.append(table.nbytes / table.size)
    assert np.mean(per_row) <= 200


def test_a_bounded_table_allocates_no_more_than_its_capacity():
    table = Table({"mean": 16}, capacity=1000)
    table.insert(np.arange(1000, dtype=np.uint64))
    assert table.nbytes == 1000 * (64 + 8 + 2 + 8 + 4) + 2048 * 4
    table = Table({"mean": 16, "linear": 1}, capacity=1000)
    table.put_beside("linear")
    table.insert(np.arange(1000, dtype=np.uint64))
    assert table.nbytes == 1000 * (64 + 8 + 2 + 16) + 2048 * 4


def test_insert_samples_goes_on_after_an_eviction():
    table = Table({}, capacity=4)
    keys, indptr = as_keys([1, 2, 3, 4, 3, 5, 1]), np.array([0, 2, 4, 6, 7])
    rows, stop = table.insert_samples(keys, indptr, 0)
    assert (rows.tolist(), stop) == ([0, 1, 2, 3], 2)
    table.evict(np.array([0.0, 1.0, 2.0, 3.0]), 2)
    rows, stop = table.insert_samples(keys, indptr, stop)
    assert (rows.tolist(), stop, table.evicted) == ([0, 2, 3], 4, 2)
    assert table.keys.tolist() == [3, 4, 5, 1]


def test_a_sample_larger_than_the_capacity_is_refused():
    table = Table({}, capacity=3)
    with pytest.raises(InputError, match="4 distinct features, more than the capacity of 3"):
        table.insert_samples(as_keys([1, 2, 3, 4, 4]), np.array([0, 5]), 0)
    assert table.size == 0


def test_state_is_a_copy():
    table = Table({"mean": 1})
    table.insert(as_keys([1, 2]))
    table.column("mean")[:] = 1.0
    state = table.state()
    table.column("mean")[:] = 2.0
    assert (state["mean"] == 1.0).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mean": np.zeros((2, 3))}, "'mean' has shape (2, 3); this table needs (2, 2)"),
        ({"count": np.zeros(1)}, "'count' has shape (1,)"),
        ({"keys": np.array([5, 5], dtype=np.uint64)}, "the key 5 twice"),
        ({"other": np.zeros(2)}, "a table's state holds"),
    ],
)
def test_a_wrong_state_is_refused_and_changes_nothing(change, words):
    table = Table({"mean": 2})
    table.insert(as_keys([1, 2]))
    with pytest.raises(InputError) as error:
        table.load_state(table.state() | change)
    assert words in str(error.value)
    assert table.keys.tolist() == [1, 2]


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"time_to_live": 0.0}, {"time_to_live": float("nan")}])
def test_wrong_bounds_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Table({"mean": 1}, **wrong)


def test_evict_wants_a_score_for_every_row():
    table = Table({})
    table.insert(as_keys([1, 2]))
    for scores in (np.zeros(3), np.array([0.0, np.nan])):
        with pytest.raises(ValueError, match="one score"):
            table.evict(scores, 1)


@given(KEYS, KEYS)
@settings(max_examples=50)
def test_first_entries_of_new_rows(before, keys):
    table = Table({})
    table.insert(as_keys(before))
    old_size = table.size
    rows = table.insert(as_keys(keys))
    assert table.first_entries(rows, old_size).tolist() == [keys.index(key) for key in table.keys[old_size:].tolist()]


@pytest.mark.parametrize("beside", [(), ("linear",)])
def test_a_deep_copy_grows_as_the_table_does(beside):
    table, keys = Table({"mean": 2, "linear": 1}), np.arange(5000, dtype=np.uint64)
    if beside:
        table.put_beside(*beside)
    table.insert(keys[:70])
    twin = copy.deepcopy(table)
    for one in (table, twin):
        one.column("mean")[:], one.column("linear")[:], one.count[:] = 1.5, 2.5, 3
        one.insert(keys)
    assert table.size == twin.size == len(keys)
    for name in ("keys", "field", "last_seen", "count", "mean", "linear"):
        np.testing.assert_array_equal(twin.state()[name][:70], table.state()[name][:70])
    assert (twin.column("linear")[:70] == 2.5).all()
