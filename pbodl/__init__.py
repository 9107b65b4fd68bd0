"""PBODL: parallel Bayesian online deep learning for click-through rates."""

from pbodl.baselines import AdPredictor, BatchDNN, BatchFM, FTRLProximal, MatchBox
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.contract import Prediction
from pbodl.models.deep_probit import FFMMLP, FMMLP, DeepProbit, SparseMLP
from pbodl.models.pair_fm import PairFM
from pbodl.models.snapshot import load
from pbodl.models.spec import FieldPrior, Prior

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
    "PairFM",
    "Prediction",
    "Prior",
    "Schema",
    "SparseMLP",
    "load",
]
