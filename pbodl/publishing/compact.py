"""Compact publications: differences on the lattice, as whole numbers, compressed.

Trainer and server both know what was published before: `PublishedWeights` there, the table here. A publication says what to add
to it: differences of levels and points (`lattice`) and of counts, the age of each row in steps of the clock, and keys and fields of
new rows only. A full publication is the same, from nothing: it and the deltas after it give the trainer's lattice exactly.

The numbers of one kind stand together, low bytes first, and are compressed with zstd: most differences are 0, 1 or -1.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.publishing import lattice
from pbodl.publishing.delta import ROWS
from pbodl.system.tensors import pack, unpack

ENCODING = "lattice"
BLOB, SIZE = "compact", "compact.size"
ROW_PAIRS = {
    "embedding": "mean",
    "linear": "linear_mean",
}  # weights in the table, a row to a feature, and the column of their means
PER_ROW = ("embedding.keys", "embedding.field", "embedding.last_seen", "embedding.count")
CODEC, STRENGTH = "zstd", 9
LARGEST_BLOB = 1 << 36
FINE = 4096  # steps of age in a half-life


class LatticePair(NamedTuple):
    """Levels and points of an array of weights."""

    level: NDArray[np.int32]
    point: NDArray[np.int32]

    @classmethod
    def of(cls, state: Mapping[str, NDArray], name: str) -> "LatticePair":
        level = lattice.levels(state[f"{name}.variance"])
        return cls(level, lattice.points(state[f"{name}.mean"], level))

    def values(self, name: str) -> State:
        return {f"{name}.mean": lattice.means(self.point, self.level), f"{name}.variance": lattice.variances(self.level)}

    def minus(self, before: "LatticePair") -> "LatticePair":
        expected = lattice.moved_points(before.point, before.level, self.level)
        return LatticePair(self.level - before.level, self.point - expected)

    def plus(self, before: "LatticePair") -> "LatticePair":
        """What `minus` took apart: `self` is the difference."""
        level = self.level + before.level
        return LatticePair(level, self.point + lattice.moved_points(before.point, before.level, level))


def pair_names(state: Mapping[str, Any]) -> list[str]:
    """The names of all weights in a state: those with a mean and a variance."""
    return sorted(name.removesuffix(".mean") for name in state if name.endswith(".mean") and f"{name[:-5]}.variance" in state)


def step_of_age(model: DeepProbit) -> float:
    """What ages are counted in: a small part of a half-life, or whole units of the clock."""
    half_life = model.forgetting.half_life
    return 2.0 ** np.floor(np.log2(half_life / FINE)) if half_life > 0.0 else 1.0


class PublishedWeights:
    """What the servers have, as far as this publisher knows: levels and points of all weights, and counts.

    It takes eight bytes per weight.
    """

    def __init__(self) -> None:
        self.size = 0  # rows
        self._dense: dict[str, LatticePair] = {}
        self._rows: dict[str, LatticePair] = {}  # have room for more rows, all of them 0
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)

    def encode(self, model: DeepProbit, state: Mapping[str, NDArray], rows: NDArray[np.int64]) -> tuple[State, Callable[[], None]]:
        """The arrays of a publication that has these rows, and what to call when it is written: only then do servers have it."""
        total = max(self.size, int(rows[-1]) + 1) if len(rows) else self.size
        now = {name: LatticePair.of(state, name) for name in pair_names(state)}
        self._make_room(total, now)
        numbers: dict[str, NDArray] = {ROWS: np.diff(rows, prepend=0)}
        for name, pair in now.items():
            numbers[f"{name}.level"], numbers[f"{name}.point"] = pair.minus(self._before(name, pair, rows))
        fresh, step = rows >= self.size, step_of_age(model)
        numbers["embedding.count"] = state["embedding.count"].astype(np.int64) - self._counts[rows]
        numbers["embedding.age"] = _moments(state["clock"][:1], step) - _moments(state["embedding.last_seen"], step)
        numbers["embedding.field"] = state["embedding.field"][fresh].astype(np.int64)
        apart = {*PER_ROW, ROWS, *(f"{name}.{what}" for name in now for what in ("mean", "variance"))}
        plain = {"keys": state["embedding.keys"][fresh]} | {f"rest.{name}": a for name, a in state.items() if name not in apart}
        blob = pack(plain | _planes(numbers))
        squeezed = pa.Codec(CODEC, compression_level=STRENGTH).compress(blob, asbytes=True)

        def written() -> None:
            self.size, self._counts[rows] = total, state["embedding.count"]
            for name, pair in now.items():
                if name in ROW_PAIRS:
                    self._rows[name].level[rows], self._rows[name].point[rows] = pair
                else:
                    self._dense[name] = pair

        return {BLOB: np.frombuffer(squeezed, np.uint8), SIZE: np.array(len(blob))}, written

    def _make_room(self, total: int, now: Mapping[str, LatticePair]) -> None:
        if total <= len(self._counts) and self._rows:
            return
        room = max(total, 3 * len(self._counts) // 2)
        self._counts = _longer(self._counts, room)
        for name in {*ROW_PAIRS} & now.keys():
            known = self._rows.get(name, _nothing((0, now[name].level.shape[1])))
            self._rows[name] = LatticePair(_longer(known.level, room), _longer(known.point, room))

    def _before(self, name: str, now: LatticePair, rows: NDArray[np.int64]) -> LatticePair:
        """What was published of these weights."""
        if name in ROW_PAIRS:
            return LatticePair(self._rows[name].level[rows], self._rows[name].point[rows])
        return self._dense.get(name, _nothing(now.level.shape))


def decode(
    model: DeepProbit, arrays: Mapping[str, NDArray], size: int, before: Callable[[NDArray[np.int64]], Mapping[str, NDArray]]
) -> State:
    """The state in a compact publication, with `delta.rows`.

    model   of the publication's kind and spec
    size    rows that the reader has
    before  the state of some of these rows, and of all that is not rows; not asked if the size is 0
    """
    blob = _inflated(arrays)
    numbers = _numbers(blob)
    rest = {name.removeprefix("rest."): array for name, array in blob.items() if name.startswith("rest.")}
    rows = np.cumsum(numbers[ROWS])
    if (numbers[ROWS][1:] <= 0).any() or (len(rows) and rows[0] < 0):
        raise InputError("the rows of the publication are not in order; it is damaged")
    old = rows < size
    known = before(rows[old]) if size else {}
    state: State = {}
    empty = model.state()
    for name in sorted({name.rsplit(".", 1)[0] for name in numbers if name.endswith(".level")}):
        per_row = name in ROW_PAIRS
        shape = (len(rows) if per_row else len(empty[f"{name}.mean"]), *empty[f"{name}.mean"].shape[1:])
        flat = (numbers[f"{name}.{what}"].astype(np.int32) for what in ("level", "point"))
        change = LatticePair(*(array.reshape(shape[::-1]).T for array in flat))
        base = _nothing(shape)
        if size and per_row:
            base.level[old], base.point[old] = LatticePair.of(known, name)
        elif size:
            base = LatticePair.of(known, name)
        state |= change.plus(base).values(name)
    count = numbers["embedding.count"].copy()
    field, keys = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.uint64)
    field[~old], keys[~old] = numbers["embedding.field"], blob["keys"]
    if size:
        count[old] += known["embedding.count"]
        field[old], keys[old] = known["embedding.field"], known["embedding.keys"]
    types = model.table
    state["embedding.keys"], state["embedding.field"] = keys, field.astype(types.field.dtype)
    state["embedding.count"] = count.astype(types.count.dtype)
    step = step_of_age(model)
    state["embedding.last_seen"] = (_moments(rest["clock"][:1], step) - numbers["embedding.age"]) * step
    return state | rest | {ROWS: rows}


def _moments(times: NDArray, step: float) -> NDArray[np.int64]:
    """Times as whole numbers of steps, whatever the clock says when they are published."""
    return np.rint(np.nan_to_num(times) / step).astype(np.int64)


def _longer(array: NDArray, length: int) -> NDArray:
    return np.concatenate([array, np.zeros((length - len(array), *array.shape[1:]), array.dtype)])


def _nothing(shape: tuple[int, ...]) -> LatticePair:
    return LatticePair(np.zeros(shape, np.int32), np.zeros(shape, np.int32))


def _planes(numbers: Mapping[str, NDArray]) -> State:
    """Whole numbers as bytes: small ones, of either sign, have only zeros behind their first byte."""
    planes = {}
    for name, array in numbers.items():
        across = np.ascontiguousarray(array.T).reshape(-1).astype(np.int64)
        folded = ((across << 1) ^ (across >> 63)).astype("<u8")
        width = max(1, (int(folded.max()).bit_length() + 7) // 8) if len(folded) else 1
        planes[f"n.{name}"] = folded.view(np.uint8).reshape(-1, 8)[:, :width].T.copy()
    return planes


def _numbers(blob: Mapping[str, NDArray]) -> dict[str, NDArray[np.int64]]:
    """The numbers that `_planes` took apart; those of tables one column after the other."""
    numbers = {}
    for name, array in blob.items():
        if name.startswith("n."):
            folded = np.zeros((array.shape[1], 8), np.uint8)
            folded[:, : len(array)] = array.T
            plain = folded.reshape(-1).view("<u8")
            numbers[name[2:]] = (plain >> np.uint64(1)).astype(np.int64) ^ -(plain & np.uint64(1)).astype(np.int64)
    return numbers


def _inflated(arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
    size = int(arrays[SIZE])
    if not 0 <= size <= LARGEST_BLOB:
        raise InputError(f"the publication says that it holds {size} bytes; it is damaged")
    try:
        blob = pa.Codec(CODEC).decompress(pa.py_buffer(np.ascontiguousarray(arrays[BLOB])), decompressed_size=size, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"the publication cannot be decompressed; it is damaged ({error})") from error
    return unpack(blob)
