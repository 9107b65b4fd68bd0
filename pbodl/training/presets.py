"""Built-in configurations for logs with a known schema."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pbodl.data.known.avazu import AVAZU
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.training.config import read_config


def avazu() -> dict[str, Any]:
    """The Avazu log of Kaggle, `train.gz` unchanged."""
    return {"schema": msgspec.to_builtins(AVAZU)}


def synthetic() -> dict[str, Any]:
    """The log that `pbodl data synth` writes."""
    return {"schema": msgspec.to_builtins(World(rows=1).schema)}


def named_tables(config: Path | None, preset: str | None) -> dict[str, Any] | None:
    """The tables of a configuration file or a preset; None if neither is given."""
    if config is not None and preset is not None:
        raise InputError("give --config or --preset, not both")
    if config is not None:
        return read_config(config)
    if preset is not None and preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}; presets are: {', '.join(PRESETS)}")
    return None if preset is None else PRESETS[preset]()


PRESETS: dict[str, Callable[[], dict[str, Any]]] = {"avazu": avazu, "synthetic": synthetic}
