"""The specification of a deep probit model: plain, frozen data, the `[model]` part of a TOML file and of a snapshot's manifest."""

import math
from typing import Any

import msgspec

from pbodl.data.sampling import check_rate
from pbodl.errors import InputError
from pbodl.kernels.layers import interaction
from pbodl.models.parameter_checks import check_choice, check_number, check_whole, checked_layers

# Limits of a prior variance: well inside the bounds of the guards, or every update would be rejected.
SMALLEST, LARGEST = 1e-12, 1e5
MANY = 22  # fields, as the logs have by which defaults were chosen


def _instance(what: str, value: Any, kind: type[msgspec.Struct]) -> None:
    if not isinstance(value, kind):
        names = ", ".join(f"{name}=..." for name in kind.__struct_fields__)
        raise InputError(f"{what} is {value!r}; it must be a pbodl.{kind.__name__}({names})")


class FieldPrior(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Prior variances for the features of one field.

    embedding  variance of each embedding weight; None takes that of `Prior`
    linear     variance of the linear weight; None takes that of `Prior`
    """

    embedding: float | None = None
    linear: float | None = None


class Prior(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prior variances (PBODL eq. 3) by part; the prior means are zero.

    embedding  variance of each embedding weight; None chooses by the number of fields: features of many fields add up, so each
               starts smaller (`embedding_variance`)
    linear     variance of each linear weight; None chooses by the number of fields: 0.03 up to 22 fields, and less with more
               (`of_many`); for `PairFM` by `linear_variance`
    dense      variance of each weight of the dense layers, or of the pairs' weights; None is 0.05, or 0.1 for pairs
    bias       variance of the bias of the output. Wide, it learns the level of the clicks, and the features learn the rest; None
               treats it as one more weight of the last layer, as the paper does
    fields     other variances for single fields, by the field's name
    """

    embedding: float | None = None
    linear: float | None = None
    dense: float | None = None
    bias: float | None = 1.0
    fields: dict[str, FieldPrior] = {}

    def __post_init__(self) -> None:
        for name, prior in self.fields.items():
            _instance(f"the prior of field {name!r}", prior, FieldPrior)
        for part, variance in self._variances():
            check_number(f"the prior variance of {part}", variance, least=SMALLEST, most=LARGEST)

    def _variances(self) -> list[tuple[str, float]]:
        parts: list[tuple[str, float | None]] = [(part, getattr(self, part)) for part in ("embedding", "linear", "dense", "bias")]
        for name, prior in self.fields.items():
            parts += [(f"field {name!r} embedding", prior.embedding), (f"field {name!r} linear", prior.linear)]
        return [(part, variance) for part, variance in parts if variance is not None]

    def of_field(self, name: str, part: str) -> float:
        """The variance of `part` ("embedding" or "linear") for the features of a field."""
        own = getattr(self.fields.get(name, FieldPrior()), part)
        return getattr(self, part) if own is None else own

    def settled(self, op: int, n_fields: int) -> "Prior":
        """The same prior with a number for every part."""
        pairs = op == interaction.PAIRS
        embedding = embedding_variance(op, n_fields) if self.embedding is None else self.embedding
        linear = (linear_variance(n_fields) if pairs else of_many(0.03, n_fields)) if self.linear is None else self.linear
        dense = (0.1 if pairs else 0.05) if self.dense is None else self.dense
        bias = dense if pairs and self.bias is None else self.bias
        return msgspec.structs.replace(self, embedding=embedding, linear=linear, dense=dense, bias=bias)


def embedding_variance(op: int, n_fields: int) -> float:
    """The embeddings' prior variance with which z_0 starts equally uncertain, however many fields there are.

    With n fields, sum adds n variances; FM, FFM and pairs add n(n-1)/2 products of two; concat adds none. The best values measured
    on logs of 20 to 22 fields were 0.02 for sum and 0.05 for FM.

    >>> [round(embedding_variance(interaction.FM, n), 3) for n in (2, 5, 22)]
    [0.762, 0.241, 0.05]
    """
    if op == interaction.SUM:
        return 0.44 / n_fields
    pairs = max(n_fields * (n_fields - 1) / 2, 1.0)
    return 0.05 if op == interaction.CONCAT else (0.58 / pairs) ** 0.5


def of_many(usual: float, n_fields: int) -> float:
    """A variance, or a rate, that was measured on logs of up to MANY fields: with more fields, all of them together get no more.

    >>> of_many(0.03, 5), round(of_many(0.03, 220), 3)
    (0.03, 0.003)
    """
    return usual * min(1.0, MANY / n_fields)


def linear_variance(n_fields: int) -> float:
    """The linear weights' prior variance with which their sum starts equally uncertain, however many fields there are.

    It is the start only: the prior follows the stream, field by field. A very wide one costs more than it teaches.

    >>> [round(linear_variance(n), 3) for n in (2, 5, 22)]
    [0.1, 0.088, 0.02]
    """
    return min(0.44 / n_fields, 0.1)


PAPER_PRIOR = Prior(embedding=0.01, linear=0.01, dense=0.01, bias=None)
# What `paper` fixes in the spec of a network.
AS_PRINTED = {
    "linear": False, "shortcut": False, "pairs": "fields", "fm_variance": "paper", "prior": PAPER_PRIOR, "adapt_prior": False
}  # fmt: skip


class TableSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters that all models with a table of embeddings share, as `DeepProbit` documents them."""

    dim: int = 16
    linear: bool = True
    prior: Prior = Prior()
    adapt_prior: bool = True
    initial_spread: float = 0.03
    half_life: str | None = None
    decay_mean: bool = False
    step_cap: float | None = None
    capacity: int | None = None
    time_to_live: str | None = None
    negative_rate: float = 1.0
    base_rate: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("dim", self.dim, 1, 4096)
        check_whole("seed", self.seed, 0, 2**63 - 1)
        _instance("prior", self.prior, Prior)
        check_number("initial_spread", self.initial_spread, least=0.0, most=10.0)
        if self.step_cap is not None:
            check_number("step_cap", self.step_cap, above=0.0, most=math.inf)
        if self.capacity is not None:
            check_whole("capacity", self.capacity, 1, 2**31 - 1)
        check_rate(self.negative_rate)
        if self.base_rate is not None:
            check_number("base_rate", self.base_rate, least=1e-6, most=1.0 - 1e-6)


class DeepSpec(TableSpec, frozen=True, forbid_unknown_fields=True):
    """The parameters of a deep probit model, as `DeepProbit` documents them."""

    hidden: tuple[int, ...] = (64, 32)
    shortcut: bool = False
    pairs: str = "groups"
    fm_variance: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "hidden", checked_layers(self.hidden, least=0))
        check_choice("pairs", self.pairs, ("fields", "groups"))
        if self.fm_variance is not None:
            check_choice("fm_variance", self.fm_variance, ("slopes", "exact", "paper"))

    @property
    def adds_up_wrongly(self) -> bool:
        """Whether moments layer by layer count what reaches the output in several ways as if it were independent."""
        return self.shortcut or len(self.hidden) < 2


class PairSpec(TableSpec, frozen=True, forbid_unknown_fields=True):
    """The parameters of a `PairFM`."""

    dim: int = 8
    pair_weight: float = 0.35

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("pair_weight", self.pair_weight, least=-10.0, most=10.0)


def settled(spec: Any, op: int, n_fields: int) -> Any:
    """The specification with a choice for everything that it leaves open."""
    spec = msgspec.structs.replace(spec, prior=spec.prior.settled(op, n_fields))
    if isinstance(spec, DeepSpec) and spec.fm_variance is None:
        by_slopes = spec.adds_up_wrongly and op in (interaction.FM, interaction.FFM)
        spec = msgspec.structs.replace(spec, fm_variance="slopes" if by_slopes else "exact")
    return spec


# How much wider a network's reported variance is than that of its weights. A diagonal covariance does not know that weights were
# learned from the same rows, and no network knows what its form cannot express. The factors are squared error over variance where
# the truth is known, in worlds of two makes (docs/lab/uncertainty.md). They are below 1 where the moments, or vectors that know
# little, say too much. Learning goes on with the variance itself, and so do the CTRs.
BY_MOMENTS = {interaction.CONCAT: 2.8, interaction.SUM: 1.5, interaction.FM: 1.0, interaction.FFM: 0.8}
ONE_LAYER_BY_MOMENTS = {interaction.CONCAT: 2.5}
SHORTCUT_BY_MOMENTS = {interaction.CONCAT: 1.4, interaction.SUM: 0.55}
WITHOUT_PRODUCTS = {interaction.CONCAT: 3.0, interaction.SUM: 2.0}
WITHOUT_LAYERS = {interaction.CONCAT: 1.0, interaction.SUM: 1.0, interaction.FM: 0.85, interaction.FFM: 0.65}
WITH_LAYERS, WITH_SHORTCUT = 1.5, 1.3


def doubt_of(op: int, spec: DeepSpec) -> float:
    """The factor for a network; 1 where somebody asked for moments of products that are known to add up wrongly."""
    if spec.fm_variance == "paper":
        return 1.0
    if spec.fm_variance == "exact":
        if not spec.adds_up_wrongly:
            return BY_MOMENTS[op]
        return (SHORTCUT_BY_MOMENTS if spec.shortcut else ONE_LAYER_BY_MOMENTS if spec.hidden else {}).get(op, 1.0)
    if not spec.hidden:
        return WITHOUT_LAYERS[op]
    return WITHOUT_PRODUCTS.get(op, WITH_SHORTCUT if spec.shortcut else WITH_LAYERS)
