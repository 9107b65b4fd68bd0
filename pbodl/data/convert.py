"""`from_data`, the one door through which data of any shape becomes a `Batch`.

`dict_rows` reads dicts, `arrow_columns` reads Arrow tables; both give the same batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pbodl.data.arrow_columns import from_table
from pbodl.data.batch import Batch
from pbodl.data.dict_rows import from_rows
from pbodl.data.schema import Schema
from pbodl.errors import InputError

__all__ = ["Batch", "as_table", "concat", "from_data"]


def from_data(schema: Schema, data: Any, labelled: bool) -> Batch:
    """Data of any accepted shape as a `Batch`; with `labelled`, the data must have the label (and the weight, and the time).

    data is a dict (one sample), a list of dicts, anything with Arrow's PyCapsule interface (a table or record batch of pyarrow, a
    data frame of pandas or polars), or a Batch, which is returned as it is. Without `labelled`, `clicks` is None, and a missing
    time counts as 0 unless a field is derived from it.
    """
    if isinstance(data, Batch):
        if labelled and data.clicks is None:
            raise InputError("this batch was made without its labels; make it with from_data(schema, data, labelled=True)")
        if labelled:
            check_weights(data)
            check_stages(data)
        return data
    if isinstance(data, Mapping):
        return from_rows(schema, [data], labelled)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return from_table(schema, as_table(data), labelled)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return from_rows(schema, data, labelled)
    raise InputError(
        f"data of type {type(data).__name__} is not understood; give a dict, a list of dicts, "
        "or a table of pyarrow, pandas or polars"
    )


def check_weights(batch: Batch) -> None:
    """Refuse a batch with weights below zero: what was learned is not taken back."""
    if len(wrong := np.flatnonzero(~(batch.weights >= 0.0))):
        i = int(wrong[0])
        raise InputError(f"sample {i} has the weight {batch.weights[i]:g}; a weight is at least 0, and 0 means a prediction alone")


def check_stages(batch: Batch) -> None:
    """Refuse a batch whose stages are none."""
    if batch.came_before is None and batch.came_by is None:
        return
    lengths = {0 if of is None else len(of) for of in (batch.came_before, batch.came_by)}
    if lengths != {len(batch)}:
        raise InputError(
            f"a batch of {len(batch)} samples needs as many numbers in both came_before and came_by, or neither of them"
        )
    before, by = batch.stages()
    wrong = np.flatnonzero(~((before >= 0.0) & (before <= by) & (by <= 1.0)))
    if len(wrong):
        i = int(wrong[0])
        raise InputError(
            f"sample {i} has a stage from {before[i]:g} to {by[i]:g}; both are fractions of the clicks that have come, at least 0, "
            "at most 1, and the second is not below the first"
        )


def as_table(data: Any) -> pa.Table:
    """Data with Arrow's PyCapsule interface as an Arrow table."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        return pa.table(data) if hasattr(data, "__arrow_c_stream__") else pa.Table.from_batches([pa.record_batch(data)])
    except (pa.ArrowException, TypeError) as error:
        raise InputError(
            f"the {type(data).__name__} does not convert to an Arrow table: {error}; "
            "a column must hold values of one type (in pandas, df[column].astype(str) makes it so)"
        ) from error


def concat(batches: Sequence[Batch]) -> Batch:
    """The samples of several batches, one after the other; either all of them are labelled, or none."""
    if not batches:
        raise InputError("concat needs at least one batch")
    clicks = [batch.clicks for batch in batches if batch.clicks is not None]
    if len(clicks) not in (0, len(batches)):
        raise InputError("some of these batches are labelled and some are not; make them all with the same `labelled`")
    lengths = np.concatenate([np.diff(batch.indptr) for batch in batches])
    final = all(batch.came_before is None for batch in batches)
    before, by = (None, None) if final else map(np.concatenate, zip(*(batch.stages() for batch in batches), strict=True))
    return Batch(
        np.concatenate([batch.keys for batch in batches]),
        np.concatenate([batch.values for batch in batches]),
        np.concatenate([batch.fields for batch in batches]),
        np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
        np.concatenate(clicks) if clicks else None,
        np.concatenate([batch.times for batch in batches]),
        np.concatenate([batch.weights for batch in batches]),
        before,
        by,
    )
