"""FTRL-Proximal (McMahan et al. 2013, Algorithm 1): logistic regression with per-coordinate rates and exact zeros.

Letters: z_i, n_i the two numbers of coordinate i; x_i its feature's value (1 for a category); α, β the rate's parameters; λ1, λ2
the strengths of L1 and L2.
    w_i = 0 if |z_i| ≤ λ1, else -(z_i - sgn(z_i) λ1) / ((β + √n_i)/α + λ2)          computed when needed, never stored
    p = σ(Σ w_i x_i)      g_i = (p - y) x_i      s_i = (√(n_i + g_i²) - √n_i)/α     z_i += g_i - s_i w_i      n_i += g_i²
The bias is a coordinate whose feature is always active. An example's weight multiplies its gradient, as in the paper's subsampling.
Of a stage (`kernels.layers.stage`), g_i is the slope of its own log-likelihood, times -x_i.
"""

import math
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, jit
from pbodl.baselines.online_baseline import LinearBaseline, with_defaults
from pbodl.data.sampling import check_rate
from pbodl.data.schema import Schema
from pbodl.kernels.arguments import Features, LabelledSamples, counted, most_features
from pbodl.kernels.layers.embedding import learned_from
from pbodl.kernels.layers.stage import logit_stage_slope
from pbodl.kernels.normal import ZERO
from pbodl.models.contract import Prediction
from pbodl.models.parameter_checks import check_number

Z, N = 0, 1


class FTRLSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of `FTRLProximal`."""

    alpha: float | None = None
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 1.0
    negative_rate: float = 1.0

    def __post_init__(self) -> None:
        if self.alpha is not None:
            check_number("alpha", self.alpha, above=0.0)
        for name in ("beta", "l1", "l2"):
            check_number(name, getattr(self, name), least=0.0)
        check_rate(self.negative_rate)


class Rates(NamedTuple):
    """The parameters, as the kernels take them."""

    alpha: np.float64
    beta: np.float64
    l1: np.float64
    l2: np.float64


@inlined
def weight(z, root_n, rates):
    """w of a coordinate, from z and √n. Where β = λ2 = 0 and n = 0, z is 0 too, and the weight is 0."""
    strength = (rates.beta + root_n) / rates.alpha + rates.l2
    return (math.copysign(rates.l1, z) - z) / strength if abs(z) > rates.l1 else 0.0


@inlined
def sigmoid(logit):
    """1/(1 + e^-logit), without overflow."""
    e = math.exp(-abs(logit))
    return 1.0 / (1.0 + e) if logit >= 0.0 else e / (1.0 + e)


@jit
def learn_batch(pairs, last_seen, count, bias, samples, rates, ctr):
    """Learn samples one after the other. MODIFIES: pairs, last_seen, count, bias; ctr, the probabilities predicted before."""
    features, clicks, powers, clock, came_before, came_by = samples
    indptr, rows, values = features.indptr, features.rows, features.values
    inverse_alpha = 1.0 / rates.alpha
    # Gather the coordinates first, so that the roots and quotients of a sample become vector instructions. Index 0 is the bias.
    most = most_features(indptr) + 1
    z, n, x = np.empty(most), np.empty(most), np.ones(most)
    w, root = np.empty(most), np.empty(most)
    for sample in range(len(clicks)):
        first = indptr[sample]
        size = indptr[sample + 1] - first + 1
        z[0], n[0] = bias[Z], bias[N]
        for j in range(1, size):
            r = rows[first + j - 1]
            z[j], n[j], x[j] = pairs[r, Z], pairs[r, N], values[first + j - 1]
        logit = 0.0
        for j in range(size):
            root[j] = math.sqrt(n[j])
            w[j] = weight(z[j], root[j], rates)
            logit += w[j] * x[j]
        p = sigmoid(logit)
        ctr[sample] = p
        if powers[sample] == ZERO:
            continue
        counts, clicked = counted(samples, sample), clicks[sample] > 0
        of_stage = logit_stage_slope(p, sigmoid(-logit), clicked, np.float64(came_before[sample]), np.float64(came_by[sample]))
        slope = -np.float64(powers[sample]) * of_stage
        for j in range(size):
            g = slope * x[j]
            n[j] += g * g
            z[j] += g - (math.sqrt(n[j]) - root[j]) * inverse_alpha * w[j]
        bias[Z], bias[N] = z[0], n[0]
        for j in range(1, size):
            r = rows[first + j - 1]
            pairs[r, Z], pairs[r, N] = z[j], n[j]
            count[r] = learned_from(count[r], counts)
            last_seen[r] = clock[sample]


@jit
def predict_batch(pairs, bias, features, rates, logits, ctr):
    """The logit and the probability of each sample. MODIFIES: logits, ctr."""
    indptr, rows, values = features.indptr, features.rows, features.values
    for sample in range(len(logits)):
        logit = weight(bias[Z], math.sqrt(bias[N]), rates)
        for j in range(indptr[sample], indptr[sample + 1]):
            r = rows[j]
            if r >= 0:
                logit += weight(pairs[r, Z], math.sqrt(pairs[r, N]), rates) * values[j]
        logits[sample], ctr[sample] = logit, sigmoid(logit)


class FTRLProximal(LinearBaseline):
    """FTRL-Proximal: Google's linear model, whose L1 leaves most weights at exactly zero.

    When you would want it: you need a small model to serve, and few of very many features matter.

    Parameters
    ----------
    schema         the columns (`Schema`)
    alpha, beta    parameters of the rate α/(β + √Σg²); tune α. None is 0.1, or less where there are many fields
    l1             strength of L1: larger values leave fewer weights
    l2             strength of L2
    negative_rate  share of negatives that is left in the stream; predictions are recalibrated

    Examples
    --------
    >>> from pbodl.baselines import FTRLProximal
    >>> from pbodl.data.schema import Field, Schema
    >>> schema = Schema(label="click", fields=[Field("ad", group="ad"), Field("noise")])
    >>> model = FTRLProximal(schema, alpha=0.5, l1=1.0, l2=0.0)
    >>> _ = model.learn([{"ad": i % 2, "noise": i % 7, "click": i % 2} for i in range(140)])
    >>> round(model.sparsity, 2), model.predict([{"ad": 1}, {"ad": 0}]).ctr.round(2).tolist()
    (0.78, [0.92, 0.08])

    References
    ----------
    H. B. McMahan et al.: Ad click prediction: a view from the trenches. KDD 2013.
    """

    kind = "ftrl"
    link = "logit"
    Spec = FTRLSpec
    numbers: ClassVar[tuple[str, str]] = ("z", "n")
    bias_numbers: ClassVar[tuple[str, ...]] = numbers
    spec: FTRLSpec

    def __init__(
        self, schema: Schema, alpha: float | None = None, beta: float = 1.0, l1: float = 0.0, l2: float = 1.0,
        negative_rate: float = 1.0,
    ) -> None:  # fmt: skip
        self._start(schema, FTRLSpec(alpha, beta, l1, l2, negative_rate))

    def _start(self, schema: Schema, spec: FTRLSpec) -> None:
        spec = with_defaults(schema, spec, alpha=0.1)
        self._build_linear(schema, spec, counts_rows=schema.time is None)
        self.rates = Rates(np.float64(spec.alpha), np.float64(spec.beta), np.float64(spec.l1), np.float64(spec.l2))
        self.bias = np.zeros(2)

    def _initialise(self, old_size: int) -> None:
        self.pairs()[old_size:] = 0.0

    def _learn_samples(self, samples: LabelledSamples, ctr: NDArray[np.float64]) -> None:
        learn_batch(self.pairs(), self.table.last_seen, self.table.count, self.bias, samples, self.rates, ctr)

    def _predict_samples(self, features: Features) -> Prediction:
        n = len(features.indptr) - 1
        logits, ctr = np.empty(n), np.empty(n)
        predict_batch(self.pairs(), self.bias, features, self.rates, logits, ctr)
        return Prediction(ctr, logits, np.zeros(n))

    @property
    def sparsity(self) -> float:
        """The share of the features' weights that are exactly zero; 0 before any data."""
        return self.metrics()["zero_weights"] / max(1, self.table.size)

    def metrics(self) -> dict[str, int]:
        zero = int((np.abs(self.pairs()[:, Z]) <= self.spec.l1).sum())
        return {**super().metrics(), "zero_weights": zero}
