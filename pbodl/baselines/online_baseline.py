"""What the online baselines share: a table of rows, a clock, and one kernel call per batch.

A subclass names its columns, fills new rows, and passes samples to its kernels. The table has no capacity: the baselines are for
comparison, and keep every feature.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import wrapping
from pbodl.data.running_scale import RunningScale
from pbodl.data.schema import Schema
from pbodl.data.table.feature_table import Table
from pbodl.kernels.arguments import Features, LabelledSamples
from pbodl.models.clock import clock_of_first, clock_of_samples
from pbodl.models.contract import Model, Prediction, State, check_state
from pbodl.models.spec import of_many


def with_defaults(schema: Schema, spec: Any, **usual: float) -> Any:
    """The specification with numbers for what it leaves open: the usual ones, or less where there are many fields."""
    fields = len(getattr(schema, "fields", "?"))  # `Model` refuses what is no schema
    open_ones = {name: of_many(value, fields) for name, value in usual.items() if getattr(spec, name) is None}
    return msgspec.structs.replace(spec, **open_ones)


class OnlineBaseline(Model):
    """A model of rows in a table that learns sample by sample, with a bias that is always active."""

    bias_numbers: ClassVar[tuple[str, ...]]  # the names of the bias's numbers, as the state has them
    bias: NDArray[np.float64]

    def _build(self, schema: Schema, spec: Any, counts_rows: bool, columns: dict[str, int]) -> None:
        Model.__init__(self, schema, spec)
        self.table = Table(columns)
        self.scale = RunningScale(schema)
        self.clock = 0.0
        self._counts_rows = counts_rows

    @classmethod
    def from_spec(cls, schema: Schema, spec: Any) -> "OnlineBaseline":
        model = cls.__new__(cls)
        model._start(schema, spec)
        return model

    @abstractmethod
    def _start(self, schema: Schema, spec: Any) -> None:
        """Build the model that `spec` describes, before any data."""

    @abstractmethod
    def _initialise(self, old_size: int) -> None:
        """Fill the columns of the rows from `old_size` on."""

    def _begin(self, now: float) -> None:
        """Nothing was learned before the clock `now`."""

    @abstractmethod
    def _learn_samples(self, samples: LabelledSamples, ctr: NDArray[np.float64]) -> None:
        """Learn samples in order. MODIFIES: ctr, the probabilities predicted before each."""

    @abstractmethod
    def _predict_samples(self, features: Features) -> Prediction:
        """Predict samples; rows of unseen features are -1."""

    def _learn(self, batch: Batch) -> NDArray[np.float64]:
        values = self.scale.learn(batch)
        clock = clock_of_samples(self, batch, self._counts_rows)
        old_size = self.table.size
        rows = self.table.insert(batch.keys)
        if self.table.size > old_size:
            new = np.flatnonzero(rows >= old_size)
            self.table.field[rows[new]] = batch.fields[new]
            self._initialise(old_size)
        if not self.rows_learned:
            self._begin(clock_of_first(batch, clock))
        assert batch.clicks is not None
        features = Features(batch.indptr, rows, batch.keys, values, batch.fields)
        ctr = np.empty(len(batch))
        self._learn_samples(LabelledSamples(features, batch.clicks, batch.weights, clock, *batch.stages()), ctr)
        self.clock = float(clock[-1])
        return ctr

    def _predict(self, batch: Batch) -> Prediction:
        return self._predict_samples(self._found(batch))

    def _draw(self, batch: Batch, seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
        z = np.empty((len(seeds), len(batch)))
        with wrapping():
            self._draw_samples(self._found(batch), seeds, z)
        return z

    def _draw_samples(self, features: Features, seeds: NDArray[np.uint64], z: NDArray[np.float64]) -> None:
        """z of every sample under every draw. MODIFIES: z."""
        raise self._no_draws()

    def _found(self, batch: Batch) -> Features:
        """The features of a batch; rows of unseen ones are -1."""
        return Features(batch.indptr, self.table.find(batch.keys), batch.keys, self.scale.peek(batch), batch.fields)

    def metrics(self) -> dict[str, int]:
        return {**super().metrics(), "features": self.table.size}

    def state(self) -> State:
        state = {f"weight.{name}": array for name, array in self._rows_state().items()}
        numbers = {"clock": np.array([self.clock]), "counters": np.array([self.rows_learned], np.int64)}
        return state | self._own_state() | numbers | {"scale.moments": self.scale.moments.copy()}

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        check_state(self, state, rows=("weight.",))
        self._load_rows({name.removeprefix("weight."): a for name, a in state.items() if name.startswith("weight.")})
        self._load_own(state)
        self.clock, self.rows_learned = float(state["clock"][0]), int(state["counters"][0])
        self.scale.load(state)

    def _rows_state(self) -> State:
        return self.table.state()

    def _load_rows(self, rows: Mapping[str, NDArray]) -> None:
        self.table.load_state(rows)

    def _own_state(self) -> State:
        """Copies of the arrays beside the table."""
        return {f"bias.{name}": self.bias[i : i + 1].copy() for i, name in enumerate(self.bias_numbers)}

    def _load_own(self, state: Mapping[str, NDArray]) -> None:
        """Take those arrays from a state that was checked."""
        self.bias = np.concatenate([state[f"bias.{name}"] for name in self.bias_numbers])


class LinearBaseline(OnlineBaseline):
    """A linear model with two float64 numbers per feature, side by side: one visit to memory per feature, not two.

    They are float64 because a frequent feature's statistics exceed 2²⁴, where float32 stops counting.
    """

    numbers: ClassVar[tuple[str, str]]

    def _build_linear(self, schema: Schema, spec: Any, counts_rows: bool) -> None:
        # The table's columns are float32: two of them make one float64.
        self._build(schema, spec, counts_rows, {"numbers": 4})

    def pairs(self) -> NDArray[np.float64]:
        """The two numbers of each row, [size, 2]: a view, valid until the table changes."""
        return self.table.column("numbers").view(np.float64)

    def _rows_state(self) -> State:
        state = self.table.state()
        pairs = state.pop("numbers").view(np.float64)
        return state | {name: pairs[:, i].copy() for i, name in enumerate(self.numbers)}

    def _load_rows(self, rows: Mapping[str, NDArray]) -> None:
        table = {name: array for name, array in rows.items() if name not in self.numbers}
        pairs = np.stack([rows[name] for name in self.numbers], axis=1)
        self.table.load_state(table | {"numbers": pairs.view(np.float32)})
