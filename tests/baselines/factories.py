"""The baselines as the battery of `tests/contract.py` meets them: small, and the batch models fitted every 20 rows."""

from collections.abc import Callable
from typing import Any

from pbodl.baselines import AdPredictor, BatchDNN, BatchFM, FTRLProximal, MatchBox
from pbodl.data.schema import Schema
from pbodl.models.contract import Model

QUICK: dict[str, Any] = {"retrain_every": "20 rows", "batch_size": 8, "max_epochs": 2, "learning_rate": 0.1}

BASELINES: dict[str, Callable[[Schema], Model]] = {
    "adpredictor": lambda schema: AdPredictor(schema, prior_variance=0.3, half_life="3h" if schema.time else None),
    "ftrl": lambda schema: FTRLProximal(schema, alpha=0.3, l1=0.05),
    "matchbox": lambda schema: MatchBox(schema, dim=3, prior_variance=0.3, drift=0.01 if schema.time else 0.0, time_step="1h"),
    "fm-batch": lambda schema: BatchFM(schema, dim=3, **QUICK),
    "dnn-batch": lambda schema: BatchDNN(schema, dim=3, hidden=(4,), window="50 rows", **QUICK),
}
BASELINE_OPT_OUTS: dict[tuple[str, str], str] = {
    ("matchbox", "it_learns_the_obvious"): "MatchBox refuses a schema with ads alone: it needs another side to multiply with",
}
