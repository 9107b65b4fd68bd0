"""PBODL: parallel Bayesian online deep learning for click-through rates."""

import importlib
from typing import TYPE_CHECKING, Any

from pbodl.baselines import AdPredictor, BatchDNN, BatchFM, FTRLProximal, MatchBox
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.contract import Model as _Model
from pbodl.models.contract import Prediction
from pbodl.models.deep_probit import FFMMLP, FMMLP, DeepProbit, SparseMLP
from pbodl.models.pair_fm import PairFM
from pbodl.models.snapshot import load
from pbodl.models.spec import FieldPrior, Prior

if TYPE_CHECKING:
    from pbodl.interface.classifier import PBODLClassifier
    from pbodl.interface.workflow import evaluate, explain, guess, train

__version__ = "0.1.0"

__all__ = [
    "FFMMLP",
    "FMMLP",
    "AdPredictor",
    "BatchDNN",
    "BatchFM",
    "DeepProbit",
    "FTRLProximal",
    "Field",
    "FieldPrior",
    "InputError",
    "MatchBox",
    "PBODLClassifier",
    "PairFM",
    "Prediction",
    "Prior",
    "Schema",
    "SparseMLP",
    "evaluate",
    "explain",
    "guess",
    "load",
    "train",
]

# Imported when they are first asked for: scikit-learn may be missing, and the commands' code takes its time.
_WORKFLOW = "pbodl.interface.workflow"
_LATER = {"PBODLClassifier": "pbodl.interface.classifier"} | dict.fromkeys(("evaluate", "explain", "guess", "train"), _WORKFLOW)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'pbodl' has no attribute {name!r}")
    globals()[name] = found = getattr(importlib.import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _report(model: _Model) -> Any:
    return importlib.import_module("pbodl.interface.notebook").report(model)


_Model.reporter = staticmethod(_report)
