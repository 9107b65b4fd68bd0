"""LightGBM in batch, as `pbodl compare` runs it: boosted trees over numbers as they are and label-encoded categories."""

import numpy as np

from benchmarks.split import Outcome, Split
from benchmarks.stopwatch import Stopwatch
from pbodl.experiments.compare.lightgbm_rival import LightGBM


def run(split: Split, leaves: float, rate: float) -> Outcome:
    """Tuned by the last fifth of the rows to learn, if there are none to test: a batch learner has no progressive loss."""
    learned = split.learned if split.learned < len(split.raw) else split.learned * 4 // 5
    model = LightGBM(split.raw_schema, leaves=int(leaves), rate=rate)
    with Stopwatch() as watch:
        model.learn(split.raw.rows(0, learned))
        model.finish()
    predicted = model.predict(split.raw.rows(learned, len(split.raw))).astype(np.float32)
    before = predicted if learned < split.learned else None
    return Outcome(learned, watch.seconds, watch.cpu_seconds, before, predicted if before is None else predicted[:0])
