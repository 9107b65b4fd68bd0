"""Predictions of a log, written to a file beside it."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pbodl.data.log.log_reader import Chunk
from pbodl.errors import InputError
from pbodl.models.contract import Model

COLUMNS = pa.schema([("ctr", pa.float64()), ("mean", pa.float64()), ("std", pa.float64())])
SUFFIXES = (".parquet", ".csv")


def predict_file(
    model: Model, chunks: Iterable[Chunk], out: str | Path, progress: Callable[[int], None] = lambda rows: None
) -> int:
    """Write one row per row of the log, in its order: the CTR, and the latent mean and standard deviation; returns how many.

    The file appears when it is whole. `progress` is told the rows so far.
    """
    out = Path(out)
    rows = 0
    with _writer(out) as writer:
        for chunk in chunks:
            ctr, mean, variance = model.predict(chunk.batch)
            writer.write_batch(pa.record_batch([pa.array(column) for column in (ctr, mean, np.sqrt(variance))], schema=COLUMNS))
            rows += len(ctr)
            progress(rows)
    return rows


@contextmanager
def _writer(out: Path) -> Iterator[Any]:
    """A Parquet or CSV writer, by the file's name; what it writes gets that name at the end, if all went well."""
    if out.suffix not in SUFFIXES:
        raise InputError(f"cannot tell the format of {out.name!r}: predictions are written to a file that ends in .parquet or .csv")
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {str(out.parent)!r} to write {out.name!r} into; make it first")
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with (pa.parquet.ParquetWriter if out.suffix == ".parquet" else pa.csv.CSVWriter)(beside, COLUMNS) as writer:
            yield writer
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)
