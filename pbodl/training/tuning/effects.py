"""What can matter on a log: no trial is spent on keys that change nothing there.

A key is tried with the value farthest from the given one on the first rows. If every prediction stays the same to the last bit, the
key has no effect: `pairs` where there is one group, a vector's dim and prior where one field has no other to meet. Half-lives that
are longer than the log are left out as well: they differ from never forgetting by less than their name says.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import concat
from pbodl.models.clock import parse_duration
from pbodl.training.config import Config
from pbodl.training.run import learn_rows, new_model
from pbodl.training.tuning.grids import Grid, current_value, with_values

PROBED = 2000  # rows
HALF_LIFE = "training.half_life"
EMBEDDING = "model.prior.embedding"


def useful(config: Config, grid: Grid, batches: Sequence[Batch]) -> Grid:
    """The part of the grid that can matter on these rows."""
    kept = dict(grid)
    if HALF_LIFE in kept:
        kept[HALF_LIFE] = [value for value in kept[HALF_LIFE] if value == config.training.half_life or _fits(value, batches)]
    kept = {key: axis for key, axis in kept.items() if len(axis) > 1}
    if hasattr(config.build().spec, "retrain_every"):
        return kept  # it learns too late for the first rows to tell
    first = concat(_first(batches))
    ref = _predictions(config, first)
    kept = {key: axis for key, axis in kept.items() if key == HALF_LIFE or _changes(config, key, axis, first, ref)}
    if EMBEDDING in grid and EMBEDDING not in kept:
        kept.pop("model.dim", None)  # vectors without effect; their length only draws other initial weights of the layers
    return kept


def _fits(half_life: str | None, batches: Sequence[Batch]) -> bool:
    """Whether the log is at least as long as a half-life."""
    if half_life is None:
        return True
    length = parse_duration(half_life, HALF_LIFE)
    if length.in_rows:
        return length.amount <= sum(len(batch) for batch in batches)
    times = [batch.times for batch in batches if len(batch)]
    return bool(times) and length.amount <= max(part.max() for part in times) - min(part.min() for part in times)


def _changes(config: Config, key: str, axis: Sequence[Any], first: Batch, ref: NDArray[np.float64]) -> bool:
    index = list(axis).index(current_value(config, key))
    farthest = axis[0] if 2 * index >= len(axis) else axis[-1]
    return not np.array_equal(_predictions(with_values(config, {key: farthest}), first), ref)


def _predictions(config: Config, first: Batch) -> NDArray[np.float64]:
    return learn_rows(new_model(config, first), first, 0)[1]


def _first(batches: Sequence[Batch]) -> list[Batch]:
    parts: list[Batch] = []
    for batch in batches:
        parts.append(batch.rows(0, PROBED - sum(len(part) for part in parts)))
        if sum(len(part) for part in parts) >= PROBED:
            break
    return parts
