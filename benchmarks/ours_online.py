"""Our models with their default settings, over the same stream."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import pbodl
from benchmarks import first_pass
from benchmarks.ours import LEARN_ROWS
from benchmarks.split import Outcome, Split
from benchmarks.stopwatch import Stopwatch

MODELS: dict[str, tuple[type, dict[str, Any]]] = {
    **first_pass.MODELS,
    "FFM-MLP": (pbodl.FFMMLP, {}),
    "Sparse-MLP": (pbodl.SparseMLP, {}),
    "FTRL-Proximal": (pbodl.FTRLProximal, {}),
}


def run(split: Split, name: str) -> Outcome:
    kind, options = MODELS[name]
    model = kind(split.schema, **options)
    parts = split.parts(0, split.learned, LEARN_ROWS)
    with Stopwatch() as watch:
        learned = [model.learn(part) for part in parts]
    later = split.parts(split.learned, len(split.batch), LEARN_ROWS)
    tested = [model.predict(part).ctr for part in later]
    learned_on = [model.learn(part) for part in later]
    return Outcome(split.learned, watch.seconds, watch.cpu_seconds, _joined(learned), _joined(tested), _joined(learned_on))


def _joined(parts: list[NDArray[np.float64]]) -> NDArray[np.float32]:
    return np.concatenate([np.zeros(0), *parts]).astype(np.float32)


def warm_up(split: Split, name: str) -> None:
    """Compile, or load compiled code, before the measurement."""
    kind, options = MODELS[name]
    model, few = kind(split.schema, **options), split.batch.rows(0, 64)
    model.learn(few)
    model.predict(few)
