"""The factorisation machine in batch (Rendle 2010), with logistic loss.

Letters: v_i the factors (K) and w_i the linear weight of feature i, x_i its value, w_0 the bias.
    logit = w_0 + Σ_i w_i x_i + ½ Σ_k [(Σ_i v_ik x_i)² - Σ_i (v_ik x_i)²]
A row of the table holds v_i and, in its last column, w_i.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.baselines.batch_model import BatchModel, BatchSpec
from pbodl.baselines.batch_training import Dense, Floats, Forward
from pbodl.baselines.buffer import SampleHistory
from pbodl.data.schema import Schema
from pbodl.kernels.normal import ZERO


class BatchFMSpec(BatchSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of `BatchFM`."""

    initial_spread: float = 0.01


def fm_forward(vectors: Any, dense: Any) -> Any:
    """The network for JAX."""
    factors, linear = vectors[..., :-1], vectors[..., -1]
    pairs = 0.5 * (factors.sum(1) ** 2 - (factors**2).sum(1)).sum(1)
    return dense["bias"][0] + linear.sum(1) + pairs


@jit
def fm_logits(weights, bias, indptr, rows, values, logits):
    """The network, sample by sample. MODIFIES: logits."""
    dim = weights.shape[1] - 1
    sums, squares = np.empty(dim, np.float32), np.empty(dim, np.float32)
    for sample in range(len(logits)):
        sums[:] = ZERO
        squares[:] = ZERO
        logit = np.float64(bias)
        for j in range(indptr[sample], indptr[sample + 1]):
            r, x = rows[j], values[j]
            if r < 0:
                continue
            for k in range(dim):
                v = x * weights[r, k]
                sums[k] += v
                squares[k] += v * v
            logit += x * weights[r, dim]
        for k in range(dim):
            logit += 0.5 * (sums[k] * sums[k] - squares[k])
        logits[sample] = logit


class BatchFM(BatchModel):
    """Batch factorisation machine: refitted to a window of history, in minibatches and several epochs.

    When you would want it: to compare a model that is retrained every night with one that never stops learning. `learn` only
    gathers history, and predicts with the last fit (0.5 before the first); `fit` trains, and so does `retrain_every` at fixed
    times.

    Parameters
    ----------
    schema          the columns (`Schema`)
    dim             length of a feature's factors
    window          how much history to keep and to fit to: "7d", or "2M rows"; None keeps all
    retrain_every   fit when the clock enters a new period ("1d", "4h"), or every so many rows ("500k rows"); None: only by `fit()`
    optimizer       "adagrad" or "adam"
    learning_rate   None uses the optimizer's default, 0.03 or 0.001
    batch_size      samples per step
    max_epochs      the largest number of epochs; fewer if predictions of the last tenth of the history stop improving
    l2              strength of L2, per use of a weight
    initial_spread  standard deviation of the initial factors
    negative_rate   share of negatives that is left in the stream; predictions are recalibrated
    seed            random seed for the initial factors and the order of samples

    Examples
    --------
    >>> from pbodl.baselines import BatchFM
    >>> from pbodl.data.schema import Field, Schema
    >>> schema = Schema(label="click", fields=[Field("user", group="user"), Field("ad", group="ad")])
    >>> model = BatchFM(schema, dim=2, initial_spread=0.3, learning_rate=0.5, batch_size=8, max_epochs=10)
    >>> _ = model.learn([{"user": u, "ad": a, "click": int(u == a)} for _ in range(40) for u in range(2) for a in range(2)])
    >>> fitted = model.fit()
    >>> p = model.predict([{"user": 1, "ad": 1}, {"user": 1, "ad": 0}]).ctr
    >>> bool(p[0] > 0.8 and p[1] < 0.2)
    True

    References
    ----------
    S. Rendle: Factorization machines. ICDM 2010.
    """

    kind = "fm-batch"
    Spec = BatchFMSpec

    def __init__(
        self, schema: Schema, dim: int = 16, window: str | None = "2M rows", retrain_every: str | None = None,
        optimizer: str = "adagrad", learning_rate: float | None = None, batch_size: int = 512, max_epochs: int = 5,
        l2: float = 0.001, initial_spread: float = 0.01, negative_rate: float = 1.0, seed: int = 0,
    ) -> None:  # fmt: skip
        spec = BatchFMSpec(
            dim=dim, window=window, retrain_every=retrain_every, optimizer=optimizer, learning_rate=learning_rate,
            batch_size=batch_size, max_epochs=max_epochs, l2=l2, initial_spread=initial_spread,
            negative_rate=negative_rate, seed=seed,
        )  # fmt: skip
        self._build(schema, spec)

    def _width(self) -> int:
        return self.spec.dim + 1

    def _initial_dense(self) -> Dense:
        return {"bias": np.zeros(1, np.float32)}

    def _forward(self, slot_fields: tuple[int, ...]) -> Forward:
        return fm_forward

    def _logits(self, weights: Floats, dense: Dense, samples: SampleHistory) -> NDArray[np.float64]:
        logits = np.empty(len(samples.indptr) - 1)
        fm_logits(weights, dense["bias"][0], samples.indptr, samples.rows, samples.values, logits)
        return logits
