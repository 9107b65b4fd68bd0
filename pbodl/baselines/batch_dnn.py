"""The deep network in batch: embeddings, concatenated or summed, and a multilayer perceptron with ReLU; logistic loss.

Letters: e_i the embedding (K) of feature i, x_i its value; W_l (in x out), c_l the weights and biases of layer l.
    h_0 = the fields' Σ x_i e_i side by side ("concat"), or Σ_i x_i e_i ("sum")
    h_l+1 = max(0, h_l W_l + c_l)        logit = h_L W_L + c_L
"""

import functools
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.baselines.batch_model import BatchModel, BatchSpec
from pbodl.baselines.batch_training import Dense, Floats, Forward
from pbodl.baselines.buffer import SampleHistory
from pbodl.data.hashing import wrapping
from pbodl.data.schema import Schema
from pbodl.kernels.layers.embedding import standard_draws
from pbodl.kernels.normal import ZERO
from pbodl.models.parameter_checks import check_choice, checked_layers

SAMPLES = 4096  # samples per call of the kernels


class BatchDNNSpec(BatchSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of `BatchDNN`."""

    hidden: tuple[int, ...] = (64, 32)
    embedding: str = "concat"

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "hidden", checked_layers(self.hidden, least=1))
        check_choice("embedding", self.embedding, ("concat", "sum"))


@functools.lru_cache(maxsize=32)
def dnn_forward(slot_fields: tuple[int, ...], concat: bool, layers: int) -> Forward:
    """The network for JAX, for samples whose slots belong to these fields."""
    import jax.numpy as jnp

    fields = slot_fields[-1] + 1
    member = np.equal.outer(slot_fields, np.arange(fields)).astype(np.float32)  # [slots, fields]

    def forward(vectors: Any, dense: Any) -> Any:
        if not concat:
            h = vectors.sum(1)
        elif fields == len(slot_fields):
            h = vectors.reshape(len(vectors), -1)
        else:
            h = jnp.einsum("nsk,sf->nfk", vectors, member).reshape(len(vectors), -1)
        for layer in range(layers):
            h = h @ dense[f"dense.{layer}.weight"] + dense[f"dense.{layer}.bias"]
            h = h if layer == layers - 1 else jnp.maximum(h, 0.0)
        return h[:, 0]

    return forward


@jit
def embed(weights, field_of_row, concat, indptr, rows, values, h):
    """h_0 of every sample. MODIFIES: h."""
    dim = weights.shape[1]
    for sample in range(len(indptr) - 1):
        for i in range(h.shape[1]):
            h[sample, i] = ZERO
        for j in range(indptr[sample], indptr[sample + 1]):
            r, x = rows[j], values[j]
            if r >= 0:
                begin = np.int64(field_of_row[r]) * dim if concat else 0
                for k in range(dim):
                    h[sample, begin + k] += x * weights[r, k]


@jit
def layer_forward(h, weight, bias, last, a):
    """The next layer's values: h W + c, and its positive part unless it is the last. MODIFIES: a."""
    for sample in range(len(h)):
        values, sums = h[sample], a[sample]
        for o in range(len(sums)):
            sums[o] = bias[o]
        for i in range(len(values)):
            x, factors = values[i], weight[i]
            for o in range(len(sums)):
                sums[o] += x * factors[o]
        if not last:
            for o in range(len(sums)):
                sums[o] = max(sums[o], ZERO)


class BatchDNN(BatchModel):
    """Batch deep network: embeddings and a perceptron, refitted to a window of history.

    When you would want it: as for `BatchFM`, with a network instead of pairs. More than an epoch or two seldom helps; a held-out
    part of the history decides.

    Parameters
    ----------
    hidden          sizes of the hidden layers, one to five
    embedding       "concat" for the fields' embeddings side by side, "sum" for their sum
    All other parameters are those of `BatchFM`.

    Examples
    --------
    >>> from pbodl.baselines import BatchDNN
    >>> from pbodl.data.schema import Field, Schema
    >>> schema = Schema(label="click", fields=[Field("user", group="user"), Field("ad", group="ad")])
    >>> model = BatchDNN(schema, dim=4, hidden=(8,), initial_spread=0.5, learning_rate=0.2, batch_size=8, max_epochs=10)
    >>> _ = model.learn([{"user": u, "ad": a, "click": int(u == a)} for _ in range(40) for u in range(2) for a in range(2)])
    >>> fitted = model.fit()
    >>> p = model.predict([{"user": 1, "ad": 1}, {"user": 1, "ad": 0}]).ctr
    >>> bool(p[0] > 0.8 and p[1] < 0.2)
    True
    """

    kind = "dnn-batch"
    Spec = BatchDNNSpec
    spec: BatchDNNSpec

    def __init__(
        self, schema: Schema, dim: int = 16, hidden: Iterable[int] = (64, 32), embedding: str = "concat",
        window: str | None = "2M rows", retrain_every: str | None = None, optimizer: str = "adagrad",
        learning_rate: float | None = None, batch_size: int = 512, max_epochs: int = 5, l2: float = 0.001,
        initial_spread: float = 0.03, negative_rate: float = 1.0, seed: int = 0,
    ) -> None:  # fmt: skip
        spec = BatchDNNSpec(
            dim=dim, hidden=hidden, embedding=embedding, window=window, retrain_every=retrain_every, optimizer=optimizer,  # type: ignore[arg-type]
            learning_rate=learning_rate, batch_size=batch_size, max_epochs=max_epochs, l2=l2,
            initial_spread=initial_spread, negative_rate=negative_rate, seed=seed,
        )  # fmt: skip
        self._build(schema, spec)

    def _width(self) -> int:
        return self.spec.dim

    def _sizes(self) -> tuple[int, ...]:
        fields = len(self.schema.fields) if self.spec.embedding == "concat" else 1
        return (fields * self.spec.dim, *self.spec.hidden, 1)

    def _initial_dense(self) -> Dense:
        """Weights drawn with variance 2/in, which keeps the size of values through ReLU layers; biases at zero."""
        dense = {}
        for layer, (n_in, n_out) in enumerate(zip(self._sizes()[:-1], self._sizes()[1:], strict=True)):
            with wrapping():
                draws = standard_draws(np.uint64(self.spec.seed), np.uint64(layer), n_in * n_out)
            dense[f"dense.{layer}.weight"] = draws.reshape(n_in, n_out) * np.float32(np.sqrt(2.0 / n_in))
            dense[f"dense.{layer}.bias"] = np.zeros(n_out, np.float32)
        return dense

    def _forward(self, slot_fields: tuple[int, ...]) -> Forward:
        return dnn_forward(slot_fields, self.spec.embedding == "concat", len(self.spec.hidden) + 1)

    def _logits(self, weights: Floats, dense: Dense, samples: SampleHistory) -> NDArray[np.float64]:
        n, sizes = len(samples.indptr) - 1, self._sizes()
        logits = np.empty(n)
        for begin in range(0, n, SAMPLES):
            part = samples.part(begin, min(begin + SAMPLES, n))
            h = np.empty((len(part.clicks), sizes[0]), np.float32)
            embed(weights, self.table.field, self.spec.embedding == "concat", part.indptr, part.rows, part.values, h)
            for layer, size in enumerate(sizes[1:]):
                a = np.empty((len(h), size), np.float32)
                layer_forward(h, dense[f"dense.{layer}.weight"], dense[f"dense.{layer}.bias"], layer == len(sizes) - 2, a)
                h = a
            logits[begin : begin + len(h)] = h[:, 0]
        return logits
