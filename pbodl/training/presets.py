"""Logs that need no configuration file: their schema is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pbodl.data.avazu import AVAZU
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.training.config import read_config


def avazu() -> dict[str, Any]:
    """Kaggle's Avazu log, `train.gz` as it is."""
    return {"schema": msgspec.to_builtins(AVAZU)}


def synthetic() -> dict[str, Any]:
    """What `pbodl data synth` writes."""
    return {"schema": msgspec.to_builtins(World(rows=1).schema)}


def named_tables(config: Path | None, preset: str | None) -> dict[str, Any] | None:
    """The tables of a configuration file or of a preset; None if neither is named."""
    if config is not None and preset is not None:
        raise InputError("give --config or --preset, not both")
    if config is not None:
        return read_config(config)
    if preset is not None and preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}; presets are: {', '.join(PRESETS)}")
    return None if preset is None else PRESETS[preset]()


PRESETS: dict[str, Callable[[], dict[str, Any]]] = {"avazu": avazu, "synthetic": synthetic}
