"""One prediction, split into the contributions of its features.

A feature's contribution is the latent mean with it minus the latent mean without it, all else unchanged (leave one out); this works
for any model. In a linear model, the contributions and the base (no feature at all) add up to the prediction. Where features
interact, leaving out either of two that matter only together removes the effect of both, so a remainder is left, which is shown.

The `std` of a feature is the square root of the variance that it adds to the prediction: in a linear model, the standard deviation
of its term. A feature that damps the others can also make a prediction more certain; its share of the variance is then negative,
and its `std` 0.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import from_data
from pbodl.data.features.nested import nested_value
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.training.inspect.feature_names import NameStore
from pbodl.training.inspect.feature_weights import FeatureWeights, Gaussians, weights_of


def read_row(path: str | Path) -> dict[str, Any]:
    """The one row of a JSON file."""
    try:
        row = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the row {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"the row {path} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise InputError(f'{path} holds {type(row).__name__}; it must hold one row, an object such as {{"ad_id": "a1", ...}}')
    return row


def explained(model: Model, row: Mapping[str, Any]) -> dict[str, Any]:
    """The prediction for a row, and the contributions of its features in descending order of size."""
    batch = from_data(model.schema, row, labelled=False)
    n = len(batch.keys)
    prediction = model.predict(_left_out(batch))
    ctr, mean, variance = (column.tolist() for column in prediction)
    names = _names(model.schema, row)
    weights = weights_of(model)
    known = _known(weights, batch) if weights is not None else [{} for _ in range(n)]
    linear = _linear(model, weights, batch)
    features = []
    for index in range(n):
        more = variance[0] - variance[index + 1]
        features.append(
            {
                "feature": names.name(int(batch.keys[index])),
                "contribution": mean[0] - mean[index + 1],
                "std": float(np.sqrt(max(more, 0.0))),
                "ctr_without": ctr[index + 1],
                "variance_share": more / variance[0] if variance[0] > 0 else 0.0,
                **known[index],
                **linear[index],
            }
        )
    rest = mean[0] - mean[-1] - sum(feature["contribution"] for feature in features)
    return {
        "model": model.kind,
        "ctr": ctr[0],
        "ctr_std": float(prediction.std[0]),
        "mean": mean[0],
        "std": float(np.sqrt(variance[0])),
        "base": {"ctr": ctr[-1], "mean": mean[-1], "std": float(np.sqrt(variance[-1]))},
        "features": sorted(features, key=lambda feature: -abs(feature["contribution"])),
        "interactions": rest,
    }


def _left_out(batch: Batch) -> Batch:
    """The one sample of a batch, followed by copies without its first feature, without its second, ..., and without any."""
    n = len(batch.keys)
    entries = np.concatenate([np.arange(n), *(np.delete(np.arange(n), index) for index in range(n))])
    lengths = [n, *([n - 1] * n), 0]
    times, weights = np.repeat(batch.times, n + 2), np.repeat(batch.weights, n + 2)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return Batch(batch.keys[entries], batch.values[entries], batch.fields[entries], indptr, None, times, weights)


def _names(schema: Schema, row: Mapping[str, Any]) -> NameStore:
    columns = schema.sources
    if schema.time is not None and nested_value(row, schema.time) is not None and schema.time not in columns:
        columns.append(schema.time)
    names = NameStore(schema)
    names.add(pa.table({name: pa.array([nested_value(row, name)]) for name in columns}))
    return names


def _known(weights: FeatureWeights, batch: Batch) -> list[dict[str, Any]]:
    """The count of each feature, and the remaining share of its prior variance."""
    left = weights.variance_left()
    known = []
    for row in weights.rows(batch.keys).tolist():
        facts: dict[str, Any] = {"count": int(weights.counts[row]) if row >= 0 else 0}
        if left is not None:
            facts["variance_left"] = float(left[row]) if row >= 0 else 1.0
        known.append(facts)
    return known


def _linear(model: Model, weights: FeatureWeights | None, batch: Batch) -> list[dict[str, Any]]:
    """The part of each contribution that comes from a deep model's linear term; the rest goes through the network."""
    if weights is None or "linear" not in weights.parts:
        return [{} for _ in batch.keys]
    part: Gaussians = weights.parts["linear"]
    values: NDArray = model.scale.peek(batch) if hasattr(model, "scale") else batch.values
    shares = []
    for index, row in enumerate(weights.rows(batch.keys).tolist()):
        x = float(values[index])
        m, v = (part.mean[row, 0], part.variance[row, 0]) if row >= 0 else (0.0, part.prior[batch.fields[index], 0])
        shares.append({"linear": {"mean": float(x * m), "std": float(abs(x) * np.sqrt(v))}})
    return shares
