"""The deep probit family (PBODL §2): one network, four embedding operations.

`DeepProbit` (concat), `SparseMLP` (sum), `FMMLP` (FM) and `FFMMLP` (field-aware FM) differ only in the operation. This file holds
their arrays and passes them to `kernels.network`, where the mathematics is.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import wrapping
from pbodl.data.running_scale import RunningScale
from pbodl.data.schema import Schema, nearest
from pbodl.data.table.feature_table import Table
from pbodl.data.table.memory import aligned
from pbodl.errors import InputError
from pbodl.kernels.adf import DAMPED
from pbodl.kernels.arguments import (
    Dense,
    Features,
    Forgetting,
    LabelledSamples,
    Network,
    NetworkWeights,
    NoForgetting,
    Outputs,
    Rows,
    Shape,
    most_features,
)
from pbodl.kernels.click_moments import widen
from pbodl.kernels.draws import sample_batch
from pbodl.kernels.layers import interaction
from pbodl.kernels.layers.embedding import initialise_rows, standard_draws
from pbodl.kernels.network import click_probability, predict_batch
from pbodl.models.adaptation import adapt, checked, home_of, in_force, next_moment, row_prior, settle_home, settle_level, specified
from pbodl.models.clock import clock_of, clock_of_first, clock_of_samples, has_started
from pbodl.models.contract import Model, Prediction, State
from pbodl.models.eviction import make_room, sweep
from pbodl.models.learning import Learning, powers_of, rejected_of
from pbodl.models.spec import AS_PRINTED, DeepSpec, Prior, TableSpec, doubt_of, settled

ALIGN = 16  # floats in a cache line: rows of dense weights start at whole lines
COUNTERS = ("rejected_embedding", "rejected_linear", "rejected_dense")
PRIOR_STATE = ("prior.variance", "prior.linear_variance")  # by field and group, and by field
MODES = {"exact": interaction.EXACT, "paper": interaction.PAPER, "slopes": interaction.SLOPES}
F32 = np.float32


class DeepProbit(Model):
    """Bayesian deep probit network: every weight is a Gaussian, learned in one pass by assumed density filtering.

    It concatenates the fields' embeddings, so with many fields its first layer is wide. `PairFM` is usually better and faster on
    click logs.

    Parameters
    ----------
    schema          the columns (`Schema`)
    dim             length of a feature's embedding
    hidden          sizes of the hidden layers, up to five; () for none
    linear          add one weight per feature to the output
    shortcut        add the sum of z_0, divided by √dim, to the output, so that interactions reach it past the hidden layers; it
                    helps on large logs and hurts on small ones
    pairs           what FM multiplies: "groups", the sum of a group's features (user, ad, ...) with that of every other group, if
                    the schema has several; "fields", every feature with every other
    fm_variance     how weights' variances reach the output: "exact" takes moments layer by layer, "paper" as well, with the printed
                    formula (erratum E3); "slopes" counts every weight by its slope, and with it what reaches the output in several
                    ways. None: "slopes" for FM and FFM with a shortcut or fewer than two hidden layers, else "exact"
    prior           prior variances (`Prior`); None uses values that do well on click logs
    adapt_prior     correct the prior variances of features, field by field, as the stream shows, and centre hidden units
                    (`models.adaptation`)
    half_life       forget towards the prior: "7d", or "1M rows"; None: never
    decay_mean      also pull the means of linear weights towards zero when forgetting, as AdPredictor does. Embeddings that started
                    from a draw keep their means; weights of hidden layers go back to where they started, in any case
    step_cap        the largest step of a mean by one sample, in units of its √variance; None: no cap
    capacity        the largest number of features to keep; stale features close to their prior are dropped first; None: keep all
    time_to_live    drop features that were not seen for this long: "30d"
    negative_rate   share of negatives that is left in the stream; predictions are recalibrated
    base_rate       CTR that a model without data predicts; None: 1/2, until the first rows tell
    initial_spread  standard deviation of the embeddings' initial means (erratum E7)
    seed            random seed for the initial means
    paper           the paper's model: no linear term, no shortcut, FM of all pairs, its variance as printed, and a fixed prior
                    variance of 0.01

    Examples
    --------
    >>> import pbodl
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
    >>> model = pbodl.FMMLP(schema)
    >>> rows = [{"user": u, "ad": a, "click": int(u == a)} for _ in range(30) for u in range(3) for a in range(3)]
    >>> _ = model.learn(rows)
    >>> p = model.predict([{"user": 1, "ad": 1}, {"user": 1, "ad": 2}, {"user": 7, "ad": 8}])
    >>> bool(p.ctr[0] > 0.5 > p.ctr[1]), bool(p.std[2] > p.std[0])
    (True, True)
    """

    kind: ClassVar[str] = "deep-probit"
    Spec: ClassVar[type[TableSpec]] = DeepSpec
    op: ClassVar[int] = interaction.CONCAT
    spec: TableSpec

    def __init__(
        self,
        schema: Schema,
        dim: int = 16,
        hidden: Iterable[int] = (64, 32),
        linear: bool = True,
        shortcut: bool = False,
        pairs: str = "groups",
        fm_variance: str | None = None,
        prior: Prior | None = None,
        adapt_prior: bool = True,
        half_life: str | None = None,
        decay_mean: bool = False,
        step_cap: float | None = None,
        capacity: int | None = None,
        time_to_live: str | None = None,
        negative_rate: float = 1.0,
        base_rate: float | None = None,
        initial_spread: float = 0.03,
        seed: int = 0,
        paper: bool = False,
    ) -> None:
        spec = DeepSpec(
            dim=dim, hidden=hidden, linear=linear, shortcut=shortcut, pairs=pairs, fm_variance=fm_variance,  # type: ignore
            prior=prior or Prior(), adapt_prior=adapt_prior, half_life=half_life, decay_mean=decay_mean,
            step_cap=step_cap, capacity=capacity, time_to_live=time_to_live, negative_rate=negative_rate,
            base_rate=base_rate, initial_spread=initial_spread, seed=seed,
        )  # fmt: skip
        if paper:
            spec = msgspec.structs.replace(spec, **AS_PRINTED)
        self._build(schema, spec)

    @classmethod
    def from_spec(cls, schema: Schema, spec: TableSpec) -> "DeepProbit":
        model = cls.__new__(cls)
        model._build(schema, spec)
        return model

    def _build(self, schema: Schema, spec: TableSpec) -> None:
        Model.__init__(self, schema, spec)
        spec = settled(spec, self.op, len(schema.fields))
        self.spec = spec
        names = [field.name for field in schema.fields]
        for name in spec.prior.fields:
            if name not in names:
                raise InputError(f"the prior names an unknown field {name!r}{nearest(name, names)}; fields are: {', '.join(names)}")
        self.counts_rows, half_life, time_to_live = clock_of(schema, spec.half_life, spec.time_to_live)
        self.clock = 0.0
        groups = len(schema.groups) if self.op in interaction.BY_GROUP else 1
        self.shape = self._shape(schema, spec)
        self.forgetting = (Forgetting if half_life else NoForgetting)(np.float64(half_life), np.bool_(spec.decay_mean))
        self.row_prior = row_prior(spec, *specified(spec, names, groups))
        columns = {"mean": groups * spec.dim, "variance": groups * spec.dim}
        if spec.linear:
            columns |= {"linear_mean": 1, "linear_variance": 1}
        self.table = Table(columns, spec.capacity, time_to_live)
        self.scale = RunningScale(schema)
        self.dense = self._initial_dense()
        settle_level(self)
        self.dense.start[:] = self.dense.mean
        self.carried = False  # whether a migration has put other weights into the places of the draws
        self.rejected = np.zeros(6, np.int64)  # and more (`kernels.arguments.Outputs`)
        self.learning = Learning()

    def _shape(self, schema: Schema, spec: Any) -> Shape:
        width = interaction.width(self.op, spec.dim, len(schema.fields))
        sizes = (width, *spec.hidden, 1) if spec.hidden else (0, 1)
        return Shape(
            np.int64(_operation(self.op, spec, schema)),
            np.int64(MODES[spec.fm_variance]), np.array(sizes, np.int64), np.int64(width), F32(_shortcut(spec)), schema.group_codes,
            F32(doubt_of(self.op, spec)),
        )  # fmt: skip

    def _initial_dense(self) -> Dense:
        """Dense weights before any data: the prior's variance, means drawn with standard deviation 1, biases at 0 (erratum E7)."""
        dense = empty_dense(self.shape.sizes)
        dense.prior_variance[:] = dense.variance[:] = self.spec.prior.dense
        for layer, (n_in, n_out) in enumerate(self.layers()):
            with wrapping():
                draws = standard_draws(np.uint64(self.spec.seed), np.uint64(layer), n_out * n_in)
            dense.mean[layer, :n_out, :n_in] = draws.reshape(n_out, n_in)
        if self.spec.prior.bias is not None:  # n_in is the last layer's: its scale, 1/√(n_in + 1), goes for the bias, too
            dense.prior_variance[-1, 0, n_in] = dense.variance[-1, 0, n_in] = self.spec.prior.bias * (n_in + 1)
        return dense

    def learn_with(self, learning: Learning) -> None:
        """Learn as `learning` says from now on: with several threads, in several passes, ... (`models.learning`)."""
        learning.start(self)
        self.learning, self.table.spread = learning, learning.spread

    def rows(self, spare: int = 0) -> Rows:
        """The table's arrays, as the kernels take them, with `spare` unused rows at the end; views until the table changes."""
        arrays = self.table.arrays(spare)
        # To the kernels, a column without rows means no linear term: an empty table gets one row that nothing points to.
        stand_in = np.zeros((int(self.spec.linear), 1), F32)
        linear = (stand_in, stand_in)
        if self.spec.linear and self.table.size:
            linear = (arrays["linear_mean"], arrays["linear_variance"])
        return Rows(arrays["mean"], arrays["variance"], *linear, arrays["last_seen"], arrays["count"])

    @property
    def network(self) -> Network:
        """All that the kernels need to know besides the weights."""
        return Network(self.shape, self.row_prior, self.forgetting, F32(self.spec.step_cap or 0.0))

    def _learn(self, batch: Batch) -> NDArray[np.float64]:
        n = len(batch)
        self._check_capacity(batch)
        values = self.scale.learn(batch)
        clock, stages = clock_of_samples(self, batch, self.counts_rows), batch.stages()
        if not has_started(self):
            self.clock = float(clock[0])
        if not self.rows_learned:  # nothing is forgotten before the first row
            self.dense.last_seen[0] = clock_of_first(batch, clock)
        learned = self.rows_learned + np.cumsum(batch.counted)  # rows, after each sample
        mean, variance = np.empty(n), np.empty(n)
        start = 0
        while start < n:
            before = sweep(self.table, self.clock, clock[start:]) + start
            moment = next_moment(int(learned[start - 1]) if start else self.rows_learned)
            if self.spec.adapt_prior:
                before = min(before, int(np.searchsorted(learned, moment)) + 1)
            old_size = self.table.size
            rows, stop = self.table.insert_samples(batch.keys, batch.indptr[: before + 1], start)
            if stop == start:
                make_room(self, clock[start])
                continue
            self._initialise(old_size, rows, batch, start, clock)
            first, last = batch.indptr[start], batch.indptr[stop]
            features = Features(
                batch.indptr[start : stop + 1] - first, rows, batch.keys[first:last], values[first:last], batch.fields[first:last]
            )
            assert batch.clicks is not None
            of_samples = (batch.clicks, batch.weights, clock, *stages)
            samples = LabelledSamples(features, *(array[start:stop] for array in of_samples))
            weights = NetworkWeights(self.rows(self.learning.spare), self.dense)
            self.learning.learn(weights, self.network, samples, Outputs(mean[start:stop], variance[start:stop], self.rejected))
            self.clock = float(clock[stop - 1])
            if self.spec.adapt_prior and learned[stop - 1] == moment:
                adapt(self, int(moment))
            start = stop
        return self._ctr(mean, variance * self.doubt)

    def _predict(self, batch: Batch) -> Prediction:
        mean, variance = np.empty(len(batch)), np.empty(len(batch))
        with wrapping():
            predict_batch(NetworkWeights(self.rows(), self.dense), self.network, self._found(batch), self.clock, mean, variance)
        mean, variance = self._reported(mean, variance)
        return Prediction(self._ctr(mean, variance), mean, variance)

    def _reported(
        self, mean: NDArray[np.float64], variance: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The latent Gaussians that the model answers for: with its doubt, and with the CTRs that it learned."""
        widen(self.shape.doubt, mean, variance)
        return mean, variance

    def _draw(self, batch: Batch, seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
        z = np.empty((len(seeds), len(batch)))
        with wrapping():
            sample_batch(NetworkWeights(self.rows(), self.dense), self.network, self._found(batch), self.clock, seeds, z)
        return z

    def _found(self, batch: Batch) -> Features:
        """The features of a batch, with their rows in the table."""
        return Features(batch.indptr, self.table.find(batch.keys), batch.keys, self.scale.peek(batch), batch.fields)

    def _ctr(self, mean: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
        ctr = np.empty(len(mean))
        self.table.spread(lambda a, b: click_probability(mean[a:b], variance[a:b], ctr[a:b]), len(mean))
        return ctr

    def _check_capacity(self, batch: Batch) -> None:
        """Refuse a sample with more features than the capacity, before any of the batch is learned."""
        capacity = self.spec.capacity
        if capacity is not None and (most := most_features(batch.indptr)) > capacity:
            raise InputError(f"one sample has {most} features, more than the capacity of {capacity}; give the model a larger one")

    def _initialise(self, old_size: int, rows: NDArray[np.int32], batch: Batch, start: int, clock: NDArray[np.float64]) -> None:
        """Set the rows from `old_size` on to their initial means and variances, at the clock of their first sample."""
        table = self.table
        if table.size == old_size:
            return
        entry = batch.indptr[start] + table.first_entries(rows, old_size)
        table.field[old_size:] = batch.fields[entry]
        table.last_seen[old_size:] = clock[np.searchsorted(batch.indptr, entry, side="right") - 1]
        all_rows, keys, fields = self.rows(), table.keys[old_size:], table.field[old_size:]
        with wrapping():
            table.spread(lambda a, b: initialise_rows(all_rows, keys[a:b], fields[a:b], old_size + a, self.row_prior), len(keys))

    def prior_variances(self) -> State:
        linear = {"linear.variance": self.row_prior.linear_variance[:, None]} if self.spec.linear else {}
        return {"embedding.variance": self.row_prior.variance, **linear}

    def metrics(self) -> dict[str, int]:
        counters, table = dict(zip((*COUNTERS, "damped_rows"), self.rejected.tolist(), strict=False)), self.table
        return {**super().metrics(), "features": table.size, "evicted": table.evicted, "expired": table.expired, **counters}

    def state(self) -> State:
        names = {"mean": "embedding.mean", "variance": "embedding.variance"}
        names |= {"linear_mean": "linear.mean", "linear_variance": "linear.variance"}
        state = {names.get(name, f"embedding.{name}"): array for name, array in self.table.state().items()}
        for layer, (n_in, n_out) in enumerate(self.layers()):
            state[f"dense.{layer}.mean"] = self.dense.mean[layer, :n_out, : n_in + 1].copy()
            state[f"dense.{layer}.variance"] = self.dense.variance[layer, :n_out, : n_in + 1].copy()
            if layer:
                state[f"dense.{layer}.centre"] = self.dense.centre[layer, :n_in].copy()
                state[f"dense.{layer}.total"] = self.dense.total[layer, : n_in + 1].copy()
        clock = np.array([self.clock, self.dense.last_seen[0]])
        counters = np.array([self.rows_learned, *self.rejected[:DAMPED]], np.int64)
        state |= dict(zip(PRIOR_STATE, in_force(self), strict=True)) | home_of(self) | powers_of(self)
        return state | {"clock": clock, "counters": counters, "scale.moments": self.scale.moments.copy()}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        checked(self, state)
        names = {"linear.mean": "linear_mean", "linear.variance": "linear_variance"}
        table = {name: a for name, a in state.items() if name.startswith(("embedding.", "linear."))}
        self.table.load_state({names.get(name, name.removeprefix("embedding.")): a for name, a in table.items()})
        for layer, (n_in, n_out) in enumerate(self.layers()):
            self.dense.mean[layer, :n_out, : n_in + 1] = state[f"dense.{layer}.mean"]
            self.dense.variance[layer, :n_out, : n_in + 1] = state[f"dense.{layer}.variance"]
            if layer:
                self.dense.centre[layer, :n_in] = state[f"dense.{layer}.centre"]
                self.dense.total[layer, : n_in + 1] = state[f"dense.{layer}.total"]
        self.row_prior = row_prior(self.spec, *(state[name] for name in PRIOR_STATE))
        self.clock, self.dense.last_seen[0] = (float(x) for x in state["clock"])
        self.rows_learned = int(state["counters"][0])
        self.rejected[:] = rejected_of(state)
        self.scale.load(state)
        settle_home(self, state)

    def layers(self) -> list[tuple[int, int]]:
        """Inputs and outputs of every dense layer."""
        sizes = self.shape.sizes.tolist()
        return list(itertools.pairwise(sizes))


def _operation(op: int, spec: DeepSpec, schema: Schema) -> int:
    """The kernels' code of the operation; FM between several groups has its own."""
    between_groups = op == interaction.FM and spec.pairs == "groups" and len(schema.groups) > 1
    return interaction.GROUP_FM if between_groups else op


def _shortcut(spec: DeepSpec) -> float:
    """The multiple of the sum of z_0 that is added to z_L: 1 without hidden layers."""
    if not spec.hidden:
        return 1.0
    return spec.dim**-0.5 if spec.shortcut else 0.0


def empty_dense(sizes: NDArray[np.int64]) -> Dense:
    """Room for the dense weights of layers of these sizes; all means are zero."""
    layers, widest_in = len(sizes) - 1, -(-(int(sizes[:-1].max()) + 1) // ALIGN) * ALIGN
    mean, variance, prior = (aligned((layers, int(sizes[1:].max()), widest_in), F32) for _ in range(3))
    mean[:] = 0.0
    centre = np.zeros((layers, widest_in), F32)
    return Dense(mean, variance, np.zeros(1), prior, centre, np.zeros(centre.shape), mean.copy())


class SparseMLP(DeepProbit):
    """Sparse-MLP: sums the features' embeddings (PBODL §2.2, DimensionAwareSum). Parameters as for `DeepProbit`.

    With dim=1, hidden=() and linear=False it is Bayesian linear probit regression, that is, AdPredictor.

    >>> import pbodl
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")])
    >>> model = pbodl.SparseMLP(schema, dim=1, hidden=(), linear=False, initial_spread=0.0)
    >>> model.predict_proba_one({"ad": "a"})
    {False: 0.5, True: 0.5}
    """

    kind = "sparse-mlp"
    op = interaction.SUM


class FMMLP(DeepProbit):
    """FM-MLP: pairs of features interact, dimension by dimension (PBODL §2.2, FM). Parameters as for `DeepProbit`.

    With its linear term it learns single features as fast as a linear model, and pairs as well.
    """

    kind = "fm-mlp"
    op = interaction.FM


class FFMMLP(DeepProbit):
    """FFM-MLP: as `FMMLP`, with one vector per group, so that a user interacts differently with ad and context (PBODL §2.2, FFM).

    FFM's fields are the schema's groups: memory per feature grows with their number.
    """

    kind = "ffm-mlp"
    op = interaction.FFM
