"""What takes part in a comparison: our models, and adapters of other libraries, each optional.

Every contestant gets the same rows with the same features, in the order of the log. Online ones predict a row before they learn it.
A batch one collects the rows and learns at the end.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.schema import Schema, nearest
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.training.config import Config, check_config, to_tables
from pbodl.training.tuning.grids import Grid

Floats = NDArray[np.float64]
RIVALS = "pbodl.experiments.compare"


class Contestant(Protocol):
    """A model in a comparison."""

    schema: Schema  # how it wants the log to be read

    def learn(self, batch: Batch) -> Floats | None:
        """Learn a batch; returns what was predicted for each row before it was learned, None for a batch model."""

    def finish(self) -> None:
        """Learn what was collected, after the last batch."""

    def predict(self, batch: Batch) -> Floats:
        """The click probability of each row; changes nothing."""


class Entry(msgspec.Struct, frozen=True):
    """A line of the table."""

    slug: str
    name: str
    config: Config | None = None  # ours
    library: str = ""  # module that it needs
    package: str = ""  # what pip installs
    home: str = ""  # module here with its adapter
    adapter: str = ""
    fixed: dict[str, Any] = {}  # settings that are not tuned
    grid: Grid = {}  # settings to tune, with their values
    start: dict[str, Any] = {}  # the values without tuning

    @property
    def install(self) -> str:
        """The line that installs it."""
        return f"pip install {self.package}"

    def build(self, schema: Schema, values: dict[str, Any] | None = None) -> Contestant:
        """A new contestant, with its default values or others."""
        if self.config is not None:
            return Ours(self.config)
        make: Callable[..., Contestant] = getattr(importlib.import_module(f"{RIVALS}.{self.home}"), self.adapter)
        return make(schema, **self.fixed, **(self.start if values is None else values))

    def absent(self) -> str | None:
        """Why the library cannot be used; None if it can, or if none is needed."""
        if not self.library:
            return None
        try:
            importlib.import_module(self.library)
        except (ImportError, OSError) as error:
            return str(error)
        return None


class Ours:
    """One of our models."""

    def __init__(self, config: Config) -> None:
        self.schema = config.schema
        self.model: Model = config.build()

    def learn(self, batch: Batch) -> Floats | None:
        return self.model.learn(batch)

    def finish(self) -> None:
        pass

    def predict(self, batch: Batch) -> Floats:
        return self.model.predict(batch).ctr


OURS = {
    "pair-fm": "PairFM", "fm-mlp": "FM-MLP", "ffm-mlp": "FFM-MLP", "adpredictor": "AdPredictor", "ftrl": "FTRL",
    "matchbox": "MatchBox",
}  # fmt: skip
OTHERS = (
    Entry(
        "river", "River SGD", None, "river", "river", "river_rival", "RiverLogistic", {"optimiser": "sgd"},
        {"rate": (0.001, 0.003, 0.01, 0.03, 0.1)}, {"rate": 0.01},
    ),
    Entry(
        "river-ftrl", "River FTRL", None, "river", "river", "river_rival", "RiverLogistic", {"optimiser": "ftrl"},
        {"rate": (0.02, 0.05, 0.1, 0.2, 0.4)}, {"rate": 0.1},
    ),
    Entry(
        "vw", "Vowpal Wabbit", None, "vowpalwabbit", "vowpalwabbit", "vw_rival", "VowpalWabbit", {"pairs": False},
        {"rate": (0.03, 0.1, 0.5, 1.0, 2.0)}, {"rate": 0.5},
    ),
    Entry(
        "vw-pairs", "Vowpal Wabbit -q ::", None, "vowpalwabbit", "vowpalwabbit", "vw_rival", "VowpalWabbit", {"pairs": True},
        {"rate": (0.01, 0.03, 0.1, 0.3, 0.5)}, {"rate": 0.1},
    ),
    Entry(
        "lightgbm", "LightGBM (batch)", None, "lightgbm", "lightgbm", "lightgbm_rival", "LightGBM", {},
        {"leaves": (15, 31, 63, 127), "rate": (0.03, 0.1, 0.3)}, {"leaves": 31, "rate": 0.1},
    ),
)  # fmt: skip
CONFIGURED = "configured"


def entries_for(config: Config, models: Sequence[str] | None = None) -> tuple[list[Entry], dict[str, str]]:
    """The entries for a log, and those that its schema does not allow, with the reason.

    A configuration with settings of its own comes first; then our models with their defaults, and the other libraries. `models`
    chooses some by their short names.
    """
    found: list[Entry] = []
    refused: dict[str, str] = {}
    schema = to_tables(config)["schema"]
    if config.model or config.training.half_life is not None or config.kind not in OURS:
        training = config.training.half_life
        tables = {"schema": schema, "model": {"kind": config.kind, **config.model}}
        tables |= {"training": {"half_life": training}} if training is not None else {}
        found.append(Entry(CONFIGURED, f"{OURS.get(config.kind, config.kind)}, as configured", check_config(tables)))
    for kind, name in OURS.items():
        try:
            found.append(Entry(kind, name, check_config({"schema": schema, "model": {"kind": kind}})))
        except InputError as error:
            refused[kind] = str(error)
    found += OTHERS
    if models is None:
        return found, {OURS[kind]: reason for kind, reason in refused.items()}
    slugs = [entry.slug for entry in found]
    for slug in models:
        if slug in refused:
            raise InputError(f"the model {slug!r} cannot learn this log: {refused[slug]}")
        if slug not in slugs:
            raise InputError(f"unknown model {slug!r}{nearest(slug, slugs)}; models to compare: {', '.join(slugs)}")
    return [found[slugs.index(slug)] for slug in dict.fromkeys(models)], {}
