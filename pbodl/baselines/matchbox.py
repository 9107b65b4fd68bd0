"""MatchBox (Stern, Herbrich, Graepel 2009): the traits of users meet the traits of ads.

The factor graph of one sample, with x the features of the user and the context, y those of the ad:

    u_ik ──[sum]── s_k ──┐                       s_k = Σ_i x_i u_ik      traits of the user's side
                     [product]── z_k ──┐         t_k = Σ_j y_j v_jk      traits of the ad's side
    v_jk ──[sum]── t_k ──┘             │         z_k = s_k t_k           k = 1 ... K
                                     [sum]── r ──[+ N(0, β²)]──[above 0: click]
    biases of all features ──[sum]── b ┘         b = Σ_i x_i b_i + Σ_j y_j b_j + one that is always active

All u, v and biases are independent Gaussians. Messages (< > is the mean under the current marginal):
    sums             Gaussian and exact, both ways
    click to r       r is cut at 0 and matched by a Gaussian, with AdPredictor's v(t) and w(t); stages as there
    product to z_k   mean <s><t>, variance <s²><t²> - <s>²<t>²
    product to s_k   variational: precision <t²>/σ², precision-mean μ <t>/σ², where N(μ, σ²) comes to z_k from r; to t_k alike
The product makes the graph loopy: messages repeat until the marginals of s and t settle. Then every feature gets its share, the
posterior becomes the prior, and the sample is not kept (ADF).

Dynamics: variances grow by `drift` per time step, which is applied when a feature is seen again. Initial means are small draws from
(seed, key, dimension), because a product of two zeros has no gradient.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.baselines.adpredictor import click_probabilities
from pbodl.baselines.matchbox_messages import (
    AD,
    LAST_SEEN,
    REJECTED,
    ROUNDS,
    USER,
    MatchBoxSettings,
    Traits,
    initialise_traits,
    learn_batch,
    predict_batch,
    sample_bilinear,
)
from pbodl.baselines.online_baseline import OnlineBaseline, with_defaults
from pbodl.data.hashing import wrapping
from pbodl.data.sampling import check_rate
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.kernels.arguments import Features, LabelledSamples
from pbodl.models.clock import parse_duration
from pbodl.models.contract import Prediction, State
from pbodl.models.parameter_checks import check_number, check_whole
from pbodl.models.spec import of_many

F32 = np.float32
COLUMNS = ("mean", "variance", "bias_mean", "bias_variance")


class MatchBoxSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of `MatchBox`."""

    dim: int = 16
    prior_variance: float | None = None
    bias_variance: float | None = None
    beta: float = 1.0
    initial_spread: float | None = None
    rounds: int = 5
    drift: float = 0.0
    time_step: str = "1d"
    negative_rate: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("dim", self.dim, 1, 4096)
        for name in ("prior_variance", "bias_variance", "beta"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), above=0.0, most=1e3)
        for name in ("initial_spread", "drift"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least=0.0, most=10.0)
        check_whole("rounds", self.rounds, 1, 1000)
        check_whole("seed", self.seed, 0, 2**63 - 1)
        parse_duration(self.time_step, "time_step")
        check_rate(self.negative_rate)


class MatchBox(OnlineBaseline):
    """MatchBox: Microsoft's Bayesian recommender, bilinear in the features of user and context on one side, of the ad on the other.

    When you would want it: it matters which user meets which ad, but not how context and user interact.

    Parameters
    ----------
    schema          the columns (`Schema`); fields of group "ad" are one side, all other fields the other
    dim             number of traits, K
    prior_variance  prior variance of every trait's weight; None is 0.02, or less where there are many fields
    bias_variance   prior variance of every bias; None as for prior_variance
    beta            standard deviation of the noise
    initial_spread  standard deviation of the traits' initial means; None is 0.03, or less where there are many fields
    rounds          the largest number of rounds of messages per sample; about two are typical
    drift           growth of every variance per time step
    time_step       "1d", "1h", or "100k rows"
    negative_rate   share of negatives that is left in the stream; predictions are recalibrated
    seed            random seed for the initial means

    Examples
    --------
    >>> from pbodl.baselines import MatchBox
    >>> from pbodl.data.schema import Field, Schema
    >>> schema = Schema(label="click", fields=[Field("user", group="user"), Field("ad", group="ad")])
    >>> model = MatchBox(schema, dim=4, prior_variance=1.0, initial_spread=0.3)
    >>> rows = [{"user": u, "ad": a, "click": int(u == a)} for _ in range(40) for u in range(2) for a in range(2)]
    >>> _ = model.learn(rows)
    >>> p = model.predict([{"user": 1, "ad": 1}, {"user": 1, "ad": 0}, {"user": 7, "ad": 8}])
    >>> bool(p.ctr[0] > 0.8 and p.ctr[1] < 0.2), bool(p.variance[2] > p.variance[0])
    (True, True)

    References
    ----------
    D. Stern, R. Herbrich, T. Graepel: Matchbox: large scale online Bayesian recommendations. WWW 2009.
    """

    kind = "matchbox"
    Spec = MatchBoxSpec
    bias_numbers: ClassVar[tuple[str, ...]] = ("mean", "variance", "last_seen")
    spec: MatchBoxSpec

    def __init__(
        self, schema: Schema, dim: int = 16, prior_variance: float | None = None, bias_variance: float | None = None,
        beta: float = 1.0, initial_spread: float | None = None, rounds: int = 5, drift: float = 0.0, time_step: str = "1d",
        negative_rate: float = 1.0, seed: int = 0,
    ) -> None:  # fmt: skip
        spec = MatchBoxSpec(dim, prior_variance, bias_variance, beta, initial_spread, rounds, drift, time_step, negative_rate, seed)
        self._start(schema, spec)

    def _start(self, schema: Schema, spec: MatchBoxSpec) -> None:
        spec = with_defaults(schema, spec, prior_variance=0.02, bias_variance=0.02)
        if spec.initial_spread is None:
            spec = msgspec.structs.replace(spec, initial_spread=of_many(0.03**2, len(getattr(schema, "fields", "?"))) ** 0.5)
        step = parse_duration(spec.time_step, "time_step")
        if spec.drift and not step.in_rows and schema.time is None:
            raise InputError(
                f"time_step {spec.time_step!r} needs the schema's time column; name it with time='...', or give rows: '100k rows'"
            )
        counts_rows = schema.time is None or (step.in_rows and spec.drift > 0.0)
        self._build(schema, spec, counts_rows, dict(zip(COLUMNS, (spec.dim, spec.dim, 1, 1), strict=True)))
        sides = [AD if field.group == "ad" else USER for field in schema.fields]
        if len(set(sides)) < 2:
            raise InputError(
                "MatchBox multiplies traits of users and of ads; the schema needs a field of group='ad' and one of another group"
            )
        self.settings = MatchBoxSettings(
            np.array(sides, np.int32), F32(spec.prior_variance), F32(spec.bias_variance), F32(spec.initial_spread),
            np.uint64(spec.seed), np.float64(spec.beta**2), np.float64(spec.drift / step.amount), np.int64(spec.rounds),
        )  # fmt: skip
        self.bias = np.array([0.0, spec.bias_variance, 0.0])  # mean, variance, clock up to which it has drifted
        self.counters = np.zeros(2, np.int64)

    def traits(self) -> Traits:
        """The table's arrays, as the kernels take them; views, valid until the table changes."""
        table = self.table
        mean, variance, bias_mean, bias_variance = (table.column(name) for name in COLUMNS)
        return Traits(mean, variance, bias_mean, bias_variance, table.last_seen, table.count)

    def _initialise(self, old_size: int) -> None:
        with wrapping():
            initialise_traits(self.traits(), self.table.keys[old_size:], old_size, self.settings)

    def _begin(self, now: float) -> None:
        self.bias[LAST_SEEN] = now

    def _learn_samples(self, samples: LabelledSamples, ctr: NDArray[np.float64]) -> None:
        learn_batch(self.traits(), self.bias, samples, self.settings, ctr, self.counters)

    def _predict_samples(self, features: Features) -> Prediction:
        n = len(features.indptr) - 1
        mean, variance, ctr = np.empty(n), np.empty(n), np.empty(n)
        with wrapping():
            predict_batch(self.traits(), self.bias, features, self.clock, self.settings, mean, variance)
        click_probabilities(mean, variance, self.settings.noise, ctr)
        return Prediction(ctr, mean / self.spec.beta, variance / self.spec.beta**2)

    def _draw_samples(self, features: Features, seeds: NDArray[np.uint64], z: NDArray[np.float64]) -> None:
        sample_bilinear(self.traits(), self.bias, features, self.clock, self.settings, seeds, z)
        z /= self.spec.beta

    def prior_variances(self) -> State:
        n, settings = len(self.schema.fields), self.settings
        traits, biases = np.full((n, self.spec.dim), settings.variance), np.full((n, 1), settings.bias_variance)
        return {"weight.variance": traits, "weight.bias_variance": biases}

    def metrics(self) -> dict[str, int]:
        rounds, rejected = int(self.counters[ROUNDS]), int(self.counters[REJECTED])
        return {**super().metrics(), "rounds": rounds, "rejected": rejected}

    def _own_state(self) -> State:
        return super()._own_state() | {"messages": self.counters.copy()}

    def _load_own(self, state: Mapping[str, NDArray]) -> None:
        super()._load_own(state)
        self.counters = np.array(state["messages"])
