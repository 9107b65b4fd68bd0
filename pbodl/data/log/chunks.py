"""From a block of a file's rows to a chunk for the learner: the batch, and the position after it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.log.quarantine import BadRow
from pbodl.data.log.row_blocks import LogFile, RowBlock
from pbodl.data.log.row_faults import good_rows
from pbodl.data.schema import Schema
from pbodl.errors import InputError


class LogPosition(NamedTuple):
    """Where to go on, and what was counted up to there; its `_asdict()` is JSON."""

    source: int = 0  # index of the file in the log
    row: int = 0  # rows of that file that were consumed, bad ones too
    file: str = ""  # its name, with its folder
    bad_rows: int = 0  # left out
    out_of_order: int = 0  # older than a row before them
    latest: float | None = None  # time of a row, epoch seconds


class Chunk(NamedTuple):
    """Samples to learn from, and where they end."""

    batch: Batch
    position: LogPosition  # after it
    table: pa.Table  # the columns that the batch was made from
    bad: Sequence[BadRow] = ()  # rows that were left out
    bytes_read: int = 0  # of the log, up to here


def chunk_of(file: LogFile, block: RowBlock, position: LogPosition, schema: Schema, labelled: bool, skip: bool) -> Chunk:
    """The chunk of a block that begins at `position`; without `skip` it ends before the first bad row, the only one in `bad`."""
    name = file.source.name
    try:
        batch, table, found = good_rows(schema, block.table, labelled)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    faults, rows = block.faults, block.rows
    if found:
        faults = dict(sorted((faults | {int(block.places[row]): fault for row, fault in found.items()}).items()))
    if faults and not skip:
        rows = min(faults)
        faults = {rows: faults[rows]}
        good = np.delete(block.places, list(found))
        before = int(np.searchsorted(good, rows))
        batch, table = batch.rows(0, before), table.slice(0, before)
    number = file.first + position.row
    bad = [BadRow(name, file.unit, number + place, fault, block.raw(place)) for place, fault in faults.items()]
    out_of_order, latest = _against_time(batch.times, position.latest) if schema.time is not None else (0, position.latest)
    after = position._replace(
        row=position.row + rows,
        bad_rows=position.bad_rows + len(bad) * skip,
        out_of_order=position.out_of_order + out_of_order,
        latest=latest,
    )
    return Chunk(batch, after, table, bad)


def _against_time(times: NDArray[np.float64], latest: float | None) -> tuple[int, float | None]:
    """How many of the times are before one that came earlier, and the latest of all."""
    if not len(times):
        return 0, latest
    seen = np.maximum.accumulate(times if latest is None else np.concatenate([[latest], times]))
    return int((times < seen[-len(times) :]).sum()), float(seen[-1])
