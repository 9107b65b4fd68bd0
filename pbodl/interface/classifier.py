"""`PBODLClassifier`: PBODL's models as a classifier of scikit-learn.

The estimator owns a model (`model_`) and the schema it chose for the columns of X. All learning is the model's own: one pass, row
by row, in the order of the rows.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import Tags, assert_all_finite, check_consistent_length, column_or_1d
    from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets, type_of_target
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    from pbodl.system.extras import install_line

    raise ImportError(f"PBODLClassifier needs scikit-learn; run: {install_line('sklearn')}") from error

from pbodl.data.batch import Batch
from pbodl.data.convert import from_data
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.interface.sklearn_columns import fields_of, is_frame, table_of, whole_categories
from pbodl.models.contract import Model
from pbodl.training.config import DEFAULT_KIND, check_config

LABEL = "the label"  # a name that no column has by accident; y comes beside X
MOST_TIMES = 32  # a row of weight w is learned ⌈w⌉ times, but not more often than this, each time with an equal share of w


class PBODLClassifier(ClassifierMixin, BaseEstimator):
    """A Bayesian online classifier for two classes, for scikit-learn: pipelines, cross-validation, calibration.

    `fit` starts anew, `partial_fit` continues; both learn the rows once, in their order, so give them in the order of time. X is a
    data frame (pandas, polars) or an array. By default texts, booleans and categorical columns are categories, columns of lists
    have several values, and numbers are quantities. Missing values are fine.

    Parameters
    ----------
    model                 kind of model: "pair-fm", "fm-mlp", "ffm-mlp", "sparse-mlp", "deep-probit", "adpredictor", "ftrl", ...
    schema                the columns (`Schema`), with their groups; None chooses a field for every column of X
    categorical_features  columns of numbers that are categories, such as ids: names, indices, or a mask; only without `schema`
    numbers               what becomes of quantities: "scale" (one slope) or "buckets" (a weight for each range); without `schema`
    dim                   length of a feature's embedding; None is the model's default
    half_life             forget towards the prior: "7d" (with a schema that has a time), or "1M rows"; None: never
    options               other parameters of the model, such as {"adapt_prior": False}
    seed                  random seed for the initial means

    Examples
    --------
    >>> import numpy as np, pbodl
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> y = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
    >>> classifier = pbodl.PBODLClassifier().fit(X, y)
    >>> classifier.predict([[2.0, 1.0], [-1.0, -2.0]]).tolist()
    ['yes', 'no']
    >>> probabilities, std = classifier.predict_proba([[2.0, 1.0]], return_std=True)
    >>> probabilities.shape, std.shape
    ((1, 2), (1,))
    """

    model_: Model
    classes_: NDArray

    def __init__(
        self,
        model: str = DEFAULT_KIND,
        *,
        schema: Schema | None = None,
        categorical_features: Any = None,
        numbers: str = "scale",
        dim: int | None = None,
        half_life: str | None = None,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.schema = schema
        self.categorical_features = categorical_features
        self.numbers = numbers
        self.dim = dim
        self.half_life = half_life
        self.options = options
        self.seed = seed

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "PBODLClassifier":
        """Learn from the rows in their order, with a new model.

        A row of weight w counts as its likelihood to the power w: weight 0 leaves it out, weight 2 learns it twice.
        """
        X, y = self._checked(X, reset=True, y=y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        check_classification_targets(y)
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        weights = _weights(sample_weight, X)
        classes = np.unique(y if weights is None else y[weights > 0])
        if len(classes) < 2:
            raise ValueError(f"y holds {len(classes)} class ({classes.tolist()}); the classifier needs rows of two classes")
        self.classes_ = classes
        self._start(X)
        return self._learn(X, y, weights)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "PBODLClassifier":
        """Continue to learn; the first call starts the model, and must be given the two `classes`."""
        first = _check_partial_fit_first_call(self, classes)
        if first and len(self.classes_) != 2:
            found = self.classes_.tolist()
            del self.classes_
            raise ValueError(f"classes is {found}. Only binary classification is supported: give two classes")
        X, y = self._checked(X, reset=first, y=y)
        strangers = np.setdiff1d(y, self.classes_)
        if len(strangers):
            raise ValueError(f"y holds {strangers.tolist()}; the classes are {self.classes_.tolist()}")
        if first:
            self._start(X)
        return self._learn(X, y, _weights(sample_weight, X))

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """The probabilities of both classes, shape (n, 2); with `return_std` also the standard deviation of the second, (n,)."""
        check_is_fitted(self, "model_")
        predicted = self.model_.predict(self._batch(self._checked(X, reset=False)))
        probabilities = np.column_stack([1.0 - predicted.ctr, predicted.ctr])
        return (probabilities, predicted.std) if return_std else probabilities

    def predict(self, X: Any) -> NDArray:
        """The more probable class of each row."""
        likelier = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likelier]

    def _checked(self, X: Any, reset: bool, **given: Any) -> Any:
        """X, and y if it is given, as scikit-learn checks them; a data frame stays one, and its columns are checked by name."""
        if not is_frame(X) or given.get("y", 0) is None:
            return validate_data(self, X, dtype=None, ensure_all_finite="allow-nan", reset=reset, **given)
        validate_data(self, X, skip_check_array=True, reset=reset)
        if not len(X):
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
        if not given:
            return X
        y = column_or_1d(given["y"], warn=True)
        assert_all_finite(y, input_name="y")
        check_consistent_length(X, y)
        return X, y

    def _start(self, X: Any) -> None:
        """Choose the schema, and make a new model."""
        if self.schema is not None and not isinstance(self.schema, Schema):
            raise InputError(f"schema is {self.schema!r}; it must be a pbodl.Schema")
        schema = self.schema
        if schema is None:
            schema = Schema(label=LABEL, fields=fields_of(table_of(X), self.categorical_features, self.numbers))
        known = Model.kinds[self.model].Spec.__struct_fields__ if self.model in Model.kinds else ()
        given = {"seed": self.seed, "dim": self.dim}  # not every model has these
        options = {name: value for name, value in given.items() if value is not None and name in known}
        training = {} if self.half_life is None else {"half_life": self.half_life}
        tables = {
            "schema": msgspec.to_builtins(schema),
            "model": {"kind": self.model, **options, **(self.options or {})},
            "training": training,
        }
        self.model_ = check_config(tables).build()

    def _names(self) -> list[str] | None:
        """The columns' names where X is an array: those of the schema's fields, if there is one."""
        return None if self.schema is None else self.schema.sources

    def _batch(self, X: Any) -> Batch:
        table = table_of(X, self._names())
        return from_data(self.model_.schema, whole_categories(table, self.model_.schema.fields), labelled=False)

    def _learn(self, X: Any, y: NDArray, weights: NDArray[np.float64] | None) -> "PBODLClassifier":
        batch = self._batch(X)
        batch = batch._replace(clicks=(y == self.classes_[1]).astype(np.float32))
        if weights is not None:
            times = np.minimum(np.ceil(weights), MOST_TIMES)
            powers = np.divide(weights, times, out=np.zeros(len(weights)), where=times > 0)
            batch = batch._replace(weights=powers.astype(np.float32)).take(np.repeat(np.arange(len(times)), times.astype(np.int64)))
        if len(batch):
            self.model_.learn(batch)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """The model goes as plain data and arrays: a copy and a pickle hold what a snapshot holds."""
        state = dict(super().__getstate__())
        model: Model | None = state.pop("model_", None)
        if model is not None:
            state = {**state, "_saved": (model.kind, model.schema, model.spec, model.rows_learned, model.state())}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        saved = state.pop("_saved", None)
        super().__setstate__(state)
        if saved is not None:
            kind, schema, spec, rows_learned, arrays = saved
            self.model_ = Model.kinds[kind].from_spec(schema, spec)
            self.model_.load_state(arrays)
            self.model_.rows_learned = rows_learned

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags


def _weights(sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
    """The weights of the rows, checked; None if all are 1."""
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
