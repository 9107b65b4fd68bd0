"""The dense weights of a model of another shape: old weights stay, and new ones do not change any prediction.

    a = W z / √(n + 1)     a layer divides by its inputs: with more of them, the old weights grow by √((n' + 1)/(n + 1))

A new input of a layer is a new dimension of the embeddings or a new hidden unit. Its weights have the mean zero, so it adds nothing
to any mean. What the variance of these weights, times the square of the input, would add to the variance of a prediction is kept
small: they start with the share of their prior variance that `model_change` finds.

Forgetting leads old weights back to where they started from, which grows as they do, and new ones to where they start.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.kernels.layers.interaction import CONCAT, PAIRS
from pbodl.models.adaptation import HOME
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.migration.schema_change import SchemaChange

Indices = NDArray[np.int64]


class LayerInputs(NamedTuple):
    """Where the inputs of a new layer come from."""

    before: Indices  # index of the old input; -1 for a new one
    quiet: NDArray[np.bool_]  # new ones that are not zero in rows of the old form: their weights must not be heard


def check_wider(old: DeepProbit, new: DeepProbit) -> None:
    """InputError unless the new model has the old one's layers and dimensions, or more in each."""
    if new.spec.dim < old.spec.dim:
        raise InputError(
            f"model.dim is {new.spec.dim}, and was {old.spec.dim}: what the last dimensions have learned cannot be told apart from "
            "the rest, so a model cannot be narrowed; start a new run"
        )
    before, after = (getattr(model.spec, "hidden", ()) for model in (old, new))
    if len(before) != len(after):
        raise InputError(f"model.hidden is {list(after)}, and was {list(before)}: layers can be widened, not added or removed")
    if any(size < was for was, size in zip(before, after, strict=True)):
        raise InputError(f"model.hidden is {list(after)}, and was {list(before)}: a layer cannot be narrowed; start a new run")
    if new.spec.dim > old.spec.dim and getattr(new.spec, "shortcut", False):
        raise InputError("model.dim cannot grow with model.shortcut, which divides by its root: all predictions would change")


def dense_state(old: DeepProbit, new: DeepProbit, change: SchemaChange, share: float) -> State:
    """The dense weights of the new model, by the names of its state."""
    was, fresh = old.state(), new.state()
    if new.op == PAIRS:
        return _pairs(was, fresh, change)
    state: State = {}
    homes = []
    outputs = np.arange(new.layers()[0][0])
    for layer, ((_, old_out), (n_in, n_out)) in enumerate(zip(old.layers(), new.layers(), strict=True)):
        inputs = _first_inputs(old, new, change) if layer == 0 else LayerInputs(outputs, outputs < 0)
        mean, variance = fresh[f"dense.{layer}.mean"], fresh[f"dense.{layer}.variance"]
        own_mean, own_variance = was[f"dense.{layer}.mean"], was[f"dense.{layer}.variance"]
        ratio = np.float32(np.sqrt((n_in + 1) / own_mean.shape[1]))
        home, own_home = new.dense.start[layer, :n_out, :n_in].copy(), old.dense.start[layer]
        here = np.flatnonzero(inputs.before >= 0)
        home[:old_out, here] = own_home[:old_out, inputs.before[here]] * ratio
        home[:old_out, inputs.quiet] = 0.0
        homes.append(home.reshape(-1))
        for column, source in [*zip(here.tolist(), inputs.before[here].tolist(), strict=True), (n_in, own_mean.shape[1] - 1)]:
            mean[:old_out, column] = own_mean[:, source] * ratio
            variance[:old_out, column] = own_variance[:, source] * ratio**2
        mean[:old_out, :n_in][:, inputs.quiet] = 0.0
        variance[:old_out, :n_in][:, inputs.quiet] *= np.float32(share)
        state |= {f"dense.{layer}.mean": mean, f"dense.{layer}.variance": variance}
        if layer:
            centre = fresh[f"dense.{layer}.centre"]
            centre[here] = was[f"dense.{layer}.centre"][inputs.before[here]]
            state |= {f"dense.{layer}.centre": centre, f"dense.{layer}.total": fresh[f"dense.{layer}.total"]}
        outputs = np.where(np.arange(n_out) < old_out, np.arange(n_out), -1)
    return state | ({HOME: np.concatenate(homes)} if HOME in fresh else {})


def _first_inputs(old: DeepProbit, new: DeepProbit, change: SchemaChange) -> LayerInputs:
    """The inputs of the first layer: dimensions, of every field for concat."""
    if not old.layers()[0][0]:  # no hidden layer
        return LayerInputs(np.zeros(0, np.int64), np.zeros(0, bool))
    k0, k1 = old.spec.dim, new.spec.dim
    dims = np.where(np.arange(k1) < k0, np.arange(k1), -1)
    if new.op != CONCAT:
        return LayerInputs(dims, dims < 0)
    blocks = [np.where(dims >= 0, change.was * k0 + dims, -1) if change.was >= 0 else np.full(k1, -1) for change in change.fields]
    quiet = [np.full(k1, change.was >= 0) & (dims < 0) for change in change.fields]
    return LayerInputs(np.concatenate(blocks), np.concatenate(quiet))


def _pairs(was: State, fresh: State, change: SchemaChange) -> State:
    """The weights of pairs of fields that were there before; others start at their prior, the bias stays."""
    before = len({c.was for c in change.fields if c.was >= 0}) + len(change.dropped)
    index = {(f, g): place for place, (f, g) in enumerate((f, g) for f in range(before) for g in range(f + 1, before))}
    state = {}
    for name in ("dense.0.mean", "dense.0.variance"):
        weights, own, place = fresh[name], was[name], 0
        for f, one in enumerate(change.fields):
            for other in change.fields[f + 1 :]:
                if one.was >= 0 and other.was >= 0:
                    weights[0, place] = own[0, index[min(one.was, other.was), max(one.was, other.was)]]
                place += 1
        weights[0, -1] = own[0, -1]
        state[name] = weights
    return state
