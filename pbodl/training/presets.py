"""Built-in configurations for logs with a known schema."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pbodl.data.known.avazu import AVAZU
from pbodl.data.known.criteo import CRITEO
from pbodl.data.known.movielens import MOVIELENS, MOVIELENS_1M
from pbodl.data.schema import Schema
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.training.config import read_config


def _of(schema: Callable[[], Schema]) -> Callable[[], dict[str, Any]]:
    return lambda: {"schema": msgspec.to_builtins(schema())}


def named_tables(config: Path | None, preset: str | None) -> dict[str, Any] | None:
    """The tables of a configuration file or a preset; None if neither is given."""
    if config is not None and preset is not None:
        raise InputError("give --config or --preset, not both")
    if config is not None:
        return read_config(config)
    if preset is not None and preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}; presets are: {', '.join(PRESETS)}")
    return None if preset is None else PRESETS[preset]()


PRESETS: dict[str, Callable[[], dict[str, Any]]] = {
    "avazu": _of(lambda: AVAZU),
    "criteo": _of(lambda: CRITEO),
    "movielens": _of(lambda: MOVIELENS),
    "movielens-1m": _of(lambda: MOVIELENS_1M),
    "synthetic": _of(lambda: World(rows=1).schema),  # the log that `pbodl data synth` writes
}
