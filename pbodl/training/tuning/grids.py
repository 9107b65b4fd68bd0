"""What may be tuned of each kind of model, and with which values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pbodl.errors import InputError
from pbodl.models.clock import parse_duration
from pbodl.models.spec import AS_PRINTED
from pbodl.training.config import Config, check_config, to_tables

HALF_LIVES = (None, "30d", "14d", "7d", "3d", "1d")
HALF_LIVES_IN_ROWS = (None, "30M rows", "10M rows", "3M rows", "1M rows", "300k rows", "100k rows")
ALIKE = 1.2  # ratio of numbers that are not worth two trials
Grid = dict[str, Sequence[Any]]

_DEEP: Grid = {
    "model.prior.linear": (0.004, 0.0075, 0.015, 0.03, 0.06, 0.12),
    "model.prior.embedding": (0.006, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4),
    "training.half_life": HALF_LIVES,
    "model.prior.dense": (0.0125, 0.025, 0.05, 0.1, 0.2),
    "model.dim": (4, 8, 16, 32),
}
# Models with pairs of features tune first how the pairs reach the output, so that few trials suffice to try it. With the shortcut,
# one hidden layer is mostly enough; without pairs, it has to be wide.
_PAIRS: Grid = {"model.shortcut": (False, True), "model.hidden": ((64,), (64, 32)), **_DEEP}
_BATCH: Grid = {
    "model.learning_rate": (0.003, 0.01, 0.03, 0.1, 0.3),
    "model.l2": (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    "model.dim": (4, 8, 16, 32),
}
# The keys to tune for each kind, the most important first.
GRIDS: dict[str, Grid] = {
    "deep-probit": _DEEP,
    "sparse-mlp": {"model.hidden": ((64, 32), (256,)), **_DEEP},
    "fm-mlp": {**_PAIRS, "model.pairs": ("fields", "groups")},
    "ffm-mlp": _PAIRS,
    "pair-fm": {
        "model.prior.linear": (0.004, 0.0075, 0.015, 0.03, 0.06, 0.12),
        "model.prior.embedding": (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4),
        "model.pair_weight": (0.1, 0.2, 0.35, 0.5),
        "training.half_life": HALF_LIVES,
        "model.dim": (4, 8, 16),
        "model.prior.dense": (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4),
        "model.prior.bias": (0.1, 1.0, 10.0),
    },
    "adpredictor": {"model.prior_variance": (0.003, 0.006, 0.01, 0.02, 0.04, 0.08, 0.16), "training.half_life": HALF_LIVES},
    "ftrl": {
        "model.alpha": (0.01, 0.02, 0.05, 0.1, 0.2, 0.4),
        "model.l2": (0.0, 0.3, 1.0, 3.0, 10.0),
        "model.beta": (0.3, 1.0, 3.0),
        "model.l1": (0.0, 0.1, 0.3, 1.0),
    },
    "matchbox": {
        "model.bias_variance": (0.005, 0.01, 0.02, 0.04, 0.08),
        "model.prior_variance": (0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
        "model.dim": (2, 4, 8, 16),
        "model.initial_spread": (0.01, 0.03, 0.1),
    },
    **dict.fromkeys(("fm-batch", "dnn-batch"), _BATCH),
}


def grid_of(config: Config) -> Grid:
    """The grid of the configuration's kind, with the configuration's values added."""
    if config.kind not in GRIDS:
        raise InputError(f"a {config.kind!r} model has nothing to tune; kinds that can be tuned: {', '.join(GRIDS)}")
    if getattr(config.build().spec, "retrain_every", "") is None:
        raise InputError(f"a {config.kind!r} model learns only when it is retrained; set model.retrain_every, such as '4h'")
    grid = dict(GRIDS[config.kind])
    half_life = "training.half_life"
    if half_life in grid:
        own = config.training.half_life
        in_rows = config.schema.time is None if own is None else parse_duration(own, "half_life").in_rows
        grid[half_life] = HALF_LIVES_IN_ROWS if in_rows else HALF_LIVES
    if config.model.get("linear") is False:
        grid.pop("model.prior.linear", None)
    if config.model.get("paper"):
        grid = {key: axis for key, axis in grid.items() if key.split(".")[1] not in AS_PRINTED}
    return {key: _with_value(key, axis, current_value(config, key)) for key, axis in grid.items()}


def current_value(config: Config, key: str) -> Any:
    """The value of a key such as "model.prior.dense" in a configuration, or its default."""
    table, *names = key.split(".")
    value: Any = config.training if table == "training" else config.build().spec
    for name in names:
        # A batch model without a learning rate uses that of its optimiser.
        value = value.recipe().learning_rate if name == "learning_rate" else getattr(value, name)
    return value


def with_values(config: Config, values: dict[str, Any]) -> Config:
    """The configuration with some keys changed; None removes a key."""
    tables = to_tables(config)
    for key, value in values.items():
        *parents, last = key.split(".")
        table = tables
        for name in parents:
            table[name] = dict(table.get(name, {}))
            table = table[name]
        table[last] = list(value) if isinstance(value, tuple) else value  # as TOML and JSON have it
        if value is None:
            del table[last]
    tables["training"] = {key: value for key, value in tables["training"].items() if value is not None}
    return check_config(tables)


def _with_value(key: str, axis: Sequence[Any], value: Any) -> list[Any]:
    """The axis with the value added in order, in place of numbers that are nearly the same."""
    if value in axis:
        return list(axis)
    if isinstance(value, float) and value > 0.0:
        axis = [other for other in axis if not value / ALIKE < other < value * ALIKE]
    if key == "training.half_life":
        return sorted([*axis, value], key=lambda text: -np.inf if text is None else -parse_duration(text, key).amount)
    return sorted([*axis, value])
