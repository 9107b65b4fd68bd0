"""The features of impressions that wait for their click, and of those that were learned as negatives and may still get one.

Rows are numbered as they come, and kept in the blocks in which they came, without what can be restored: where every field has one
feature, only the keys are kept. Old blocks are dropped as a whole.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import concat
from pbodl.data.schema import Schema

Arrays = dict[str, NDArray]
BLOCK = 4096  # rows up to which a block grows
NAMES = ("keys", "values", "fields", "indptr", "clicks", "times", "weights")


class WaitingBlock(NamedTuple):
    """Consecutive rows, the first of them number `first`."""

    first: int
    rows: Batch  # of a regular schema, `fields` and `indptr` are empty, and so are `values` if all are 1

    def __len__(self) -> int:
        return len(self.rows.times)


class WaitingRows:
    """Rows by their number."""

    def __init__(self, schema: Schema) -> None:
        ragged = any(field.has_several for field in schema.fields)
        self._width = 0 if ragged else len(schema.fields)
        self._blocks: list[WaitingBlock] = []
        self.next = 0  # number of the next row

    def __len__(self) -> int:
        return sum(len(block) for block in self._blocks)

    @property
    def bytes(self) -> int:
        """What the rows take in memory."""
        return sum(array.nbytes for block in self._blocks for array in block.rows if array is not None)

    def append(self, rows: Batch) -> None:
        """Add rows; their numbers go on from the last."""
        if not len(rows):
            return
        count, kept = len(rows), rows
        if self._width:
            ones = bool((rows.values == 1.0).all())
            kept = rows._replace(fields=rows.fields[:0], indptr=rows.indptr[:0], values=rows.values[: 0 if ones else None])
        last = self._blocks[-1] if self._blocks else None
        self._blocks.append(WaitingBlock(self.next, kept))
        self.next += count
        if last is not None and len(last) < BLOCK:
            # A slow stream brings a few rows at a time, and thousands of small blocks would be slow to search.
            self._blocks[-2:] = [WaitingBlock(last.first, self._joined(self._blocks[-2:]))]

    def take(self, numbers: NDArray[np.int64]) -> Batch:
        """The rows of these numbers, in this order."""
        if not len(numbers):
            return self._gathered([], np.zeros(0, np.int64))
        firsts = np.array([block.first for block in self._blocks])
        home = np.searchsorted(firsts, numbers, side="right") - 1
        order = np.argsort(home, kind="stable")
        parts = []
        for place in np.unique(home).tolist():
            mine = numbers[order[home[order] == place]]
            parts.append(self._of_block(self._blocks[place], mine - self._blocks[place].first))
        back = np.empty(len(numbers), np.int64)
        back[order] = np.arange(len(numbers))
        return self._gathered(parts, back)

    def drop_before(self, number: int) -> None:
        """Forget the blocks that end before this number."""
        while self._blocks and self._blocks[0].first + len(self._blocks[0]) <= number:
            self._blocks.pop(0)

    def state(self) -> Arrays:
        """Its arrays; blocks are joined into one."""
        joined = self._joined(self._blocks) if self._blocks else _nothing()
        first = self._blocks[0].first if self._blocks else self.next
        arrays = {f"rows.{name}": array for name, array in zip(NAMES, joined, strict=False) if array is not None}
        return arrays | {"rows.first": np.array([first, self.next])}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Go on from a `state()`."""
        first, self.next = (int(number) for number in state["rows.first"])
        rows = Batch(*(np.array(state[f"rows.{name}"]) for name in NAMES))
        self._blocks = [WaitingBlock(first, rows)] if len(rows.times) else []

    def _joined(self, of: list[WaitingBlock]) -> Batch:
        """The rows of consecutive blocks, in the form in which they are kept."""
        blocks = [block.rows for block in of]
        if self._width and any(len(rows.values) for rows in blocks):
            ones = [rows.values if len(rows.values) else np.ones(len(rows.keys), np.float32) for rows in blocks]
            blocks = [rows._replace(values=values) for rows, values in zip(blocks, ones, strict=True)]
        return (
            Batch(*(np.concatenate([getattr(rows, name) for rows in blocks]) for name in NAMES)) if self._width else concat(blocks)
        )

    def _of_block(self, block: WaitingBlock, at: NDArray[np.int64]) -> Batch:
        """Some rows of a block, as a whole batch."""
        rows = block.rows
        if self._width:
            width = self._width
            keys = rows.keys.reshape(-1, width)[at].reshape(-1)
            values = rows.values.reshape(-1, width)[at].reshape(-1) if len(rows.values) else np.ones(len(keys), np.float32)
            fields = np.tile(np.arange(width, dtype=np.int32), len(at))
            indptr = np.arange(0, len(keys) + 1, width, dtype=np.int64)
            return Batch(keys, values, fields, indptr, rows.clicks[at], rows.times[at], rows.weights[at])  # type: ignore[index]
        return rows.take(at)

    def _gathered(self, parts: list[Batch], back: NDArray[np.int64]) -> Batch:
        if not parts:
            return _nothing()
        if len(parts) == 1 and (np.diff(back) == 1).all():
            return parts[0]
        return concat(parts).take(back)


def _nothing() -> Batch:
    return Batch(
        np.zeros(0, np.uint64), np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.float32),
        np.zeros(0), np.zeros(0, np.float32),
    )  # fmt: skip
