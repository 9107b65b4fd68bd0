"""A click log of real rows with a known truth, from any log: `resampled(schema, table, rows, seed)`.

The columns of a new row are real ones: they come from a row of the log, and in one row of three, those of one group (the user's,
the ad's, ...) from another row nearby, so that new combinations meet. So frequencies, correlations between columns, new values and
times are those of the log. Only the clicks are drawn anew, from log-odds that were fitted to the log (`fitted_truth`): with
`p_true`, the best possible log loss and AUC are known.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.convert import from_data
from pbodl.data.schema import Schema
from pbodl.data.synthetic.fitted_truth import fit_truth, probability
from pbodl.errors import InputError

PAIRS = 12  # tables of pairs of fields
SWAPPED = 1 / 3
NEARBY = 0.01  # rows that far away, as a share of the log, exchange columns
LEAST = 1000
TRUTH = "p_true"


def resampled(schema: Schema, table: pa.Table, rows: int, seed: int = 0) -> pa.Table:
    """So many new rows, in the order of the log's, with their true click probability in `p_true`."""
    _check(schema, table, rows, seed)
    plain = [pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
    table = table.cast(pa.schema(plain))
    real = from_data(schema, table, True)
    truth = fit_truth(real, len(schema.fields), PAIRS)
    rng = np.random.default_rng(seed)
    drawn = _drawn(rng, schema, table, np.sort(rng.integers(0, len(table), rows)))
    p = probability(truth.log_odds(from_data(schema, drawn, False)))
    clicks = pa.array((rng.random(rows) < p).astype(np.int8))
    at = drawn.column_names.index(schema.label)
    return drawn.set_column(at, schema.label, clicks).append_column(TRUTH, pa.array(p))


def _check(schema: Schema, table: pa.Table, rows: int, seed: int) -> None:
    if rows < 1 or seed < 0:
        raise InputError(f"rows is {rows} and seed is {seed}; rows must be at least 1, and seed at least 0")
    if len(table) < LEAST:
        raise InputError(f"the log has {len(table):,} rows; a truth can be fitted to {LEAST:,} rows or more")
    if schema.label != schema.label_column:
        raise InputError(f"the label {schema.label!r} is computed; name a column of clicks as the label to resample a log")
    if TRUTH in table.column_names:
        raise InputError(f"the log has a column {TRUTH!r} already, which the new log would use for its own truth; rename it")
    labels = pc.count_distinct(table[schema.label]).as_py() if schema.label in table.column_names else 0
    if labels != 2:
        raise InputError(f"the column {schema.label!r} has {labels} different values; a log with clicks and without is needed")


def _drawn(rng: np.random.Generator, schema: Schema, table: pa.Table, base: NDArray[np.int64]) -> pa.Table:
    """The rows `base`, some of them with one group's columns from a row nearby."""
    reach = max(int(NEARBY * len(table)), 1)
    other = np.clip(base + rng.integers(-reach, reach + 1, len(base)), 0, len(table) - 1)
    swapped = rng.integers(0, len(schema.groups), len(base))
    swapped[rng.random(len(base)) >= SWAPPED] = -1
    taken = {group: np.where(swapped == code, other, base) for code, group in enumerate(schema.groups)}
    groups = {field.source: field.group for field in schema.fields if field.source != schema.time}  # the time stays with its row
    return pa.table({
        name: table[name].take(pa.array(taken[groups[name]] if name in groups else base)) for name in table.column_names
    })  # fmt: skip
