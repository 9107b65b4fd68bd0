"""The table: feature keys to dense rows, with a row of every column for each key.

Keys get rows 0, 1, 2, ... in order of first arrival. The columns are plain float32 arrays over those rows, for the kernels.
Eviction and time to live drop rows: they compact the columns and rebuild the index.

The table does not decide *what* to evict: the model scores its rows.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pbodl._jit import jit
from pbodl.data.hashing import wrapping
from pbodl.data.table.key_index import SMALLEST, enter_rows, find_first_entries, find_rows, fitting_samples, insert_keys, slots_for
from pbodl.data.table.memory import aligned, beside_each_other
from pbodl.errors import InputError

# Below this many rows the arrays grow by half, above it by a quarter: there, unused memory costs more than copying.
LARGE = 1_000_000
ABOUT = ("keys", "field", "last_seen", "count")  # what every row has besides its columns
STATE = (*ABOUT, "evicted", "expired")
Work = Callable[[int, int], None]  # does rows start to stop, each independently of all other rows
Spread = Callable[[Work, int], None]  # has the work done for rows 0 to n, perhaps by several threads


def at_once(work: Work, n: int) -> None:
    """Do all rows in the calling thread."""
    work(0, n)


@jit
def _compact(column, kept):
    """Move row kept[i] to row i; no row is overwritten before it was moved. MODIFIES: column."""
    for i in range(kept.shape[0]):
        for j in range(column.shape[1]):
            column[i, j] = column[kept[i], j]


class Table:
    """Rows of float32 columns, by feature key.

    columns       name -> width: `column(name)` has shape [size, width]
    capacity      the largest number of rows that `insert_samples` makes; None: no limit
    time_to_live  how long, on the model's clock, an unused row stays; None: forever

    >>> table = Table({"mean": 2})
    >>> table.insert(np.array([7, 9, 7], dtype=np.uint64)).tolist()
    [0, 1, 0]
    >>> table.find(np.array([9, 8], dtype=np.uint64)).tolist()
    [1, -1]
    """

    def __init__(self, columns: Mapping[str, int], capacity: int | None = None, time_to_live: float | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise InputError(f"capacity is {capacity}; it must be at least 1, or None for no limit")
        if time_to_live is not None and not time_to_live > 0:
            raise InputError(f"time_to_live is {time_to_live}; it must be above 0, or None to keep every row")
        self.capacity = capacity
        self.time_to_live = time_to_live
        self.size = self.evicted = self.expired = 0
        self.spread: Spread = at_once  # who does work that is independent row by row
        self._widths = dict(columns)
        self._beside: tuple[str, ...] = ()
        self._take(self._room(0))
        self._slots = np.zeros(SMALLEST, dtype=np.uint32)

    def __len__(self) -> int:
        return self.size

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The key of each row."""
        return self._keys[: self.size]

    @property
    def field(self) -> NDArray[np.uint16]:
        """The schema's field of each row's feature; the model writes it."""
        return self._field[: self.size]

    @property
    def last_seen(self) -> NDArray[np.float64]:
        """The model's clock when each row was last learned from; the model writes it."""
        return self._last_seen[: self.size]

    @property
    def count(self) -> NDArray[np.uint32]:
        """How often each row was learned from; the model writes it."""
        return self._count[: self.size]

    def column(self, name: str) -> NDArray[np.float32]:
        """A column, [size, width]: a view, valid until rows are added or dropped."""
        return self._columns[name][: self.size]

    def put_beside(self, *columns: str) -> None:
        """Store a row's numbers in these columns, of width 1, and its `last_seen` and `count` side by side in memory.

        Threads that change neighbouring rows then seldom share a cache line. One thread alone is faster with plain columns.
        """
        self._beside = columns
        self._resize(len(self._keys))

    def arrays(self, spare: int) -> dict[str, NDArray]:
        """All arrays that learning changes, by name, with `spare` unused rows at the end, whose contents may vanish."""
        if self.size + spare > len(self._keys):
            self._resize(self._larger() + spare)
        arrays: dict[str, NDArray] = {"last_seen": self._last_seen, "count": self._count, **self._columns}
        return {name: array[: self.size + spare] for name, array in arrays.items()}

    @property
    def nbytes(self) -> int:
        """The memory of all arrays, including the index and the room for growth."""
        records = ("last_seen", "count", *self._beside) if self._beside else ()
        apart = sum(array.nbytes for name, array in self._all().items() if name not in records)
        return self._slots.nbytes + apart + (len(self._keys) * self._count.strides[0] if records else 0)

    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The row of each key, -1 if it is unseen; changes nothing."""
        rows = np.empty(len(keys), dtype=np.int32)
        with wrapping():
            find_rows(self._slots, self._keys, keys, rows)
        return rows

    def insert(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The row of each key; unseen keys get new rows at the end, in order of arrival, whatever the capacity.

        The caller fills the new rows, from the old size on; `field`, `last_seen` and `count` start at 0.
        """
        if self.spread is at_once:
            return self._insert(keys)
        rows = np.empty(len(keys), dtype=np.int32)
        with wrapping():  # several threads look up known keys; one thread then inserts the others
            self.spread(lambda a, b: find_rows(self._slots, self._keys, keys[a:b], rows[a:b]), len(keys))
        unseen = np.flatnonzero(rows < 0)
        rows[unseen] = self._insert(keys[unseen])
        return rows

    def _insert(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        rows = np.empty(len(keys), dtype=np.int32)
        old_size = self.size
        done = 0
        while done < len(keys):
            limit = min(len(self._keys), 3 * len(self._slots) // 4)
            with wrapping():
                done, self.size = insert_keys(self._slots, self._keys, self.size, limit, keys, done, rows)
            if done < len(keys):
                self._grow()
        self._field[old_size : self.size] = 0
        self._last_seen[old_size : self.size] = 0.0
        self._count[old_size : self.size] = 0
        return rows

    def first_entries(self, rows: NDArray[np.int32], old_size: int) -> NDArray[np.int64]:
        """The first index in `rows`, the result of the last `insert`, of each row that it made, from `old_size` on."""
        first = np.empty(self.size - old_size, dtype=np.int64)
        find_first_entries(rows, old_size, first)
        return first

    def insert_samples(self, keys: NDArray[np.uint64], indptr: NDArray[np.int64], start: int) -> tuple[NDArray[np.int32], int]:
        """As `insert`, for whole samples from `start` on; returns the rows of samples start to stop, and stop.

        It stops before the first sample that would exceed the table's capacity; the caller then evicts rows and continues there.
        """
        stop = len(indptr) - 1
        if self.capacity is not None and self.size + indptr[-1] - indptr[start] > self.capacity:
            stop = self._fitting(keys, indptr, start, self.capacity)
        return self.insert(keys[indptr[start] : indptr[stop]]), stop

    def _fitting(self, keys: NDArray[np.uint64], indptr: NDArray[np.int64], start: int, capacity: int) -> int:
        """The first sample from `start` on that does not fit."""
        room = max(0, capacity - self.size)
        fresh_slots = np.zeros(slots_for(min(room + 1, int(indptr[-1] - indptr[start]))), dtype=np.int64)
        with wrapping():
            stop = int(fitting_samples(self._slots, self._keys, room, keys, indptr, start, fresh_slots))
        if stop == start < len(indptr) - 1:
            distinct = len(np.unique(keys[indptr[start] : indptr[start + 1]]))
            if distinct > capacity:
                raise InputError(
                    f"one sample has {distinct} distinct features, more than the capacity of {capacity}; "
                    "give the model a larger capacity"
                )
        return stop

    def evict(self, scores: NDArray[np.float64], n: int) -> None:
        """Drop the n rows with the lowest scores (among equals, the first rows); the others keep their order."""
        n = min(n, self.size)
        if len(scores) != self.size or np.isnan(scores).any():
            raise ValueError(f"evict needs one score, not NaN, for each of the {self.size} rows")
        if n <= 0:
            return
        threshold = np.partition(scores, n - 1)[n - 1]
        drop = scores < threshold
        equal = np.flatnonzero(scores == threshold)
        drop[equal[: n - int(drop.sum())]] = True
        self._keep(np.flatnonzero(~drop))
        self.evicted += n

    def remove_older(self, before: float) -> int:
        """Drop the rows that were last learned from before this time of the model's clock; returns how many."""
        kept = np.flatnonzero(self.last_seen >= before)
        removed = self.size - len(kept)
        if removed:
            self._keep(kept)
            self.expired += removed
        return removed

    def state(self) -> dict[str, NDArray]:
        """Copies of all arrays and counters, by name."""
        arrays: dict[str, NDArray] = {name: self.column(name).copy() for name in self._columns}
        arrays.update(keys=self.keys.copy(), field=self.field.copy())
        arrays.update(last_seen=self.last_seen.copy(), count=self.count.copy())
        arrays.update(evicted=np.array(self.evicted), expired=np.array(self.expired))
        return arrays

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Restore a table from its `state()`; everything is checked before anything changes."""
        names = {*STATE, *self._columns}
        if set(state) != names:
            raise InputError(f"a table's state holds {', '.join(sorted(names))}; this one {', '.join(sorted(state))}")
        size = len(state["keys"])
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(STATE, (size,)) | {"evicted": (), "expired": ()}
        shapes.update({name: (size, array.shape[1]) for name, array in self._columns.items()})
        for name, shape in shapes.items():
            if np.shape(state[name]) != shape:
                raise InputError(f"the state's {name!r} has shape {np.shape(state[name])}; this table needs {shape}")
        keys = np.array(state["keys"], dtype=np.uint64)
        slots = np.zeros(slots_for(size), dtype=np.uint32)
        with wrapping():
            twice = enter_rows(slots, keys, size)
        if twice >= 0:
            raise InputError(f"the state holds the key {keys[twice]} twice; it is damaged")
        self._slots, self.size = slots, size
        self._take(self._room(size))
        for name, array in self._all().items():
            array[:] = state[name]
        self.evicted, self.expired = int(state["evicted"]), int(state["expired"])

    def _grow(self) -> None:
        """Make room for at least one more row, in the arrays and in the index."""
        if self.size == len(self._keys):
            self._resize(self._larger())
        if self.size == 3 * len(self._slots) // 4:
            self._rebuild(2 * len(self._slots))

    def _larger(self) -> int:
        """How many rows to allocate when the table must grow."""
        larger = max(SMALLEST, self.size + (self.size // 2 if self.size < LARGE else self.size // 4))
        return larger if self.capacity is None else min(larger, max(self.capacity, self.size + 1))

    def _room(self, allocated: int) -> dict[str, NDArray]:
        """Uninitialised arrays for so many rows, by name."""
        about: dict[str, DTypeLike] = {"last_seen": np.float64, "count": np.uint32}
        beside = beside_each_other(allocated, about | dict.fromkeys(self._beside, np.float32)) if self._beside else {}
        arrays = {"keys": aligned((allocated,), np.uint64), "field": aligned((allocated,), np.uint16)}
        arrays |= {name: beside[name] if beside else aligned((allocated,), kind) for name, kind in about.items()}
        for name, width in self._widths.items():
            arrays[name] = beside[name][:, None] if name in beside else aligned((allocated, width), np.float32)
        return arrays

    def _take(self, arrays: dict[str, NDArray]) -> None:
        """Adopt these arrays."""
        self._keys, self._field, self._last_seen, self._count = (arrays.pop(name) for name in ABOUT)
        self._columns = arrays

    def _all(self) -> dict[str, NDArray]:
        return dict(zip(ABOUT, (self._keys, self._field, self._last_seen, self._count), strict=True)) | self._columns

    def _resize(self, allocated: int) -> None:
        larger = self._room(allocated)
        for name, array in self._all().items():
            self._copy(array, larger[name])
        self._take(larger)

    def _copy(self, array: NDArray, larger: NDArray) -> None:
        def copy(start: int, stop: int) -> None:
            larger[start:stop] = array[start:stop]

        self.spread(copy, self.size)

    def _rebuild(self, slots: int) -> None:
        self._slots = np.zeros(slots, dtype=np.uint32)
        with wrapping():
            enter_rows(self._slots, self._keys, self.size)

    def _keep(self, kept: NDArray[np.int64]) -> None:
        size = len(kept)
        self._keys[:size] = self._keys[kept]
        self._field[:size] = self._field[kept]
        self._last_seen[:size] = self._last_seen[kept]
        self._count[:size] = self._count[kept]
        for array in self._columns.values():
            _compact(array, kept)
        self.size = size
        self._rebuild(len(self._slots))
