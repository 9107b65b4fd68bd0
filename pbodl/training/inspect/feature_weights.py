"""The weights of features, read from the `state()` of any model that keeps its weights by key."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.schema import Schema
from pbodl.models.clock import clock_of
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit

LINEAR = "linear."  # the deep models keep the linear term beside the embedding, on the same rows


class Gaussians(NamedTuple):
    """One part of the weights: the current means and variances of every feature, after forgetting."""

    mean: NDArray[np.float64]  # (features, width)
    variance: NDArray[np.float64]
    prior: NDArray[np.float64]  # (fields of the schema, width): variances before any data


class FeatureWeights(NamedTuple):
    keys: NDArray[np.uint64]
    fields: NDArray[np.int64]
    counts: NDArray[np.int64]
    last_seen: NDArray[np.float64]  # by the model's clock
    parts: dict[str, Gaussians]  # "embedding" and "linear" of the deep models, "weight" of the linear ones
    numbers: dict[str, NDArray]  # other values of a feature, such as FTRL's z and n

    def rows(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of each key, -1 if the model has not seen it."""
        order = np.argsort(self.keys)
        index = np.searchsorted(self.keys, keys, sorter=order)
        rows = order[np.minimum(index, len(order) - 1)] if len(order) else np.full(len(keys), -1)
        return np.where(self.keys[rows] == keys, rows, -1) if len(order) else rows

    def variance_left(self) -> NDArray[np.float64] | None:
        """The remaining share of the prior variance of each feature's own weight: 1 for a new feature, towards 0 as it is learned.

        The own weight is the linear one. A model without it has the average over the feature's vector, where a weight that is less
        certain than a new one counts as new: what a vector's dimensions mean can still turn, and none of them is an effect.
        """
        if not self.parts:
            return None
        own = [self.parts["linear"]] if "linear" in self.parts else list(self.parts.values())
        left = [np.minimum(part.variance / part.prior[self.fields], 1.0) for part in own]
        return np.concatenate(left, axis=1).mean(axis=1)


def weights_of(model: Model) -> FeatureWeights | None:
    """All features of a model; None if it keeps no weights by key."""
    state = model.state()
    prefix = next((name.removesuffix("keys") for name in state if name.endswith(".keys")), None)
    if prefix is None:
        return None
    keys, fields, count, last_seen = (state[f"{prefix}{name}"] for name in ("keys", "field", "count", "last_seen"))
    own = {name: array for name, array in state.items() if name.startswith((prefix, LINEAR)) and array.dtype.kind == "f"}
    own.pop(f"{prefix}last_seen")
    pairs = {name.replace("variance", "mean"): name for name in own if name.endswith("variance")}
    priors = model.prior_variances()
    kept = _kept(model, last_seen)
    parts = {
        _part(mean): _now(own[mean], own[variance], _wide(priors[variance]), fields, kept, _means_decay(model, _part(mean)))
        for mean, variance in pairs.items()
    }
    numbers = {name.removeprefix(prefix): array for name, array in own.items() if name not in {*pairs, *pairs.values()}}
    return FeatureWeights(keys, fields.astype(np.int64), count.astype(np.int64), last_seen, parts, numbers)


def in_time(schema: Schema, spec: Any) -> bool:
    """Whether the model's clock shows time; otherwise it counts rows."""
    return not clock_of(schema, getattr(spec, "half_life", None), getattr(spec, "time_to_live", None))[0]


def _part(name: str) -> str:
    """The part that a mean belongs to: "embedding" for `embedding.mean`, "bias" for `weight.bias_mean`."""
    prefix, _, last = name.rpartition(".")
    return last.removesuffix("mean").strip("_") or prefix


def _means_decay(model: Model, part: str) -> bool:
    """Whether forgetting also pulls the means of a part towards zero: not those of embeddings that started from a draw."""
    drawn = part == "embedding" and isinstance(model, DeepProbit) and model.row_prior.initial_scale != 0.0
    return getattr(model.spec, "decay_mean", True) and not drawn


def _kept(model: Model, last_seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of its evidence that each feature has kept since it was last seen."""
    _, half_life, _ = clock_of(model.schema, getattr(model.spec, "half_life", None), None)
    if not half_life:
        return np.ones((len(last_seen), 1))
    elapsed = np.maximum(getattr(model, "clock", 0.0) - last_seen, 0.0)
    return (2.0 ** (-elapsed / half_life))[:, None]


def _now(
    mean: NDArray, variance: NDArray, prior: NDArray, fields: NDArray, kept: NDArray[np.float64], also_mean: bool
) -> Gaussians:
    """Weights after decay: in precisions, π' = π_prior + kept (π - π_prior)."""
    m, v, v_prior = _wide(mean), _wide(variance), prior[fields]
    v_now = v * v_prior / (kept * v_prior + (1.0 - kept) * v)
    return Gaussians(kept * m * v_now / v if also_mean else m, v_now, prior)


def _wide(array: NDArray) -> NDArray[np.float64]:
    return (array[:, None] if array.ndim == 1 else array).astype(np.float64)
