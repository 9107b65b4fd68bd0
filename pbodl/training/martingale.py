"""Does a model move as much as it expected to? The martingale check, which needs no truth.

A posterior mean is a martingale: whatever is learned later, it changes by nothing on average, and the square of its change is what
its variance falls by,
    E[(m₁ - m₀)²] = E[v₀ - v₁]
A ratio above 1 says that predictions move more than the model expected: it is too sure, or its level drifts. For models of products
the ratio overstates: a vector that grows makes the variance rise again, which the linearised variance did not foresee.
"""

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.models.contract import Model, Prediction

Floats = NDArray[np.float64]
KEPT = 2000  # rows that are predicted again
LATER = 50_000  # rows that are learned in between
MEMORY = 0.2  # weight of the newest check


def martingale(mean: Floats, variance: Floats, later_mean: Floats, later_variance: Floats) -> dict[str, float | None]:
    """Change and fall between two moments; the change that all rows share, the level, is left out."""
    change, fall = float(np.var(later_mean - mean)), float(np.mean(variance - later_variance))
    return {"change": change, "fall": fall, "ratio": change / fall if fall > 0.0 else None}


class MartingaleWatch:
    """Keeps some rows with what was predicted for them, and predicts them again later."""

    def __init__(self, model: Model, kept: int = KEPT, later: int = LATER) -> None:
        self._model, self._kept, self._later = model, kept, later
        self._rows: Batch | None = None
        self._predicted: Prediction | None = None
        self._since = 0
        self._change = self._fall = 0.0

    def before(self, batch: Batch) -> None:
        """See a batch that is about to be learned."""
        learned = self._model.rows_learned
        if self._predicted is None or self._rows is None:
            self._rows = batch.rows(0, self._kept)
            self._predicted, self._since = self._model.predict(self._rows), learned
        elif learned - self._since >= self._later:
            now, then = self._model.predict(self._rows), self._predicted
            found = martingale(then.mean, then.variance, now.mean, now.variance)
            weight = MEMORY if self._fall else 1.0
            self._change += weight * ((found["change"] or 0.0) - self._change)
            self._fall += weight * ((found["fall"] or 0.0) - self._fall)
            self._predicted = None

    @property
    def ratio(self) -> float | None:
        """Change over fall, in a mean of the last checks; None until there is one."""
        return self._change / self._fall if self._fall > 0.0 else None
