"""Our models with their default settings, over the same stream."""

from typing import Any

import numpy as np

import pbodl
from benchmarks.ours import LEARN_ROWS
from benchmarks.split import Outcome, Split, log_loss
from benchmarks.stopwatch import Stopwatch


def run(split: Split, kind: type, options: dict[str, Any]) -> Outcome:
    rows = len(split.train.batch)
    parts = split.train.parts(rows, LEARN_ROWS)
    model = kind(split.train.schema, **options)
    with Stopwatch() as watch:
        learned = [model.learn(part) for part in parts]
    tested = [model.predict(part).ctr for part in split.test.parts(len(split.test.batch), LEARN_ROWS)]
    predicted = np.concatenate(tested).astype(np.float32) if tested else np.zeros(0, dtype=np.float32)
    return Outcome(rows, watch.seconds, watch.cpu_seconds, log_loss(np.concatenate(learned), split.train.clicks), predicted)


def warm_up(split: Split, kind: type, options: dict[str, Any]) -> None:
    """Compile, or load compiled code, before the measurement."""
    few = split.train.batch.rows(0, 64)
    model = kind(split.train.schema, **options)
    model.learn(few)
    model.predict(few)


MODELS: dict[str, tuple[type, dict[str, Any]]] = {
    "AdPredictor": (pbodl.AdPredictor, {}),
    "FTRL-Proximal": (pbodl.FTRLProximal, {}),
    "MatchBox": (pbodl.MatchBox, {}),
    "Sparse-MLP": (pbodl.SparseMLP, {}),
    "PairFM": (pbodl.PairFM, {}),
    "FM-MLP": (pbodl.FMMLP, {}),
    "FM-MLP, shortcut": (pbodl.FMMLP, {"shortcut": True}),
    "FFM-MLP": (pbodl.FFMMLP, {}),
    "FFM-MLP, shortcut": (pbodl.FFMMLP, {"shortcut": True}),
}
