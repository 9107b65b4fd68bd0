"""Logs that need no configuration file: their schema is known."""

from collections.abc import Callable
from typing import Any

import msgspec

from pbodl.data.avazu import AVAZU
from pbodl.data.synthetic import World


def avazu() -> dict[str, Any]:
    """Kaggle's Avazu log, `train.gz` as it is."""
    return {"schema": msgspec.to_builtins(AVAZU)}


def synthetic() -> dict[str, Any]:
    """What `pbodl data synth` writes."""
    return {"schema": msgspec.to_builtins(World(rows=1).schema)}


PRESETS: dict[str, Callable[[], dict[str, Any]]] = {"avazu": avazu, "synthetic": synthetic}
