"""From a block of a file's rows to a chunk for the learner: the batch, and the position after it."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import from_data
from pbodl.data.log.quarantine import BadRow
from pbodl.data.log.row_blocks import LogFile, RowBlock
from pbodl.data.log.row_faults import row_faults
from pbodl.data.schema import Schema
from pbodl.data.texts import typed
from pbodl.errors import InputError


class LogPosition(NamedTuple):
    """Where to go on, and what had been counted until there; its `_asdict()` is JSON."""

    source: int = 0  # place of the file among the log's
    row: int = 0  # rows of that file consumed, bad ones too
    file: str = ""  # its name, with its folder
    bad_rows: int = 0  # left out
    out_of_order: int = 0  # older than a row before them
    latest: float | None = None  # time of a row, epoch seconds


class Chunk(NamedTuple):
    """Samples to learn from, and where they end."""

    batch: Batch
    position: LogPosition  # after it
    table: pa.Table  # the columns that the batch was made from


class Good(NamedTuple):
    """The good rows of a block."""

    batch: Batch
    table: pa.Table
    places: NDArray[np.int64]  # in the block


class ChunkDecoder(NamedTuple):
    """Makes chunks; with `skip`, bad rows are left out, else a chunk ends before the first of them."""

    schema: Schema
    labelled: bool
    skip: bool

    def chunk(self, file: LogFile, block: RowBlock, position: LogPosition) -> tuple[Chunk, list[BadRow]]:
        """The chunk of a block that begins at `position`, and its bad rows (without `skip`, the first)."""
        good, faults = self._judged(file.source.name, block)
        rows = block.rows
        if faults and not self.skip:
            rows = min(faults)
            faults = {rows: faults[rows]}
            before = int(np.searchsorted(good.places, rows))
            good = Good(good.batch.rows(0, before), good.table.slice(0, before), good.places[:before])
        number = file.first + position.row
        bad = [BadRow(file.source.name, file.unit, number + place, fault, block.raw(place)) for place, fault in faults.items()]
        out_of_order, latest = self._against_time(good.batch.times, position.latest)
        after = position._replace(
            row=position.row + rows,
            bad_rows=position.bad_rows + len(bad) * self.skip,
            out_of_order=position.out_of_order + out_of_order,
            latest=latest,
        )
        return Chunk(good.batch, after, good.table), bad

    def _judged(self, name: str, block: RowBlock) -> tuple[Good, dict[int, str]]:
        """The good rows, and the faults of the others by their place in the block."""
        table = typed(self.schema, block.table, self.labelled)
        try:
            return Good(from_data(self.schema, table, self.labelled), table, block.places), block.faults
        except InputError as error:
            try:
                found = row_faults(self.schema, block.table, self.labelled)
            except InputError as of_column:
                raise InputError(f"{name}: {of_column}") from error
            if not found:
                raise InputError(f"{name}: {error}") from error
        kept = np.delete(np.arange(len(block.places)), list(found))
        table = typed(self.schema, block.table.take(kept), self.labelled)
        faults = block.faults | {int(block.places[row]): fault for row, fault in found.items()}
        good = Good(from_data(self.schema, table, self.labelled), table, block.places[kept])
        return good, dict(sorted(faults.items()))

    def _against_time(self, times: NDArray[np.float64], latest: float | None) -> tuple[int, float | None]:
        """How many of the times are before one that came earlier, and the latest of all."""
        if self.schema.time is None or not len(times):
            return 0, latest
        seen = np.maximum.accumulate(times if latest is None else np.concatenate([[latest], times]))
        return int((times < seen[-len(times) :]).sum()), float(seen[-1])
