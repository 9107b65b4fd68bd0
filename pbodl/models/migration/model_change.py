"""A model of a new schema and shape, with what an old one has learned.

Rows of features stay with their keys. New dimensions of a row start at a tiny draw (STEPS): not at zero, where products have no
slope and nothing would ever be learned, but so small that no prediction changes. A new field's missing value is a row at zero with
hardly any variance, so that rows of the old form, which lack the field, are predicted as before. All else that is new starts at its
prior. Values that were never seen have no rows: in more dimensions, their small initial draws are others.

In a model whose variance is linearised (`PairFM`) weights of mean zero that meet inputs of mean zero add no variance. In a network
that passes on variances layer by layer they do. There new weights start with a share of their prior variance, the largest that
changes no prediction by more than `STILL`; forgetting (`half_life`) then brings the rest back.
"""

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import hash_value, wrapping
from pbodl.errors import InputError
from pbodl.kernels.arguments import Rows
from pbodl.kernels.layers.embedding import initialise_rows
from pbodl.kernels.layers.interaction import BY_GROUP
from pbodl.models.adaptation import row_prior
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.learning import POWERS
from pbodl.models.migration.probe import largest_difference
from pbodl.models.migration.rebinning import key_map
from pbodl.models.migration.schema_change import ADDED, KEPT, REBINNED, SchemaChange, schema_change
from pbodl.models.migration.shape_change import check_wider, dense_state

PINNED = 1e-10  # variance of a new field's missing value
STILL = 5e-7  # the largest change of a CTR by wider layers
# Sizes of the draws in new dimensions, and shares of their prior variance with which new weights start: the first that is still.
STEPS = ((1e-4, 1.0), (1e-5, 1.0), *((1e-5, 10.0**-power) for power in range(1, 11)))
# Keys of a specification that may change; others would change the meaning of what was learned.
FREE = ("dim", "hidden", "prior", "adapt_prior", "half_life", "decay_mean", "step_cap", "capacity", "time_to_live")


class Migration(NamedTuple):
    """A migrated model, and what was done."""

    model: DeepProbit
    change: SchemaChange
    share: float  # of their prior variance with which new weights of layers start
    difference: float  # the largest change of a CTR, over rows of known values
    told: list[str]


def migrated(old: DeepProbit, new: DeepProbit) -> Migration:
    """The model `new`, which has learned nothing, with what `old` has learned; an InputError for what cannot be done."""
    check_spec(old, new)
    check_wider(old, new)
    change = schema_change(old.schema, new.schema)
    same = schema_change(old.schema, old.schema)
    wider, share = old, 1.0
    if _is_wider(old, new):
        shape = {name: getattr(new.spec, name) for name in ("dim", "hidden") if hasattr(new.spec, name)}
        for quiet, share in STEPS:
            wider = type(old).from_spec(old.schema, msgspec.structs.replace(old.spec, **shape))
            wider.load_state(_state(old, wider, same, quiet, share))
            if largest_difference(old, wider, same) <= STILL:
                break
        if share < 1.0 and new.spec.half_life is None:
            raise InputError(
                f"a {old.kind!r} model passes variances on layer by layer, so wider layers would change its predictions unless "
                "their weights start with hardly any variance, and without forgetting they would keep it and never learn. Set "
                "training.half_life, such as '30d', or start a new run"
            )
    new.load_state(_state(wider, new, change, STEPS[0][0], 1.0))
    told = change.told() + _told(old, new, share)
    return Migration(new, change, share, largest_difference(old, new, change), told)


def check_spec(old: DeepProbit, new: DeepProbit) -> None:
    """InputError if something changes that cannot."""
    if new.kind != old.kind:
        raise InputError(f"model.kind is {new.kind!r}, and was {old.kind!r}: another model starts anew, in another run")
    for name in old.spec.__struct_fields__:
        if name not in FREE and getattr(new.spec, name) != getattr(old.spec, name):
            raise InputError(
                f"{name} is {getattr(new.spec, name)!r}, and was {getattr(old.spec, name)!r}; a run keeps it for life. A migration "
                f"may change the fields, and: {', '.join(name for name in FREE if name in old.spec.__struct_fields__)}"
            )
    if new.spec.capacity is not None and new.spec.capacity < old.table.size:
        raise InputError(
            f"model.capacity is {new.spec.capacity:,}, and the model has {old.table.size:,} features; give it more room"
        )
    if len({new.counts_rows, old.counts_rows}) > 1 and old.rows_learned:
        raise InputError(
            "the model's clock counts rows or seconds, and a migration cannot change that: give half_life in the same unit"
        )


def _is_wider(old: DeepProbit, new: DeepProbit) -> bool:
    return new.spec.dim > old.spec.dim or getattr(new.spec, "hidden", ()) != getattr(old.spec, "hidden", ())


def _told(old: DeepProbit, new: DeepProbit, share: float) -> list[str]:
    lines = []
    for name in FREE:
        before, after = (getattr(model.spec, name, None) for model in (old, new))
        if before != after:
            shown = "the prior variances" if name == "prior" else f"{name} is {after}, and was {before}"
            lines.append("the specified prior variances change" if name == "prior" else shown)
    if share < 1.0:
        lines.append(f"new weights of layers start with {share:g} of their prior variance; forgetting brings the rest back")
    return lines


def _state(old: DeepProbit, new: DeepProbit, change: SchemaChange, quiet: float, share: float) -> State:
    """The new model's state."""
    was, state = old.state(), new.state()
    state |= dense_state(old, new, change, share)
    groups = _groups(old, new, change)
    _put_priors(state, was, change, groups)
    source = _put_rows(state, was, old, change)
    _put_weights(state, was, old, new, source, groups, quiet, share)
    moments = state["scale.moments"]
    for place, each in enumerate(change.fields):
        if each.was >= 0 and each.fate == KEPT:
            moments[place] = was["scale.moments"][each.was]
    first = [len(new.schema.fields), len(old.schema.fields)]
    begins = {index: first[1] + sum(field.length for field in old.schema.fields[:index]) for index in range(first[1])}
    for each in change.fields:
        if each.field.length and each.fate == KEPT:
            moments[first[0] : first[0] + each.field.length] = was["scale.moments"][begins[each.was] :][: each.field.length]
        first[0] += each.field.length
    return state | {"clock": was["clock"], "counters": was["counters"], POWERS: was[POWERS]}


def _groups(old: DeepProbit, new: DeepProbit, change: SchemaChange) -> list[int]:
    """For each of a row's vectors, which of the old ones it is; -1 for a new one."""
    if new.op not in BY_GROUP:
        return [0]
    names, sources = list(old.schema.groups), []
    for group in new.schema.groups:
        origins = [each.before.group for each in change.fields if each.field.group == group and each.before is not None]
        source = group if group in names else origins[0] if origins else None
        sources.append(-1 if source is None else names.index(source))
    return sources


def _put_priors(state: State, was: State, change: SchemaChange, groups: list[int]) -> None:
    """The priors in force of fields that stay. MODIFIES: state."""
    for place, each in enumerate(change.fields):
        if each.was >= 0:
            for group, source in enumerate(groups):
                if source >= 0:
                    state["prior.variance"][place, group] = was["prior.variance"][each.was, source]
            state["prior.linear_variance"][place] = was["prior.linear_variance"][each.was]


def _put_rows(state: State, was: State, old: DeepProbit, change: SchemaChange) -> NDArray[np.int64]:
    """The keys of all rows, and what is known about each; returns the old row of each, -1 for a pinned one. MODIFIES: state."""
    field_of = np.full(len(old.schema.fields), -1, np.int64)
    for place, each in enumerate(change.fields):
        if each.was >= 0 and each.fate == KEPT:
            field_of[each.was] = place
    of_rows = field_of[was["embedding.field"].astype(np.int64)]
    kept = np.flatnonzero(of_rows >= 0)
    parts = [(was["embedding.keys"][kept], of_rows[kept], kept)]
    for place, each in enumerate(change.fields):
        if each.fate == REBINNED and each.before is not None:
            missing = hash_value(each.field.key_name, None)
            keys = np.array([*({missing: missing} | key_map(each.before, each.field)).items()], np.uint64)
            rows = old.table.find(keys[:, 1].copy()).astype(np.int64)
            parts.append((keys[rows >= 0, 0], np.full(int((rows >= 0).sum()), place), rows[rows >= 0]))
        elif each.fate == ADDED and each.field.source is not None:
            pinned = np.array([hash_value(each.field.key_name, None)], np.uint64)
            parts.append((pinned, np.array([place]), np.array([-1])))
    keys, fields, source = (np.concatenate(column) for column in zip(*parts, strict=True))
    state |= {"embedding.keys": keys, "embedding.field": fields.astype(np.uint16)}
    state["embedding.last_seen"] = np.where(source >= 0, _taken(was["embedding.last_seen"], source), old.clock)
    state["embedding.count"] = np.where(source >= 0, _taken(was["embedding.count"], source), 1).astype(np.uint32)
    gone = len(was["embedding.keys"]) - len(np.unique(source[source >= 0]))
    state["embedding.evicted"] = was["embedding.evicted"]
    state["embedding.expired"] = np.array(int(was["embedding.expired"]) + gone)
    return source


def _taken(column: NDArray, source: NDArray[np.int64]) -> NDArray:
    """The rows of an array by their old indices; anything where there is none."""
    return column[source] if len(column) else np.zeros((len(source), *column.shape[1:]), column.dtype)


def _put_weights(
    state: State,
    was: State,
    old: DeepProbit,
    new: DeepProbit,
    source: NDArray[np.int64],
    groups: list[int],
    quiet: float,
    share: float,
) -> None:
    """The weights of all rows. MODIFIES: state."""
    k0, k1 = old.spec.dim, new.spec.dim
    mean, variance = _fresh(new, state, quiet)
    variance *= np.float32(share)
    for group, of_old in enumerate(groups):
        begin = group * k1
        if of_old >= 0:
            mean[:, begin : begin + k0] = _taken(was["embedding.mean"], source)[:, of_old * k0 : of_old * k0 + k0]
            variance[:, begin : begin + k0] = _taken(was["embedding.variance"], source)[:, of_old * k0 : of_old * k0 + k0]
        else:  # vectors that meet new fields alone start as those of any feature
            mean[:, begin : begin + k1] *= np.float32(new.spec.initial_spread / quiet)
    mean[source < 0], variance[source < 0] = 0.0, PINNED
    state |= {"embedding.mean": mean, "embedding.variance": variance}
    if new.spec.linear:
        for name, pin in (("linear.mean", 0.0), ("linear.variance", PINNED)):
            state[name] = np.where(source[:, None] >= 0, _taken(was[name], source), np.float32(pin))


def _fresh(new: DeepProbit, state: State, quiet: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows at a draw of this size, with the variance of their prior."""
    n, width = len(state["embedding.keys"]), new.table.column("mean").shape[1]
    mean, variance = np.empty((n, width), np.float32), np.empty((n, width), np.float32)
    none = np.zeros((0, 1), np.float32)
    rows = Rows(mean, variance, none, none, np.zeros(n), np.zeros(n, np.uint32))
    prior = row_prior(new.spec, state["prior.variance"], state["prior.linear_variance"])._replace(initial_scale=np.float32(quiet))
    with wrapping():
        initialise_rows(rows, state["embedding.keys"], state["embedding.field"], 0, prior)
    return mean, variance
