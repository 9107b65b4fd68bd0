"""What the dashboard shows about a model's features: the most uncertain ones, and the common values of each field.

It reads a served version without copying its rows, in steps that let other threads answer requests meanwhile.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.schema import Field
from pbodl.errors import InputError
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring.packed_rows import COLUMN, unpack
from pbodl.training.inspect.feature_names import MISSING, look_up
from pbodl.training.inspect.feature_weights import weights_of

UNCERTAIN = 10  # number of features listed
FREQUENT = 12  # suggested values per field
LEAST = 20  # minimum count of a listed feature: after one sighting, every feature is uncertain


class UncertainFeature(msgspec.Struct):
    """`value` is None where the run does not keep names; `key` is the feature's hash."""

    field: str
    value: str | None
    key: str
    count: int
    variance_left: float


class FieldFeatures(msgspec.Struct):
    """How many features of a field there are, what is left of their variance on average, and its most frequent values."""

    field: str
    features: int
    variance_left: float | None
    frequent: list[str]


class FeaturesAnswer(msgspec.Struct):
    model: int
    features: int
    uncertain: list[UncertainFeature]
    fields: list[FieldFeatures]


def features(version: Version, run: str | None) -> FeaturesAnswer:
    """The features of a version; `run` is the folder in which their names may be."""
    schema = version.model.schema
    keys, field_of, counts, left = _about(version)
    seen = np.flatnonzero(counts >= LEAST) if left is not None else np.zeros(0, np.int64)
    left = np.zeros(len(keys)) if left is None else left
    # Rounded to three digits: among equally uncertain features, the frequent ones come first.
    uncertain = seen[np.lexsort((-counts[seen].astype(np.int64), -left[seen].round(3)))[:UNCERTAIN]]
    by_field = [np.flatnonzero(field_of == index) for index in range(len(schema.fields))]
    frequent = [_most(rows, counts) for rows in by_field]
    names = feature_names(run, keys[np.concatenate([uncertain, *frequent])])
    lines = [
        UncertainFeature(schema.fields[field_of[row]].name, names.get(key), f"{key:016x}", int(counts[row]), float(left[row]))
        for row, key in zip(uncertain.tolist(), keys[uncertain].tolist(), strict=True)
    ]
    fields = [
        FieldFeatures(
            field.name,
            len(rows),
            float(left[rows].mean()) if len(rows) else None,
            _values(field, [names.get(key) for key in keys[often].tolist()]),
        )
        for field, rows, often in zip(schema.fields, by_field, frequent, strict=True)
    ]
    return FeaturesAnswer(version.number, len(keys), lines, fields)


def _about(version: Version) -> tuple[NDArray[np.uint64], NDArray, NDArray, NDArray[np.float64] | None]:
    """Key, field, count and remaining variance of every feature; no variance for models without uncertainty."""
    if not version.whole:
        table = version.table
        return table.keys, table.field, table.count, variance_left(version)
    weights = weights_of(version.model)
    if weights is None:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64), None
    return weights.keys, weights.fields, weights.counts, weights.variance_left()


def variance_left(version: Version) -> NDArray[np.float64]:
    """The remaining share of the prior variance of each feature's own weight, after forgetting (`FeatureWeights.variance_left`)."""
    table, model = version.table, version.model
    columns, prior, fields = unpack(table.column(COLUMN), table.layout), model.row_prior, table.field
    kept = np.ones((table.size, 1))
    if model.forgetting.half_life:
        kept = 2.0 ** (-np.maximum(model.clock - table.last_seen, 0.0) / model.forgetting.half_life)[:, None]
    if table.layout.linear:
        left = columns["linear_variance"] / prior.linear_variance[fields, None]
    else:
        left = columns["variance"] / prior.variance[fields]
    # In precisions: 1/left' = 1 + kept (1/left - 1).
    return np.minimum(left / (kept + (1.0 - kept) * left), 1.0).mean(axis=1)


def _most(rows: NDArray[np.int64], counts: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The most frequent of some rows, in descending order."""
    return rows[np.argsort(-counts[rows].astype(np.int64), kind="stable")[:FREQUENT]]


def _values(field: Field, names: list[str | None]) -> list[str]:
    """The names that can be entered as values: not the marker of a missing value, and not the ranges of numbers."""
    return [] if field.kind == "number" else [name for name in names if name is not None and name != MISSING]


def feature_names(run: str | None, keys: NDArray[np.uint64]) -> dict[int, str]:
    try:
        return {} if run is None or "://" in run else look_up(run, keys)
    except InputError:
        return {}  # better a dashboard without names than none
