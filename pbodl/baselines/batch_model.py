"""What the batch models share: they gather a history, and are refitted to it from time to time.

Between fits only the history changes. Kernels on plain arrays predict: JAX is needed to fit, not to predict.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.baselines.batch_training import OPTIMIZERS, Dense, FittingRun, Floats, Forward, Recipe, require_jax, train, training_part
from pbodl.baselines.buffer import Buffer, SampleHistory, check_columns
from pbodl.baselines.minibatch import MinibatchLayout
from pbodl.data.batch import Batch
from pbodl.data.hashing import wrapping
from pbodl.data.running_scale import RunningScale
from pbodl.data.sampling import check_rate
from pbodl.data.schema import Schema
from pbodl.data.table.feature_table import Table
from pbodl.errors import InputError
from pbodl.kernels.layers.embedding import standard_draw
from pbodl.models.clock import Duration, clock_of_samples, parse_duration
from pbodl.models.contract import Model, Prediction, State, check_state
from pbodl.models.parameter_checks import check_choice, check_number, check_whole


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters that all batch models share."""

    dim: int = 16
    window: str | None = "2M rows"
    retrain_every: str | None = None
    optimizer: str = "adagrad"
    learning_rate: float | None = None
    batch_size: int = 512
    max_epochs: int = 5
    l2: float = 0.001
    initial_spread: float = 0.03
    negative_rate: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("dim", self.dim, 1, 4096)
        check_choice("optimizer", self.optimizer, tuple(OPTIMIZERS))
        if self.learning_rate is not None:
            check_number("learning_rate", self.learning_rate, above=0.0, most=10.0)
        check_whole("batch_size", self.batch_size, 1, 2**20)
        check_whole("max_epochs", self.max_epochs, 1, 1000)
        check_number("l2", self.l2, least=0.0)
        check_number("initial_spread", self.initial_spread, above=0.0, most=10.0)
        check_whole("seed", self.seed, 0, 2**63 - 1)
        check_rate(self.negative_rate)

    def recipe(self) -> Recipe:
        rate = OPTIMIZERS[self.optimizer] if self.learning_rate is None else self.learning_rate
        return Recipe(self.optimizer, rate, self.l2, self.batch_size, self.max_epochs, self.seed)


class Fitted(NamedTuple):
    """The result of a fit: samples in the history, best number of epochs, log loss of the held-out last part (NaN: none)."""

    rows: int
    epochs: int
    log_loss: float


@jit
def draw_weights(keys, wanted, seed, scale, dim, weights):
    """Draw the first `dim` columns of the wanted rows: pure functions of (seed, key, column). MODIFIES: weights."""
    for r in range(len(keys)):
        if wanted[r]:
            for k in range(dim):
                weights[r, k] = scale * standard_draw(seed, keys[r], np.uint64(k))


class BatchModel(Model):
    """A model that is fitted to its history. A subclass defines its network twice: for JAX and as a kernel."""

    link = "logit"
    spec: BatchSpec

    @classmethod
    def from_spec(cls, schema: Schema, spec: Any) -> "BatchModel":
        model = cls.__new__(cls)
        model._build(schema, spec)
        return model

    def _build(self, schema: Schema, spec: Any) -> None:
        Model.__init__(self, schema, spec)
        window = _span(schema, spec.window, "window")
        self._period = _span(schema, spec.retrain_every, "retrain_every")
        most_rows = int(window.amount) if window is not None and window.in_rows else None
        self.buffer = Buffer(most_rows, window.amount if window is not None and not window.in_rows else None)
        self.table = Table({"weights": self._width()})
        self.scale = RunningScale(schema)
        self.clock = 0.0
        self.fits = self.epochs = 0
        self.dense = {name: np.zeros_like(array) for name, array in self._initial_dense().items()}

    @abstractmethod
    def _width(self) -> int:
        """How many weights a feature has; the first `dim` start at random, the others at zero."""

    @abstractmethod
    def _initial_dense(self) -> Dense:
        """The other arrays at the start of a fit."""

    @abstractmethod
    def _forward(self, slot_fields: tuple[int, ...]) -> Forward:
        """The network for JAX; the same function for the same slots, so that it is compiled once."""

    @abstractmethod
    def _logits(self, weights: Floats, dense: Dense, samples: SampleHistory) -> NDArray[np.float64]:
        """The network as a kernel, sample by sample; rows of unseen features are -1, and contribute nothing."""

    def fit(self) -> Fitted:
        """Train from scratch on everything in the window."""
        require_jax()
        history = self.buffer.history()
        n = len(self.buffer)
        if not n:
            raise InputError("there is no history to fit to; let the model learn some rows first")
        known = np.zeros(self.table.size, np.bool_)
        known[history.rows[: history.indptr[training_part(n)]]] = True
        weights = np.zeros((self.table.size, self._width()), np.float32)
        spec = self.spec
        with wrapping():
            draw_weights(self.table.keys, known, np.uint64(spec.seed), np.float32(spec.initial_spread), spec.dim, weights)
        layout = MinibatchLayout(history, self.table.field, len(self.schema.fields), spec.batch_size)
        run = FittingRun(self._forward(layout.slot_fields), weights, self._initial_dense(), layout, spec.recipe())
        fit = train(run, self._logits)
        self.table.column("weights")[:] = fit.weights
        self.dense = {name: fit.dense[name] for name in self.dense}  # JAX sorts them
        self.epochs, self.fits = fit.epochs, self.fits + 1
        return Fitted(n, fit.epochs, fit.log_loss)

    def _learn(self, batch: Batch) -> NDArray[np.float64]:
        if batch.has_stages:
            raise InputError(
                f"a {self.kind!r} model is trained in batch, on final labels, and cannot learn stages of impressions whose clicks "
                "may still come; learn a log, or choose a model that learns online, such as pair-fm"
            )
        require_jax()
        values = self.scale.learn(batch)
        clock = clock_of_samples(self, batch, counts_rows=self.schema.time is None)
        ctr = np.empty(len(batch))
        moments = self._fit_moments(batch, clock)
        start = 0
        for stop in sorted({*moments, len(batch)}):
            if stop > start:
                ctr[start:stop] = self._gather(batch, values, clock, start, stop)
            if stop in moments and len(self.buffer):
                self.fit()
            start = stop
        return ctr

    def _gather(self, batch: Batch, values: Floats, clock: NDArray[np.float64], start: int, stop: int) -> NDArray[np.float64]:
        """Predict samples start to stop, and add them to the history."""
        assert batch.clicks is not None
        first, last = batch.indptr[start], batch.indptr[stop]
        table, old_size = self.table, self.table.size
        rows = table.insert(batch.keys[first:last])
        new = np.flatnonzero(rows >= old_size)
        table.field[rows[new]] = batch.fields[first:last][new]
        table.column("weights")[old_size:] = 0.0  # until the next fit they contribute nothing, as if unseen
        samples = SampleHistory(
            batch.indptr[start : stop + 1] - first, rows, values[first:last], batch.clicks[start:stop], batch.weights[start:stop]
        )
        np.add.at(table.count, rows, np.repeat(batch.counted[start:stop], np.diff(samples.indptr)).astype(np.uint32))
        table.last_seen[rows] = np.repeat(clock[start:stop], np.diff(samples.indptr))
        self.buffer.append(samples, clock[start:stop])
        self.clock = float(clock[stop - 1])
        return _sigmoid(self._logits(table.column("weights"), self.dense, samples))

    def _predict(self, batch: Batch) -> Prediction:
        none = np.zeros(len(batch), np.float32)
        samples = SampleHistory(batch.indptr, self.table.find(batch.keys), self.scale.peek(batch), none, none)
        logits = self._logits(self.table.column("weights"), self.dense, samples)
        return Prediction(_sigmoid(logits), logits, np.zeros(len(batch)))

    def _fit_moments(self, batch: Batch, clock: NDArray[np.float64]) -> list[int]:
        """The samples before which to fit: the first of a period; in rows, the one after a full one (maybe in the next batch)."""
        if self._period is None:
            return []
        period = self._period.amount
        if self._period.in_rows:
            full = (self.rows_learned + np.cumsum(batch.counted)) % int(period) == 0
            return (1 + np.flatnonzero(full & batch.counted)).tolist()
        before = np.concatenate([[self.clock if self.rows_learned else clock[0]], clock[:-1]])
        return np.flatnonzero(np.floor(clock / period) > np.floor(before / period)).tolist()

    def metrics(self) -> dict[str, int]:
        counters = {"features": self.table.size, "buffered": len(self.buffer), "fits": self.fits, "epochs": self.epochs}
        return {**super().metrics(), **counters}

    def state(self) -> State:
        state = {f"embedding.{name}": array for name, array in self.table.state().items()}
        state |= {name: array.copy() for name, array in self.dense.items()}
        state |= {f"buffer.{name}": array for name, array in self.buffer.state().items()}
        counters = np.array([self.rows_learned, self.fits, self.epochs], np.int64)
        return state | {"clock": np.array([self.clock]), "counters": counters, "scale.moments": self.scale.moments.copy()}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        check_state(self, state, rows=("embedding.", "buffer."))
        buffer = {name.removeprefix("buffer."): array for name, array in state.items() if name.startswith("buffer.")}
        check_columns(buffer, len(state["embedding.keys"]))
        self.table.load_state({name.removeprefix("embedding."): a for name, a in state.items() if name.startswith("embedding.")})
        self.buffer.load_state(buffer)
        self.dense = {name: np.array(state[name]) for name in self.dense}
        self.clock = float(state["clock"][0])
        self.rows_learned, self.fits, self.epochs = (int(count) for count in state["counters"])
        self.scale.load(state)


def _span(schema: Schema, text: str | None, what: str) -> Duration | None:
    if text is None:
        return None
    span = parse_duration(text, what)
    if not span.in_rows and schema.time is None:
        raise InputError(f"{what} {text!r} needs the schema's time column; name it with time='...', or give rows: '100k rows'")
    if span.in_rows and span.amount < 1:
        raise InputError(f"{what} is {text!r}; it must be at least one row")
    return span


def _sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(-np.logaddexp(0.0, -logits))
