"""Predictions for a log, written to a file: the CTR, its standard deviation, and the latent Gaussian, all recalibrated alike."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pbodl.data.features.positions import at_reference
from pbodl.data.log.log_reader import Chunk
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.recalibration import recalibrated_latent

COLUMNS = pa.schema([(name, pa.float64()) for name in ("ctr", "std", "latent_mean", "latent_std")])
SUFFIXES = (".parquet", ".csv")


def predict_file(
    model: Model,
    chunks: Iterable[Chunk],
    out: str | Path,
    progress: Callable[[int], None] = lambda rows: None,
    keep: Sequence[str] = (),
    reference_position: bool = False,
) -> int:
    """Write one row per row of the log, in its order; returns the number of rows.

    `keep` names columns of the chunks' tables to write first, as they are. The file appears when it is complete. `progress` gets
    the rows so far. With `reference_position` all rows are predicted as if they had been shown in the first slot.
    """
    out = Path(out)
    check_kept(keep)
    rows = 0
    with _writer(out) as write:
        for chunk in chunks:
            predicted = model.predict(at_reference(model.schema, chunk.batch) if reference_position else chunk.batch)
            figures = [predicted.ctr, predicted.std, *recalibrated_latent(model, predicted)]
            kept = [chunk.table.column(name) for name in keep]
            write(pa.table([*kept, *(pa.array(figure) for figure in figures)], names=[*keep, *COLUMNS.names]))
            rows += len(predicted.ctr)
            progress(rows)
    return rows


def check_kept(keep: Sequence[str]) -> None:
    """Refuse columns to keep that would occur twice in the file."""
    for name in keep:
        if name in COLUMNS.names or list(keep).count(name) > 1:
            raise InputError(
                f"--keep names the column {name!r}, which the file would then hold twice; its own are: {', '.join(COLUMNS.names)}"
            )


@contextlib.contextmanager
def _writer(out: Path) -> Iterator[Callable[[pa.Table], None]]:
    """A function that writes tables to a Parquet or CSV file, chosen by its name; the file gets that name only after success."""
    if out.suffix not in SUFFIXES:
        raise InputError(f"cannot tell the format of {out.name!r}: name a file that ends in .parquet or .csv")
    if not out.parent.is_dir():
        raise InputError(f"the folder {str(out.parent)!r} for {out.name!r} does not exist; create it first")
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    opened = pa.parquet.ParquetWriter if out.suffix == ".parquet" else pa.csv.CSVWriter
    writer: Any = None
    schema = COLUMNS

    def write(table: pa.Table) -> None:
        nonlocal writer, schema
        if writer is None:
            schema, writer = table.schema, stack.enter_context(opened(beside, table.schema))
        writer.write_table(table if table.schema == schema else _cast(table, schema))

    try:
        with contextlib.ExitStack() as stack:
            yield write
            if writer is None:
                write(COLUMNS.empty_table())
        beside.replace(out)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"{out.name!r} cannot hold these columns: {error}; write a .parquet file, or keep other columns"
        ) from error
    finally:
        beside.unlink(missing_ok=True)


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A later part of the log, whose types may differ: with the types of the first part."""
    try:
        return table.cast(schema)
    except pa.ArrowException as error:
        raise InputError(f"a column to keep changes its type within the log: {error}") from error
