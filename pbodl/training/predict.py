"""Predictions for a log, written to a file."""

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
    """Write one row per row of the log, in its order: the CTR, the latent mean and standard deviation; returns the number of rows.

    The file appears when it is complete. `progress` gets the rows so far.
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
    """A Parquet or CSV writer, chosen by the file's name; the file gets that name only after success."""
    if out.suffix not in SUFFIXES:
        raise InputError(f"cannot tell the format of {out.name!r}: name a file that ends in .parquet or .csv")
    if not out.parent.is_dir():
        raise InputError(f"the folder {str(out.parent)!r} for {out.name!r} does not exist; create it first")
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with (pa.parquet.ParquetWriter if out.suffix == ".parquet" else pa.csv.CSVWriter)(beside, COLUMNS) as writer:
            yield writer
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)
