"""Does a migration change predictions? Rows of the old form, made of features that the old model knows, are predicted by both."""

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.features.vectors import component_keys
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.migration.rebinning import moved_keys
from pbodl.models.migration.schema_change import ADDED, REBINNED, RESET, SchemaChange

ROWS = 256
SEED = 7


def largest_difference(old: DeepProbit, new: DeepProbit, change: SchemaChange) -> float:
    """The largest difference between the CTRs of both models."""
    rows = known_rows(old)
    return float(np.abs(old.predict(rows).ctr - new.predict(converted(rows, change)).ctr).max())


def known_rows(model: DeepProbit) -> Batch:
    """Rows with a value of each field, drawn from those that the model knows; without the fields of which it knows none."""
    draw, parts = np.random.default_rng(SEED), []
    for place, field in enumerate(model.schema.fields):
        known = model.table.keys[model.table.field == place]
        if not len(known):
            continue
        if field.length:  # a whole vector, or none
            known = component_keys(field)[None] if len(known) >= field.length else np.full((1, 1), hash_value(field.key_name, None))
        keys = draw.choice(known, ROWS)
        keys = keys.reshape(ROWS, -1)
        values = np.ones(keys.shape, np.float32)
        if field.is_scaled or field.length:
            values = _numbers(model, field, place, keys, draw)
        parts.append((np.full(keys.shape, place, np.int32), keys, values))
    if not parts:
        nothing = np.zeros(0, np.float32)
        return Batch(
            nothing.astype(np.uint64), nothing, nothing.astype(np.int32), np.zeros(ROWS + 1, np.int64), None, *_rest(model)
        )
    fields, keys, values = (np.concatenate(column, axis=1) for column in zip(*parts, strict=True))
    indptr = np.arange(0, keys.size + 1, keys.shape[1], dtype=np.int64)
    return Batch(keys.reshape(-1), values.reshape(-1), fields.reshape(-1), indptr, None, *_rest(model))


def _rest(model: DeepProbit) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    return np.full(ROWS, model.clock), np.ones(ROWS, np.float32)


def _numbers(
    model: DeepProbit, field: Field, place: int, keys: NDArray[np.uint64], draw: np.random.Generator
) -> NDArray[np.float32]:
    """Numbers such as the model has seen: one standard deviation around the mean."""
    first = len(model.schema.fields) + sum(other.length for other in model.schema.fields[:place]) if field.length else place
    count, mean, squares = model.scale.moments[first : first + max(field.length, 1)].T
    numbers = mean + draw.normal(size=(ROWS, len(count))) * np.sqrt(squares / np.maximum(count, 1.0))
    return np.where(keys == np.uint64(hash_value(field.key_name, None)), 1.0, numbers).astype(np.float32)


def converted(batch: Batch, change: SchemaChange) -> Batch:
    """Rows that were made with the old schema, as the new one has them: without dropped fields, new ones missing."""
    n, source = len(batch), np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
    parts: list[tuple[NDArray, NDArray, NDArray, NDArray]] = []  # row, field, keys, values
    for place, each in enumerate(change.fields):
        mine = np.flatnonzero(batch.fields == each.was)
        if each.fate in (ADDED, RESET):
            missing = np.full(n, hash_value(each.field.key_name, None), np.uint64)
            parts.append((np.arange(n), np.full(n, place), missing, np.ones(n, np.float32)))
            continue
        keys = batch.keys[mine]
        if each.fate == REBINNED and each.before is not None:
            moved = moved_keys(each.before, each.field)
            keys = np.array([moved.get(key, key) for key in keys.tolist()], np.uint64)
        parts.append((source[mine], np.full(len(mine), place), keys, batch.values[mine]))
    rows, fields, keys, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((fields, rows))
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(rows, minlength=n))])
    return batch._replace(keys=keys[order], values=values[order], fields=fields[order].astype(np.int32), indptr=indptr)
