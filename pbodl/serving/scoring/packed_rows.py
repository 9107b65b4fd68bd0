"""The rows of a served model, packed for `candidate_kernels`, in memory that worker processes can share.

A packed row holds all weights of a feature: means and variances of each vector, then mean and variance of the linear weight.
"""

import contextlib
import os
import tempfile
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.table.feature_table import Table
from pbodl.errors import InputError
from pbodl.kernels.layers.interaction import BY_GROUP
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.serving.scoring.candidate_kernels import SERVED, Packed

COLUMN = "weights"


class PackedLayout(NamedTuple):
    """How a model's rows are packed."""

    vectors: int
    dim: int
    linear: bool

    @property
    def width(self) -> int:
        return 2 * (self.vectors * self.dim + self.linear)


def check_served(model: DeepProbit) -> None:
    """Raise InputError unless the kernels know the model's operation: they would read past its sums."""
    if not isinstance(model, DeepProbit):
        raise InputError(f"a {model.kind!r} model has no kernels for candidates; `whole_predictor.predictor_of` serves it")
    if model.shape.op not in SERVED:
        raise InputError(
            f"a {model.kind!r} model has the embedding operation {model.shape.op}, which serving does not know; it knows "
            f"{', '.join(SERVED.values())}. Teach it in pbodl/serving/scoring/candidate_kernels.py"
        )


def layout_of(model: DeepProbit) -> PackedLayout:
    return PackedLayout(len(model.schema.groups) if model.op in BY_GROUP else 1, model.spec.dim, model.spec.linear)


def pack(table: Table, layout: PackedLayout) -> NDArray[np.float32]:
    """Packed rows from a model's columns."""
    shape = (table.size, layout.vectors, layout.dim)
    both = np.stack([table.column("mean").reshape(shape), table.column("variance").reshape(shape)], axis=2)
    columns = [both.reshape(table.size, 2 * layout.vectors * layout.dim)]
    if layout.linear:
        columns += [table.column("linear_mean"), table.column("linear_variance")]
    return np.concatenate(columns, axis=1)


def unpack(weights: NDArray[np.float32], layout: PackedLayout) -> State:
    """A model's columns from packed rows."""
    size, width = len(weights), layout.vectors * layout.dim
    both = weights[:, : 2 * width].reshape(size, layout.vectors, 2, layout.dim)
    columns = {name: both[:, :, i].reshape(size, width) for i, name in enumerate(("mean", "variance"))}
    if layout.linear:
        columns |= {"linear_mean": weights[:, -2:-1], "linear_variance": weights[:, -1:]}
    return columns


class PackedTable(Table):
    """A table of packed rows. A predictor only reads it; a follower changes it while no predictor reads it."""

    def __init__(self, layout: PackedLayout) -> None:
        super().__init__({COLUMN: layout.width})
        self.layout = layout

    @classmethod
    def of(cls, model: DeepProbit) -> "PackedTable":
        """A copy of a model's rows."""
        packed = cls(layout_of(model))
        packed.load_state(_packed_state(model.table, packed.layout))
        return packed

    def packed(self) -> Packed:
        """The arrays for the kernels."""
        return Packed(self.column(COLUMN), self.last_seen)

    def copy(self) -> "PackedTable":
        twin = PackedTable(self.layout)
        twin.load_state(self.state())
        return twin

    def change(self, part: DeepProbit, rows: NDArray[np.int64]) -> None:
        """Take over the rows of `part`, whose indices are `rows`; new rows come last, in order."""
        old_size, table = self.size, part.table
        fresh = rows >= old_size
        if len(rows) != table.size or (rows < 0).any() or not np.array_equal(rows[fresh], old_size + np.arange(fresh.sum())):
            raise InputError("the delta's rows do not continue this table; it belongs to another version")
        if not np.array_equal(self.keys[rows[~fresh]], table.keys[~fresh]) or (self.find(table.keys[fresh]) >= 0).any():
            raise InputError("the delta's rows hold other features than this table; it belongs to another version")
        self.insert(table.keys[fresh])
        self.column(COLUMN)[rows] = pack(table, self.layout)
        self.field[rows], self.last_seen[rows], self.count[rows] = table.field, table.last_seen, table.count
        self.evicted, self.expired = table.evicted, table.expired

    def state_of(self, rows: NDArray[np.int64]) -> State:
        """These rows, as the state of a model has them."""
        columns = unpack(self.column(COLUMN)[rows], self.layout)
        names = {name: name.replace("_", ".") if name.startswith("linear") else f"embedding.{name}" for name in columns}
        about: State = {"keys": self.keys, "field": self.field, "last_seen": self.last_seen, "count": self.count}
        return {names[name]: array for name, array in columns.items()} | {f"embedding.{n}": a[rows] for n, a in about.items()}

    def share(self, folder: str) -> dict[str, Any]:
        """Move the arrays into files of a memory folder, unless they are there; returns what another process passes to `attach`."""
        arrays = {}
        for name, array in self._arrays().items():
            shared = array if isinstance(array.base, np.memmap) else _mapped(folder, array)
            arrays[name] = [str(shared.base.filename), shared.dtype.str, list(shared.shape)]  # type: ignore[union-attr]
            self._set_array(name, shared)
        return {"layout": list(self.layout), "size": self.size, "evicted": self.evicted, "expired": self.expired, "arrays": arrays}

    @classmethod
    def attach(cls, told: Mapping[str, Any], mapped: dict[str, NDArray]) -> "PackedTable":
        """The table that another process shares; `mapped` holds the arrays mapped so far, by file."""
        table = cls(PackedLayout(*told["layout"]))
        for name, (path, dtype, shape) in told["arrays"].items():
            if path not in mapped:
                # Copy on write: should this process write, no other would see it.
                mapped[path] = np.asarray(np.memmap(path, np.dtype(dtype), "c", shape=tuple(shape)))
            table._set_array(name, mapped[path])
        for path in mapped.keys() - {path for path, _, _ in told["arrays"].values()}:
            if not os.path.exists(path):
                del mapped[path]
        table.size, table.evicted, table.expired = told["size"], told["evicted"], told["expired"]
        return table

    def _arrays(self) -> dict[str, NDArray]:
        columns: dict[str, NDArray] = {COLUMN: self._columns[COLUMN], "keys": self._keys, "slots": self._slots}
        return columns | {"field": self._field, "last_seen": self._last_seen, "count": self._count}

    def _set_array(self, name: str, array: NDArray) -> None:
        if name == COLUMN:
            self._columns[COLUMN] = array
        else:
            setattr(self, f"_{name}", array)


def _packed_state(table: Table, layout: PackedLayout) -> State:
    about: State = {"keys": table.keys, "field": table.field, "last_seen": table.last_seen, "count": table.count}
    return about | {"evicted": np.array(table.evicted), "expired": np.array(table.expired), COLUMN: pack(table, layout)}


def _mapped(folder: str, array: NDArray) -> NDArray:
    """A copy of an array in a new file of the folder, deleted with the array. The file is never empty: that could not be mapped."""
    file, path = tempfile.mkstemp(dir=folder)
    try:
        if hasattr(os, "posix_fallocate"):  # without room, fail here instead of by a signal later; not on all systems
            os.posix_fallocate(file, 0, max(1, array.nbytes))
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(file)
    room = np.memmap(path, array.dtype, "r+", shape=(max(1, len(array)), *array.shape[1:]))
    room[: len(array)] = array
    weakref.finalize(room, _unlink, path)
    return np.asarray(room)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
