"""Look inside a run: the size of the model, its most certain features, the weights of a feature, the reasons of a prediction.

`overview`, `feature` and `explain` return plain data; `tables` formats it for the terminal.
"""

import difflib
from pathlib import Path
from typing import Any

import numpy as np

from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.pair_fm import PairFM
from pbodl.models.snapshot import load_snapshot
from pbodl.training.display import moment
from pbodl.training.inspect.explanation import explained, read_row
from pbodl.training.inspect.feature_names import NameStore, feature_key, readable_names
from pbodl.training.inspect.feature_weights import FeatureWeights, in_time, weights_of
from pbodl.training.inspect.inspection_tables import tables
from pbodl.training.inspect.pairs_of_fields import pairs_by_spread

__all__ = ["explain", "feature", "overview", "tables"]

SHOWN = 10  # features listed as most certain, and as most uncertain


def overview(run: str | Path) -> dict[str, Any]:
    """A model's size, its features by field, its counters, and its most certain and most uncertain features."""
    snapshot = load_snapshot(run)
    model = snapshot.model
    found: dict[str, Any] = {"what": "overview", "model": model.kind, "snapshot": snapshot.path.name, "counters": model.metrics()}
    found["bytes"] = sum(array.nbytes for array in model.state().values())
    if "delays.edges" in (join := snapshot.parts.get("join", {})):
        columns = (join[f"delays.{name}"].tolist() for name in ("edges", "came", "judged"))
        found["delays"] = [{"age": age, "share": share, "judged": judged} for age, share, judged in zip(*columns, strict=True)]
    weights = weights_of(model)
    if weights is None:
        return found
    names = readable_names(run, model.schema)
    left = weights.variance_left()
    found |= {"features": len(weights.keys), "names": 0 if names is None else len(names)}
    found["fields"] = [field_line(model, weights, index, left) for index in range(len(model.schema.fields))]
    if isinstance(model, PairFM):
        found["pairs"] = pairs_by_spread(model)
    if left is not None:
        # Rounded to three digits: among equally certain features, the frequent ones come first.
        order = np.lexsort((-weights.counts, left.round(3)))
        found["most_certain"] = [_feature_line(model, weights, row, left, names) for row in order[:SHOWN].tolist()]
        order = np.lexsort((-weights.counts, -left.round(3)))
        found["most_uncertain"] = [_feature_line(model, weights, row, left, names) for row in order[:SHOWN].tolist()]
    return found


def feature(run: str | Path, text: str) -> dict[str, Any]:
    """The weights of one feature, given as `field=value`; for an unseen feature, those of its prior."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--feature {text!r} is not of the form field=value, such as site_id=85f751fd")
    model = load_snapshot(run).model
    field = model.schema.fields[model.schema.field_index(name)]
    weights = weights_of(model)
    if weights is None:
        raise InputError(f"a {model.kind} model has no weights by feature to show")
    key = feature_key(field, value)
    row = int(weights.rows(np.array([key], dtype=np.uint64))[0])
    found: dict[str, Any] = {"what": "feature", "model": model.kind, "feature": text, "key": f"{key:016x}", "seen": row >= 0}
    names = readable_names(run, model.schema)
    if row < 0:
        index = model.schema.field_index(name)
        found |= {"count": 0, "variance_left": 1.0 if weights.parts else None}
        found["parts"] = {part: {"prior_variance": g.prior[index].tolist()} for part, g in weights.parts.items()}
        found["nearest"] = _similar(name, value, names)
        return found
    left = weights.variance_left()
    found |= _feature_line(model, weights, row, left, names) | {"feature": text}
    found["parts"] = {
        part: {
            "mean": gaussians.mean[row].tolist(),
            "variance": gaussians.variance[row].tolist(),
            "prior_variance": gaussians.prior[weights.fields[row]].tolist(),
        }
        for part, gaussians in weights.parts.items()
    }
    found["numbers"] = {name: np.ravel(array[row]).tolist() for name, array in weights.numbers.items()}
    return found


def explain(run: str | Path, row: str | Path) -> dict[str, Any]:
    """The contribution of each feature of a row (a JSON file) to its prediction; see `explanation`."""
    return {"what": "explanation", **explained(load_snapshot(run).model, read_row(row))}


def field_line(model: Model, weights: FeatureWeights, index: int, left: np.ndarray | None = None) -> dict[str, Any]:
    """The features of one field: how many, and how often they were seen."""
    mine = weights.fields == index
    n = int(mine.sum())
    line = {"field": model.schema.fields[index].name, "group": model.schema.fields[index].group, "features": n}
    line["seen_once"] = float((weights.counts[mine] <= 1).mean()) if n else None
    if left is not None:
        line["variance_left"] = float(left[mine].mean()) if n else None
    return line


def _feature_line(
    model: Model, weights: FeatureWeights, row: int, left: np.ndarray | None, names: NameStore | None
) -> dict[str, Any]:
    key = int(weights.keys[row])
    name = names.name(key) if names is not None else None
    line: dict[str, Any] = {"feature": name or f"{model.schema.fields[weights.fields[row]].name} #{key:016x}"}
    line |= {"count": int(weights.counts[row]), "last_seen": float(weights.last_seen[row])}
    line["when"] = moment(line["last_seen"], in_time(model.schema, model.spec))
    if left is not None:
        line["variance_left"] = float(left[row])
    return line


def _similar(field: str, value: str, names: NameStore | None) -> list[str]:
    """Similar values of the field that the model has seen."""
    values = [] if names is None else [name.partition("=")[2] for name in names.names() if name.startswith(f"{field}=")]
    return [f"{field}={close}" for close in difflib.get_close_matches(value, values, n=3)]
