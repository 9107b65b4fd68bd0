"""LightGBM in batch: boosted trees over categories and raw numbers.

The number of trees is found by early stopping on the last tenth of the rows; then all rows are learned with it. Values seen fewer
than RARE times are merged into one, or trees would memorise single users. Of a list, the trees see the first value. It has one
thread, as every contestant: on a busy machine, LightGBM's threads mostly wait for each other.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import SCALE_TEXT, hash_value
from pbodl.data.schema import Field, Schema

RARE = 10
MOST_TREES = 500
PATIENCE = 20  # trees without a gain
Columns = list[NDArray]


class LightGBM:
    """Gradient boosting; it predicts nothing before `finish`."""

    def __init__(self, schema: Schema, leaves: int, rate: float) -> None:
        import lightgbm  # optional

        self._library = lightgbm
        self.schema = with_raw_numbers(schema)
        self._settings = {
            "objective": "binary", "metric": "binary_logloss", "num_leaves": leaves, "learning_rate": rate, "seed": 0,
            "deterministic": True, "num_threads": 1, "verbose": -1,
        }  # fmt: skip
        self._batches: list[Columns] = []
        self._clicks: list[NDArray[np.float32]] = []
        self._weights: list[NDArray[np.float32]] = []
        self._known: list[NDArray[np.uint64]] = []  # frequent keys of each field
        self._booster: Any = None

    def learn(self, batch: Batch) -> None:
        assert batch.clicks is not None
        self._batches.append(_columns(batch, self.schema.fields))
        self._clicks.append(batch.clicks)
        self._weights.append(batch.weights)

    def finish(self) -> None:
        columns = [np.concatenate(parts) for parts in zip(*self._batches, strict=True)]
        clicks, weights = np.concatenate(self._clicks), np.concatenate(self._weights)
        self._batches, self._clicks, self._weights = [], [], []
        self._known = [_frequent(column) for column in columns]
        matrix = self._matrix(columns)
        cut = len(matrix) - max(len(matrix) // 10, 1)
        trees = MOST_TREES
        if cut > 0:
            first = self._data(matrix[:cut], clicks[:cut], weights[:cut])
            valid = self._library.Dataset(matrix[cut:], clicks[cut:], weight=weights[cut:], reference=first)
            stopping = self._library.early_stopping(PATIENCE, verbose=False)
            trial = self._library.train(self._settings, first, MOST_TREES, valid_sets=[valid], callbacks=[stopping])
            trees = max(trial.best_iteration, 1)
        self._booster = self._library.train(self._settings, self._data(matrix, clicks, weights), trees)

    def predict(self, batch: Batch) -> NDArray[np.float64]:
        assert self._booster is not None
        return np.asarray(self._booster.predict(self._matrix(_columns(batch, self.schema.fields))), np.float64)

    def _data(self, matrix: NDArray, clicks: NDArray[np.float32], weights: NDArray[np.float32]) -> Any:
        categories = [index for index, field in enumerate(self.schema.fields) if not field.is_scaled]
        return self._library.Dataset(matrix, clicks, weight=weights, categorical_feature=categories)

    def _matrix(self, columns: Columns) -> NDArray[np.float64]:
        """Numbers as they are, NaN where there is none; categories from 1 up, 0 for rare and unknown ones."""
        matrix = np.zeros((len(columns[0]), len(columns)))
        for index, (column, known) in enumerate(zip(columns, self._known, strict=True)):
            if column.dtype != np.uint64:
                matrix[:, index] = column
            elif len(known):
                codes = np.minimum(np.searchsorted(known, column), len(known) - 1)
                matrix[:, index] = np.where(known[codes] == column, codes + 1, 0)
        return matrix


def with_raw_numbers(schema: Schema) -> Schema:
    """The schema with numbers as they are in place of buckets, except where a cross needs the buckets."""
    crossed = {name for field in schema.fields for name in field.cross}
    fields = [
        Field(field.name, field.group, "number", "scale", column=field.column)
        if field.kind == "number" and field.name not in crossed
        else field
        for field in schema.fields
    ]
    return msgspec.structs.replace(schema, fields=tuple(fields))


def _columns(batch: Batch, fields: Sequence[Field]) -> Columns:
    """A column for each field: the number, or the key of the first value."""
    row = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
    columns: Columns = []
    for index, field in enumerate(fields):
        mine = np.flatnonzero(batch.fields == index)[::-1]  # the first value wins
        if field.is_scaled:
            mine = mine[batch.keys[mine] == hash_value(field.key_name, SCALE_TEXT)]  # the others are missing
        column = np.full(len(batch), np.nan) if field.is_scaled else np.zeros(len(batch), np.uint64)
        column[row[mine]] = (batch.values if field.is_scaled else batch.keys)[mine]
        columns.append(column)
    return columns


def _frequent(column: NDArray) -> NDArray[np.uint64]:
    if column.dtype != np.uint64:
        return np.zeros(0, np.uint64)
    keys, counts = np.unique(column, return_counts=True)
    return keys[counts >= RARE]
