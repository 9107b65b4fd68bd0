"""AdPredictor (Graepel, Candela, Borchert, Herbrich 2010): Bayesian linear probit regression.

Letters: N(m_i, v_i) the weight of feature i, with value x_i (1 for a category); y = ±1 the label; β² the noise.
    Σ² = β² + Σ x_i² v_i            t = y Σ x_i m_i / Σ              p(click) = Φ(Σ x_i m_i / Σ)
    m_i += y x_i (v_i/Σ) v(t)       v_i *= 1 - x_i² (v_i/Σ²) w(t)    v(t) = φ(t)/Φ(t), w(t) = v(t) (v(t) + t)
A bias weight is always active. Only v/β² matters, so predictions give the latent mean and variance in units of β.

Dynamics: a weight forgets a share ε of what the likelihood contributed, in mean and in variance: either, as published, at every
sample that has the feature (`epsilon`; once for all stages of an impression), or by the time since the last one (`half_life`).

A stage (`kernels.layers.stage`) has its own slope and information in the place of y v(t) and w(t).

The tails are exact: River's AdPredictor, otherwise the same step by step, clips t to ±5 (tests/baselines/test_adpredictor.py).
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
from pbodl.errors import InputError
from pbodl.kernels.adf import decay, tempered
from pbodl.kernels.arguments import Features, LabelledSamples, counted
from pbodl.kernels.draws import BIAS_KEY, noise_at
from pbodl.kernels.layers.embedding import learned_from
from pbodl.kernels.layers.stage import stage_corrections
from pbodl.kernels.normal import ZERO, cdf
from pbodl.models.clock import clock_of
from pbodl.models.contract import Prediction, State
from pbodl.models.parameter_checks import check_number

MEAN, VARIANCE, LAST_SEEN = 0, 1, 2


class AdPredictorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of `AdPredictor`."""

    prior_variance: float | None = None
    beta: float = 1.0
    epsilon: float = 0.0
    half_life: str | None = None
    negative_rate: float = 1.0

    def __post_init__(self) -> None:
        if self.prior_variance is not None:
            check_number("prior_variance", self.prior_variance, above=0.0)
        check_number("beta", self.beta, above=0.0)
        if isinstance(self.epsilon, bool) or not isinstance(self.epsilon, (int, float)) or not 0.0 <= self.epsilon < 1.0:
            raise InputError(f"epsilon is {self.epsilon!r}; it must be a number from 0 (never forget) to below 1")
        if self.epsilon and self.half_life is not None:
            raise InputError(f"epsilon {self.epsilon!r} and half_life {self.half_life!r} both forget; give one of them")
        check_rate(self.negative_rate)


class Dynamics(NamedTuple):
    """The parameters, as the kernels take them."""

    prior_variance: np.float64
    noise: np.float64  # β²
    kept: np.float64  # 1 - ε
    half_life: np.float64  # in units of the clock; 0: none


@inlined
def forgotten(m, v, elapsed, dynamics):
    """A weight after `elapsed` units of the clock."""
    if elapsed <= 0.0:
        return m, v
    return decay(m, v, dynamics.prior_variance, 2.0 ** (-elapsed / dynamics.half_life), True)


@inlined
def learned(m, v, x, dm, h, power, kept, dynamics):
    """A weight after a sample to the given power (m' = m + v dm, v' = v - v² h for power 1), of which it keeps the share 1 - ε."""
    g = x * x * v * h
    c = tempered(g, power)
    m, v = m + power * x * v * dm * c, v * (1.0 - g) * c
    return decay(m, v, dynamics.prior_variance, kept, True) if kept < 1.0 else (m, v)


@jit
def learn_batch(weights, last_seen, count, bias, samples, dynamics, ctr):
    """Learn samples one after the other. MODIFIES: weights, last_seen, count, bias; ctr, the probabilities predicted before."""
    features, clicks, powers, clock, came_before, came_by = samples
    indptr, rows, values = features.indptr, features.rows, features.values
    noise, half_life = dynamics.noise, dynamics.half_life
    bias_m, bias_v = bias[MEAN], bias[VARIANCE]
    for sample in range(len(clicks)):
        first, last = indptr[sample], indptr[sample + 1]
        now, power = clock[sample], np.float64(powers[sample])
        if half_life > 0.0:
            for j in range(first, last):
                r = rows[j]
                elapsed = now - last_seen[r] if count[r] > 0 else 0.0
                weights[r, MEAN], weights[r, VARIANCE] = forgotten(weights[r, MEAN], weights[r, VARIANCE], elapsed, dynamics)
                last_seen[r] = now
            bias_m, bias_v = forgotten(bias_m, bias_v, now - bias[LAST_SEEN], dynamics)
            bias[LAST_SEEN] = max(now, bias[LAST_SEEN])
        m, total = bias_m, noise + bias_v
        for j in range(first, last):
            r, x = rows[j], np.float64(values[j])
            m += x * weights[r, MEAN]
            total += x * x * weights[r, VARIANCE]
        deviation = math.sqrt(total)
        ctr[sample] = cdf(m / deviation)
        if power == 0.0:
            continue
        stage = np.float64(came_before[sample]), np.float64(came_by[sample])
        pull, shrink = stage_corrections(m / deviation, clicks[sample] > 0, *stage)
        dm, h = pull / deviation, shrink / total
        if power > 1.0:  # is taken at z, as in `kernels.adf`
            c = power / (1.0 + (power - 1.0) * (total - noise) * h)
            dm, h, power = c * dm, c * h, np.float64(1.0)
        counts, kept = counted(samples, sample), dynamics.kept if came_before[sample] == ZERO else 1.0
        bias_m, bias_v = learned(bias_m, bias_v, 1.0, dm, h, power, kept, dynamics)
        for j in range(first, last):
            r, x = rows[j], np.float64(values[j])
            weights[r, MEAN], weights[r, VARIANCE] = learned(
                weights[r, MEAN], weights[r, VARIANCE], x, dm, h, power, kept, dynamics
            )
            count[r] = learned_from(count[r], counts)
            last_seen[r] = now
    bias[MEAN], bias[VARIANCE] = bias_m, bias_v


@jit
def predict_batch(weights, last_seen, bias, features, now, dynamics, mean, variance):
    """Moments of Σ x_i w_i, including the bias. MODIFIES: mean, variance."""
    indptr, rows, values = features.indptr, features.rows, features.values
    half_life = dynamics.half_life
    for sample in range(len(mean)):
        m, v = bias[MEAN], bias[VARIANCE]
        for j in range(indptr[sample], indptr[sample + 1]):
            r, x = rows[j], np.float64(values[j])
            m_i, v_i = 0.0, dynamics.prior_variance
            if r >= 0:
                m_i, v_i = weights[r, MEAN], weights[r, VARIANCE]
                if half_life > 0.0:
                    m_i, v_i = forgotten(m_i, v_i, now - last_seen[r], dynamics)
            m += x * m_i
            v += x * x * v_i
        mean[sample], variance[sample] = m, v


@jit
def sample_linear(weights, last_seen, bias, features, now, dynamics, seeds, z):
    """AdPredictor's Σ x_i w_i under every draw, one seed for each. MODIFIES: z (draws, samples)."""
    indptr, rows, values, keys = features.indptr, features.rows, features.values, features.keys
    for draw in range(len(seeds)):
        at_bias = bias[MEAN] + math.sqrt(bias[VARIANCE]) * noise_at(seeds[draw], BIAS_KEY, np.uint64(0))
        for sample in range(z.shape[1]):
            total = at_bias
            for j in range(indptr[sample], indptr[sample + 1]):
                r, m, v = rows[j], 0.0, dynamics.prior_variance
                if r >= 0:
                    m, v = weights[r, MEAN], weights[r, VARIANCE]
                    if dynamics.half_life > 0.0:
                        m, v = forgotten(m, v, now - last_seen[r], dynamics)
                total += np.float64(values[j]) * (m + math.sqrt(v) * noise_at(seeds[draw], keys[j], np.uint64(0)))
            z[draw, sample] = total


@jit
def click_probabilities(mean, variance, noise, ctr):
    """Φ(m/√(β² + v)). MODIFIES: ctr."""
    for sample in range(len(mean)):
        ctr[sample] = cdf(mean[sample] / math.sqrt(noise + variance[sample]))


class AdPredictor(LinearBaseline):
    """AdPredictor: one Gaussian per feature, updated in closed form; Bing's model, and the one to beat.

    When you would want it: features matter by themselves, you do not want to tune, and you need to know how certain the model is.
    It learns over a million rows a second, but no interactions: cross the fields yourself, or use `FMMLP`.

    Parameters
    ----------
    schema          the columns (`Schema`)
    prior_variance  prior variance of every weight, including the bias; None is 0.02, or less where there are many fields
    beta            standard deviation of the noise
    epsilon         share of the likelihood's contribution that a weight forgets at each of its samples; 0: never
    half_life       instead of `epsilon`: forget by time, "7d", or "1M rows"
    negative_rate   share of negatives that is left in the stream; predictions are recalibrated

    Examples
    --------
    >>> from pbodl.baselines import AdPredictor
    >>> from pbodl.data.schema import Field, Schema
    >>> model = AdPredictor(Schema(label="click", fields=[Field("ad", group="ad")]), prior_variance=1.0)
    >>> _ = model.learn([{"ad": ad, "click": int(ad == "good")} for ad in ["good", "bad"] * 20])
    >>> prediction = model.predict([{"ad": "good"}, {"ad": "bad"}, {"ad": "new"}])
    >>> prediction.ctr.round(2).tolist(), prediction.variance.round(2).tolist()
    ([0.95, 0.05, 0.51], [0.31, 0.3, 1.11])

    References
    ----------
    T. Graepel, J. Quiñonero Candela, T. Borchert, R. Herbrich: Web-scale Bayesian click-through rate prediction for sponsored
    search advertising in Microsoft's Bing search engine. ICML 2010.
    """

    kind = "adpredictor"
    Spec = AdPredictorSpec
    numbers: ClassVar[tuple[str, str]] = ("mean", "variance")
    bias_numbers: ClassVar[tuple[str, ...]] = ("mean", "variance", "last_seen")
    spec: AdPredictorSpec

    def __init__(
        self, schema: Schema, prior_variance: float | None = None, beta: float = 1.0, epsilon: float = 0.0,
        half_life: str | None = None, negative_rate: float = 1.0,
    ) -> None:  # fmt: skip
        self._start(schema, AdPredictorSpec(prior_variance, beta, epsilon, half_life, negative_rate))

    def _start(self, schema: Schema, spec: AdPredictorSpec) -> None:
        spec = with_defaults(schema, spec, prior_variance=0.02)
        counts_rows, half_life, _ = clock_of(schema, spec.half_life, None)
        self._build_linear(schema, spec, counts_rows)
        self.dynamics = Dynamics(
            np.float64(spec.prior_variance), np.float64(spec.beta**2), np.float64(1.0 - spec.epsilon), np.float64(half_life)
        )
        self.bias = np.array([0.0, spec.prior_variance, 0.0])  # mean, variance, clock up to which it has forgotten

    def _initialise(self, old_size: int) -> None:
        self.pairs()[old_size:] = (0.0, self.spec.prior_variance)

    def _begin(self, now: float) -> None:
        self.bias[LAST_SEEN] = now

    def _learn_samples(self, samples: LabelledSamples, ctr: NDArray[np.float64]) -> None:
        learn_batch(self.pairs(), self.table.last_seen, self.table.count, self.bias, samples, self.dynamics, ctr)

    def _predict_samples(self, features: Features) -> Prediction:
        n = len(features.indptr) - 1
        mean, variance, ctr = np.empty(n), np.empty(n), np.empty(n)
        predict_batch(self.pairs(), self.table.last_seen, self.bias, features, self.clock, self.dynamics, mean, variance)
        click_probabilities(mean, variance, self.dynamics.noise, ctr)
        return Prediction(ctr, mean / self.spec.beta, variance / self.spec.beta**2)

    def _draw_samples(self, features: Features, seeds: NDArray[np.uint64], z: NDArray[np.float64]) -> None:
        sample_linear(self.pairs(), self.table.last_seen, self.bias, features, self.clock, self.dynamics, seeds, z)
        z /= self.spec.beta

    def prior_variances(self) -> State:
        return {"weight.variance": np.full((len(self.schema.fields), 1), self.spec.prior_variance)}
