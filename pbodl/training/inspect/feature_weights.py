"""The weights of a model's features, of any kind of model that keeps them by key: read from its `state()`."""

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.schema import Schema
from pbodl.models.clock import clock_of
from pbodl.models.contract import Model

LINEAR = "linear."  # the deep models' linear term stands beside the embedding, on the same rows


class Gaussians(NamedTuple):
    """One part of the weights: every feature's means and variances as they are now, forgetting included."""

    mean: NDArray[np.float64]  # (features, width)
    variance: NDArray[np.float64]
    prior: NDArray[np.float64]  # (schema's fields, width): variances before any data


class FeatureWeights(NamedTuple):
    keys: NDArray[np.uint64]
    fields: NDArray[np.int64]
    counts: NDArray[np.int64]
    last_seen: NDArray[np.float64]  # by the model's clock
    parts: dict[str, Gaussians]  # "embedding" and "linear" of the deep models, "weight" of the linear ones
    numbers: dict[str, NDArray]  # what else a feature has, such as FTRL's z and n

    def rows(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of each key, -1 if the model has not seen it."""
        order = np.argsort(self.keys)
        place = np.searchsorted(self.keys, keys, sorter=order)
        rows = order[np.minimum(place, len(order) - 1)] if len(order) else np.full(len(keys), -1)
        return np.where(self.keys[rows] == keys, rows, -1) if len(order) else rows

    def variance_left(self) -> NDArray[np.float64] | None:
        """What is left of each feature's prior variance, the mean over its weights: 1 knows nothing, 0 everything."""
        if not self.parts:
            return None
        left = [part.variance / part.prior[self.fields] for part in self.parts.values()]
        return np.concatenate(left, axis=1).mean(axis=1)


def weights_of(model: Model) -> FeatureWeights | None:
    """All features of a model; None if it keeps none by key."""
    state = model.state()
    prefix = next((name.removesuffix("keys") for name in state if name.endswith(".keys")), None)
    if prefix is None:
        return None
    keys, fields, count, last_seen = (state[f"{prefix}{name}"] for name in ("keys", "field", "count", "last_seen"))
    own = {name: array for name, array in state.items() if name.startswith((prefix, LINEAR)) and array.dtype.kind == "f"}
    own.pop(f"{prefix}last_seen")
    pairs = {name.replace("variance", "mean"): name for name in own if name.endswith("variance")}
    priors = _priors(model, list(pairs.values())) if pairs else {}
    kept = _kept(model, last_seen)
    parts = {
        _part(mean): _now(own[mean], own[variance], priors[variance], fields, kept, getattr(model.spec, "decay_mean", True))
        for mean, variance in pairs.items()
    }
    numbers = {name.removeprefix(prefix): array for name, array in own.items() if name not in {*pairs, *pairs.values()}}
    return FeatureWeights(keys, fields.astype(np.int64), count.astype(np.int64), last_seen, parts, numbers)


def in_time(schema: Schema, spec: Any) -> bool:
    """Whether the model's clock is the time of day; else it counts rows."""
    return not clock_of(schema, getattr(spec, "half_life", None), getattr(spec, "time_to_live", None))[0]


def _part(name: str) -> str:
    """`embedding.mean` is "embedding", `weight.bias_mean` "bias"."""
    prefix, _, last = name.rpartition(".")
    return last.removesuffix("mean").strip("_") or prefix


def _priors(model: Model, names: list[str]) -> dict[str, NDArray]:
    """The variances of a feature of each field before any data: those of a new model that was shown one, with a weight of zero."""
    n = len(model.schema.fields)
    spec = model.spec
    if "capacity" in type(spec).__struct_fields__:
        spec = msgspec.structs.replace(spec, capacity=None)
    untaught = type(model).from_spec(model.schema, spec)
    own = {name: array for name, array in model.state().items() if name.startswith("prior.")}
    if own:
        untaught.load_state(untaught.state() | own)  # what the stream has made of them
    fields, ones = np.arange(n, dtype=np.int32), np.ones(n, dtype=np.float32)
    zero, no_weight = np.zeros(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    untaught.learn(Batch(fields.astype(np.uint64), ones, fields, np.array([0, n]), zero, np.zeros(1), no_weight))
    # Six digits: the arithmetic of a lesson without weight leaves the last ones of a float32 shaken.
    return {name: np.vectorize(lambda variance: float(f"{variance:.6g}"))(_wide(untaught.state()[name])) for name in names}


def _kept(model: Model, last_seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of what it has learned that each feature has not forgotten since it was last seen."""
    _, half_life, _ = clock_of(model.schema, getattr(model.spec, "half_life", None), None)
    if not half_life:
        return np.ones((len(last_seen), 1))
    elapsed = np.maximum(getattr(model, "clock", 0.0) - last_seen, 0.0)
    return (2.0 ** (-elapsed / half_life))[:, None]


def _now(
    mean: NDArray, variance: NDArray, prior: NDArray, fields: NDArray, kept: NDArray[np.float64], also_mean: bool
) -> Gaussians:
    """FeatureWeights after decay: in precisions, π' = π_prior + kept (π - π_prior)."""
    m, v, v_prior = _wide(mean), _wide(variance), prior[fields]
    v_now = v * v_prior / (kept * v_prior + (1.0 - kept) * v)
    return Gaussians(kept * m * v_now / v if also_mean else m, v_now, prior)


def _wide(array: NDArray) -> NDArray[np.float64]:
    return (array[:, None] if array.ndim == 1 else array).astype(np.float64)
