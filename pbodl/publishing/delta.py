"""The changes of a deep probit model since a moment: the rows that learned since, and everything that is not rows.

A delta is a state (`DeepProbit.state`) of the changed rows alone, and `delta.rows`, their indices in the table. A changed row shows
in its count or in one of its weights: a sample that is taken back and learned again with its click leaves the counts unchanged.
After rows were dropped, the others have moved; after priors were adapted, all rows have changed: then there is no delta, and the
whole state must be published.
"""

import copy
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.table.feature_table import Table
from pbodl.errors import InputError
from pbodl.kernels.arguments import RowPrior
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit

ROWS = "delta.rows"


class Mark(NamedTuple):
    """A model at a moment."""

    rows_learned: int
    dropped: int
    prior: RowPrior
    watched: list[NDArray]  # a few numbers of every row


def mark(model: DeepProbit) -> Mark:
    """Remember this moment; takes twelve bytes per row."""
    table = model.table
    return Mark(model.rows_learned, table.evicted + table.expired, model.row_prior, [array.copy() for array in _watched(model)])


def _watched(model: DeepProbit) -> list[NDArray]:
    """Columns that change whenever anything in a row does."""
    columns = ("linear_mean", "linear_variance") if model.spec.linear else ("mean", "variance")
    return [model.table.count, *(model.table.column(name)[:, 0] for name in columns)]


def moved(model: DeepProbit, since: Mark) -> bool:
    """Whether rows were dropped or got another prior since then, so that there is no delta."""
    return model.table.evicted + model.table.expired != since.dropped or model.row_prior is not since.prior


def changes(model: DeepProbit, since: Mark) -> State:
    """The delta from that moment to now."""
    if moved(model, since):
        raise InputError("rows were dropped or got another prior since that moment; publish the whole state")
    before = len(since.watched[0])
    differ = [now[:before] != then for now, then in zip(_watched(model), since.watched, strict=True)]
    rows = np.concatenate([np.flatnonzero(np.logical_or.reduce(differ)), np.arange(before, model.table.size)])
    return part_of(model, rows).state() | {ROWS: rows}


def part_of(model: DeepProbit, rows: NDArray[np.int64]) -> DeepProbit:
    """The model with only these rows; it shares all other arrays."""
    part = copy.copy(model)
    part.table = Table(_widths(model))
    part.table.load_state(_selected(model.table, _widths(model), rows))
    return part


def split(delta: Mapping[str, NDArray]) -> tuple[State, NDArray[np.int64]]:
    """The state in a delta, and the indices of its rows."""
    state = dict(delta)
    rows = state.pop(ROWS, None)
    if rows is None or rows.dtype != np.int64 or rows.ndim != 1:
        raise InputError(f"the delta has no {ROWS!r}, or it is not a list of indices")
    return state, rows


def _widths(model: DeepProbit) -> dict[str, int]:
    width = model.table.column("mean").shape[1]
    columns = {"mean": width, "variance": width}
    return columns | {"linear_mean": 1, "linear_variance": 1} if model.spec.linear else columns


def _selected(table: Table, columns: Mapping[str, int], rows: NDArray[np.int64]) -> State:
    state: State = {name: table.column(name)[rows] for name in columns}
    state |= {"keys": table.keys[rows], "field": table.field[rows], "last_seen": table.last_seen[rows], "count": table.count[rows]}
    return state | {"evicted": np.array(table.evicted), "expired": np.array(table.expired)}
