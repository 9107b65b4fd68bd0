"""The contract of every model and baseline: `learn` mutates, `predict` is pure, `_one` is River's granularity.

Its `schema` and its `spec` describe a model; its `state()`, plain arrays by name, is what it has learned. A subclass defines
`kind`, `Spec`, `from_spec`, `_learn`, `_predict`, `state` and `load_state`; everything about data, recalibration and River is here.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl._jit import compiling_notice
from pbodl.data.convert import Batch, from_data
from pbodl.data.sampling import ONE_SET, recalibrate
from pbodl.data.schema import Schema, nearest
from pbodl.errors import InputError
from pbodl.models import joint_draws
from pbodl.models.recalibration import ctr_deviation

SLICE = 65536  # rows of a table to hash at a time
DRAWN = ("pair-fm", "deep-probit", "sparse-mlp", "fm-mlp", "ffm-mlp", "adpredictor", "matchbox")  # kinds that `sample` works for
State = dict[str, NDArray]


class Prediction(NamedTuple):
    """Predicted CTRs and the latent Gaussian behind each, as arrays with one value per row.

    ctr       click-through rate: Φ(mean/√(1+variance)) for the probit models, recalibrated for negative sampling
    mean      mean of the latent Gaussian, of the stream as it was learned; `pbodl predict` and the server recalibrate it
    variance  variance of the latent Gaussian: the model's uncertainty
    """

    ctr: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation of each CTR, recalibrated like the CTR: how far the true CTR may be from the predicted one."""
        return ctr_deviation(self.ctr, self.mean, self.variance)


class Model(ABC):
    """A CTR model that learns from a stream."""

    kind: ClassVar[str]
    Spec: ClassVar[type[msgspec.Struct]]
    kinds: ClassVar[dict[str, type["Model"]]] = {}
    doubt: float = 1.0  # the variance in its CTRs and of its draws, over that of its weights
    reporter: ClassVar[Callable[["Model"], Any]]  # makes the report; `pbodl` sets it, since reports stand above models
    link: ClassVar[str] = "probit"  # how the latent score becomes a CTR; or "logit"
    _supervised = True  # River asks

    def __init__(self, schema: Schema, spec: Any) -> None:
        if not isinstance(schema, Schema):
            raise InputError(f"schema must be a pbodl.Schema, not {type(schema).__name__}")
        self.schema = schema
        self.spec = spec
        self.rows_learned = 0
        self.run: Path | None = None  # the run folder that it was loaded from
        self.figures: dict[str, Any] | None = None  # of its training, and the page that shows them
        self.page: str | None = None
        self.negatives = ONE_SET  # which negatives of a log are learned, if not all
        _join_river()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            Model.kinds[cls.kind] = cls

    @classmethod
    @abstractmethod
    def from_spec(cls, schema: Schema, spec: Any) -> "Model":
        """The model that a specification, from a manifest or a TOML file, describes."""

    @abstractmethod
    def _learn(self, batch: Batch) -> NDArray[np.float64]:
        """Learn a labelled batch; returns the probabilities predicted before each sample was learned, not yet recalibrated."""

    @abstractmethod
    def _predict(self, batch: Batch) -> Prediction:
        """Predict without changing anything; not yet recalibrated."""

    @abstractmethod
    def state(self) -> State:
        """Copies of all arrays that learning changes, by name."""

    @abstractmethod
    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Restore a model from its `state()`; everything is checked before anything changes."""

    def _draw(self, batch: Batch, seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
        """z of every sample under the draw of each seed, (draws, samples), where Φ(z) is the CTR."""
        raise self._no_draws()

    def _no_draws(self) -> InputError:
        return InputError(f"a {self.kind!r} model has no distribution of its weights to draw from; {', '.join(DRAWN)} have one")

    def prior_variances(self) -> State:
        """The variances of a feature before any data, one row per field of the schema, by the names that `state()` gives them."""
        return {}

    def metrics(self) -> dict[str, int]:
        """Counters of rows, features and rejected updates."""
        return {"rows_learned": self.rows_learned}

    def learn(self, data: Any) -> NDArray[np.float64]:
        """Learn labelled data in its order; returns the CTR predicted for each row *before* it was learned.

        data is a dict, a list of dicts, a table of pyarrow, pandas or polars, or a `Batch`; the label is one of its columns.
        Learning row by row or all at once gives the same bits.
        """
        ctr = [np.zeros(0)]
        for batch in self._batches(data, labelled=True):
            ctr.append(self._learn(batch))
            self.rows_learned += int(np.count_nonzero(batch.counted))
        return recalibrate(np.concatenate(ctr), self.negative_rate)

    def predict(self, data: Any) -> Prediction:
        """The CTR of each row, and its latent mean and variance; changes nothing."""
        parts = [self._predict(batch) for batch in self._batches(data, labelled=False)]
        if not parts:
            return Prediction(np.zeros(0), np.zeros(0), np.zeros(0))
        ctr, mean, variance = parts[0] if len(parts) == 1 else (np.concatenate(column) for column in zip(*parts, strict=True))
        return Prediction(recalibrate(ctr, self.negative_rate), mean, variance)

    def sample(self, data: Any, draws: int = 32, seed: int = 0, spread: float = 1.0) -> NDArray[np.float64]:
        """CTRs under draws of the weights, (draws, rows): all rows of a line are predicted by the *same* weights.

        So the lines tell how predictions vary together. The noise of a weight is a pure function of (seed, draw, feature,
        dimension), so it is the same in every process and for any order of rows. `spread` scales the deviations from the mean.
        """
        return joint_draws.sampled_ctr(self, self._batches(data, labelled=False), draws, seed, spread)

    def learn_one(self, x: Mapping[str, Any], y: Any) -> None:
        """Learn one sample: its features, and whether it was clicked."""
        self.learn({**x, self.schema.label: y})

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[bool, float]:
        """The probabilities of no click and of a click."""
        ctr = float(self.predict(x).ctr[0])
        return {False: 1.0 - ctr, True: ctr}

    def predict_one(self, x: Mapping[str, Any]) -> bool:
        """Whether a click is more likely than not."""
        return self.predict_proba_one(x)[True] > 0.5

    def save(self, run: str | Path) -> Path:
        """Write a snapshot into the run folder; `pbodl.load` reads it back."""
        from pbodl.models import snapshot  # it needs this contract

        return snapshot.save(self, run)

    def report(self) -> Any:
        """The report of the model, with the curves of its training: a notebook shows it, and its `save(path)` writes a page."""
        return type(self).reporter(self)

    @property
    def negative_rate(self) -> float:
        """The share of negatives that is left in this model's stream; predictions are recalibrated by it."""
        return self.spec.negative_rate

    def _batches(self, data: Any, labelled: bool) -> Iterator[Batch]:
        if sys.stderr.isatty() and (notice := compiling_notice()):
            print(notice, file=sys.stderr)
        # A large table is hashed slice by slice, so that memory follows the slice, not the table.
        if hasattr(data, "num_rows") and hasattr(data, "slice") and data.num_rows > SLICE:
            for start in range(0, data.num_rows, SLICE):
                yield from_data(self.schema, data.slice(start, SLICE), labelled)
        else:
            batch = from_data(self.schema, data, labelled)
            if len(batch):
                yield batch

    def __repr__(self) -> str:
        fields, facts = len(self.schema.fields), self.metrics()
        about = [f"{fields} field{'s' * (fields != 1)}", f"{self.rows_learned:,} rows learned"]
        if "features" in facts:
            about.append(f"{facts['features']:,} features in {_size(getattr(self, 'table', None))}")
        if self.negative_rate != 1.0:
            about.append(f"recalibrated for negative_rate={self.negative_rate:.4g}")
        return f"{type(self).__name__}({', '.join(about)})"


def _size(table: Any) -> str:
    """The memory of a table, in few letters."""
    size = float(getattr(table, "nbytes", 0))
    for unit in ("bytes", "kB", "MB"):
        if size < 1000.0:
            return f"{size:.3g} {unit}"
        size /= 1000.0
    return f"{size:.3g} GB"


def check_state(model: Model, given: Mapping[str, NDArray], rows: tuple[str, ...]) -> None:
    """Refuse a state that does not fit the model, or that is damaged.

    An array whose name starts with one of `rows` may have any length; the table's `field` has the first of these prefixes.
    """
    expected = model.state()
    for name in expected:
        if name not in given:
            raise InputError(f"the state has no {name!r}{nearest(name, given)}; it must hold: {', '.join(sorted(expected))}")
    for name, array in given.items():
        if name not in expected:
            raise InputError(f"the state has an unknown {name!r}{nearest(name, expected)}; valid: {', '.join(sorted(expected))}")
        array, ours = np.asarray(array), expected[name]
        free = int(name.startswith(rows) and ours.ndim > 0)  # the first length, which may be any
        if array.ndim != ours.ndim or array.shape[free:] != ours.shape[free:] or array.dtype != ours.dtype:
            wanted = "x".join(["any"] * free + [str(n) for n in ours.shape[free:]]) or "scalar"
            raise InputError(
                f"the state's {name!r} is {array.dtype} of shape {array.shape}; this model needs {ours.dtype} of {wanted}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"the state's {name!r} holds NaN or infinity; it is damaged")
        if name.endswith("variance") and (array <= 0).any():
            raise InputError(f"the state's {name!r} holds a variance that is not above zero; it is damaged")
    field = f"{rows[0]}field"
    if (given[field] >= len(model.schema.fields)).any():
        raise InputError(f"the state's {field!r} names fields that the schema does not have; it is damaged")


def _join_river() -> None:
    """Make isinstance(model, river.base.Classifier), which River asks, true once River is loaded."""
    river = sys.modules.get("river.base")
    if river is not None:
        river.Classifier.register(Model)
