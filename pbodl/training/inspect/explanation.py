"""One prediction, split into what its features add to it.

A feature's contribution is the latent mean with it minus the latent mean without it, everything else as it is (leave one out): any
model can be asked that. For a linear model the contributions and the base (no feature at all) add up to the prediction; where
features interact, two that only matter together are both missed when either is left out, so that there is a rest, which is shown.

Its `std` is the square root of the variance that the prediction has with the feature and would not have without it: for a linear
model the standard deviation of that very term. A feature can also make a prediction surer (its share of the variance is then
negative, and its `std` 0), if it damps what others say.
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
    """The prediction for a row, and what each of its features adds; the largest contributions first."""
    batch = from_data(model.schema, row, labelled=False)
    n = len(batch.keys)
    prediction = model.predict(_left_out(batch))
    ctr, mean, variance = (column.tolist() for column in prediction)
    names = _names(model.schema, row)
    weights = weights_of(model)
    known = _known(weights, batch) if weights is not None else [{} for _ in range(n)]
    linear = _linear(model, weights, batch)
    features = []
    for place in range(n):
        more = variance[0] - variance[place + 1]
        features.append(
            {
                "feature": names.name(int(batch.keys[place])),
                "contribution": mean[0] - mean[place + 1],
                "std": float(np.sqrt(max(more, 0.0))),
                "ctr_without": ctr[place + 1],
                "variance_share": more / variance[0] if variance[0] > 0 else 0.0,
                **known[place],
                **linear[place],
            }
        )
    rest = mean[0] - mean[-1] - sum(feature["contribution"] for feature in features)
    return {
        "model": model.kind,
        "ctr": ctr[0],
        "mean": mean[0],
        "std": float(np.sqrt(variance[0])),
        "base": {"ctr": ctr[-1], "mean": mean[-1], "std": float(np.sqrt(variance[-1]))},
        "features": sorted(features, key=lambda feature: -abs(feature["contribution"])),
        "interactions": rest,
    }


def _left_out(batch: Batch) -> Batch:
    """The one sample of a batch; then that sample without its first feature, without its second, ...; and last, without any."""
    n = len(batch.keys)
    entries = np.concatenate([np.arange(n), *(np.delete(np.arange(n), place) for place in range(n))])
    lengths = [n, *([n - 1] * n), 0]
    times, weights = np.repeat(batch.times, n + 2), np.repeat(batch.weights, n + 2)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return Batch(batch.keys[entries], batch.values[entries], batch.fields[entries], indptr, None, times, weights)


def _names(schema: Schema, row: Mapping[str, Any]) -> NameStore:
    columns = [field.name for field in schema.fields if field.derive is None]
    columns += [schema.time] if schema.time is not None and schema.time in row and schema.time not in columns else []
    names = NameStore(schema)
    names.add(pa.table({name: pa.array([row.get(name)]) for name in columns}))
    return names


def _known(weights: FeatureWeights, batch: Batch) -> list[dict[str, Any]]:
    """How often each feature was learned from, and how much of its prior variance is left."""
    left = weights.variance_left()
    known = []
    for row in weights.rows(batch.keys).tolist():
        facts: dict[str, Any] = {"count": int(weights.counts[row]) if row >= 0 else 0}
        if left is not None:
            facts["variance_left"] = float(left[row]) if row >= 0 else 1.0
        known.append(facts)
    return known


def _linear(model: Model, weights: FeatureWeights | None, batch: Batch) -> list[dict[str, Any]]:
    """What the linear term of a deep model says of each feature: the rest of its contribution goes through the network."""
    if weights is None or "linear" not in weights.parts:
        return [{} for _ in batch.keys]
    part: Gaussians = weights.parts["linear"]
    values: NDArray = model.scale.peek(batch) if hasattr(model, "scale") else batch.values
    shares = []
    for place, row in enumerate(weights.rows(batch.keys).tolist()):
        x = float(values[place])
        m, v = (part.mean[row, 0], part.variance[row, 0]) if row >= 0 else (0.0, part.prior[batch.fields[place], 0])
        shares.append({"linear": {"mean": float(x * m), "std": float(abs(x) * np.sqrt(v))}})
    return shares
