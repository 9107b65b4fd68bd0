"""`PBODLClassifier`: scikit-learn's own checks, data frames and arrays, weights, pipelines, cross-validation, calibration."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import pbodl
from pbodl import Field, PBODLClassifier, Schema

ORDER = "learning is sequential: repeating a row is another order of rows, and the check shuffles them"
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": ORDER}


def clicks(rows: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows with an id, a text and a number, all of which matter."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"ad": rng.integers(0, 20, rows), "site": rng.choice(["news", "shop", "blog"], rows), "price": rng.normal(5.0, 2.0, rows)}
    )
    score = (frame["ad"] % 5 - 2) * 0.6 + (frame["site"] == "shop") * 0.8 - 0.4 * (frame["price"] - 5.0)
    return frame, (score + rng.normal(size=rows) > 0).to_numpy().astype(int)


def test_it_passes_the_checks_of_scikit_learn():
    results = check_estimator(PBODLClassifier(), expected_failed_checks=EXPECTED, on_skip=None, on_fail=None)
    failed = {result["check_name"]: repr(result["exception"]) for result in results if result["status"] == "failed"}
    assert not failed
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(EXPECTED)
    assert sum(result["status"] == "passed" for result in results) > 45


@pytest.mark.parametrize("kind", ["fm-mlp", "ftrl"])
def test_other_models_pass_them_too(kind):
    results = check_estimator(PBODLClassifier(kind), expected_failed_checks=EXPECTED, on_skip=None, on_fail=None)
    assert not [result["check_name"] for result in results if result["status"] == "failed"]


def test_fit_learns_what_the_model_learns():
    frame, y = clicks(2000)
    fields = [Field("ad"), Field("site"), Field("price", kind="number", transform="scale")]
    ref = pbodl.PairFM(Schema(label="y", fields=fields))
    ref.learn(frame.assign(y=y))
    comp = PBODLClassifier(categorical_features=["ad"]).fit(frame, y)
    np.testing.assert_array_equal(comp.predict_proba(frame)[:, 1], ref.predict(frame).ctr)
    _, std = comp.predict_proba(frame, return_std=True)
    np.testing.assert_array_equal(std, ref.predict(frame).std)
    assert roc_auc_score(y, comp.predict_proba(frame)[:, 1]) > 0.8


def test_frames_of_pandas_and_polars_and_arrays_are_alike():
    frame, y = clicks(500)
    ref = PBODLClassifier(categorical_features=["ad"]).fit(frame, y).predict_proba(frame)
    comp = PBODLClassifier(categorical_features=["ad"]).fit(pl.from_pandas(frame), y).predict_proba(pl.from_pandas(frame))
    np.testing.assert_array_equal(comp, ref)
    numbers, named = frame[["ad", "price"]], {"schema": Schema(label="y", fields=[Field("ad"), Field("price", kind="number")])}
    ref = PBODLClassifier(**named).fit(numbers, y).predict_proba(numbers)
    comp = PBODLClassifier(**named).fit(numbers.to_numpy(), y).predict_proba(numbers.to_numpy())
    np.testing.assert_array_equal(comp, ref)


def test_arrays_of_objects_hold_texts_and_numbers():
    frame, y = clicks(500)
    objects = frame.to_numpy(dtype=object)
    objects[::7, 1] = None
    classifier = PBODLClassifier(categorical_features=[0]).fit(objects, y)
    assert [field.kind for field in classifier.model_.schema.fields] == ["category", "category", "number"]
    assert log_loss(y, classifier.predict_proba(objects)) < 0.6


def test_fields_follow_the_types_of_the_columns():
    frame = pd.DataFrame({"flag": [True, False], "n": [1, 2], "x": [0.5, None], "tags": [["a"], ["b", "c"]], "c": ["u", "v"]})
    frame["c"] = frame["c"].astype("category")
    classifier = PBODLClassifier(numbers="buckets").fit(frame, ["no", "yes"])
    assert [field.kind for field in classifier.model_.schema.fields] == ["category", "number", "number", "multi", "category"]
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert classifier.feature_names_in_.tolist() == ["flag", "n", "x", "tags", "c"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"categorical_features": ["adx"]},
            r"names 'adx' \(did you mean 'ad'\?\), which X does not have; columns: ad, site, price",
        ),
        ({"categorical_features": [7]}, "names 7"),
        ({"categorical_features": "ad"}, "give a list of column names or indices"),
        ({"categorical_features": [True]}, "a mask of 1 booleans; X has 3 columns"),
        ({"numbers": "log"}, "numbers is 'log'; allowed: 'scale', 'buckets'"),
        ({"model": "pairfm"}, "unknown model kind 'pairfm' .*did you mean 'pair-fm'"),
        ({"options": {"dimm": 3}}, "unknown key 'dimm' .*did you mean 'dim'"),
        ({"schema": "ad"}, "it must be a pbodl.Schema"),
    ],
)
def test_wrong_parameters_are_explained(options, told):
    with pytest.raises(ValueError, match=told):
        PBODLClassifier(**options).fit(*clicks(20))


def test_times_need_a_schema():
    frame, y = clicks(20)
    frame["when"] = pd.date_range("2026-01-01", periods=20)
    with pytest.raises(ValueError, match=r"column 'when' holds times .*time='when'"):
        PBODLClassifier().fit(frame, y)
    schema = Schema(label="y", time="when", fields=[Field("site"), Field("hour", derive="hour_of_day")])
    assert PBODLClassifier(schema=schema, half_life="7d").fit(frame, y).model_.clock > 1.7e9


def test_partial_fit_continues():
    frame, y = clicks(1000)
    ref = PBODLClassifier().fit(frame, y)
    comp = PBODLClassifier().partial_fit(frame[:300], y[:300], classes=[0, 1])
    comp = pickle.loads(pickle.dumps(comp)).partial_fit(frame[300:], y[300:])
    np.testing.assert_array_equal(comp.predict_proba(frame), ref.predict_proba(frame))
    with pytest.raises(ValueError, match=r"y holds \[2\]; the classes are \[0, 1\]"):
        comp.partial_fit(frame[:1], [2])
    with pytest.raises(ValueError, match="give two classes"):
        PBODLClassifier().partial_fit(frame, y, classes=[0, 1, 2])


def test_weights_count():
    frame, y = clicks(800)
    none, some = np.zeros(800), np.random.default_rng(0).uniform(size=800) < 0.5
    ref = PBODLClassifier().fit(frame[some], y[some])
    comp = PBODLClassifier().fit(frame, y, sample_weight=some.astype(float))
    np.testing.assert_array_equal(comp.predict_proba(frame), ref.predict_proba(frame))
    with pytest.raises(ValueError, match=r"zero|class"):
        PBODLClassifier().fit(frame, y, sample_weight=none)
    # A weight of two is learning the row twice; a half counts less than a whole.
    comp = PBODLClassifier().fit(frame, y, sample_weight=np.full(800, 2.0))
    ref = PBODLClassifier().fit(frame.loc[np.repeat(np.arange(800), 2)], np.repeat(y, 2))
    np.testing.assert_array_equal(comp.predict_proba(frame), ref.predict_proba(frame))
    spreads = [
        PBODLClassifier("adpredictor").fit(frame, y, np.full(800, weight)).predict_proba(frame, return_std=True)[1].mean()
        for weight in (0.25, 0.5, 1.0, 1.5, 3.0)
    ]
    assert spreads == sorted(spreads, reverse=True)


def test_it_works_with_the_tools_of_scikit_learn():
    frame, y = clicks(1500)
    numbers = ColumnTransformer([("price", StandardScaler(), ["price"])], remainder="passthrough").set_output(transform="pandas")
    pipeline = make_pipeline(numbers, PBODLClassifier(categorical_features=["remainder__ad"]))
    assert cross_val_score(pipeline, frame, y, cv=TimeSeriesSplit(3), scoring="roc_auc").min() > 0.75
    assert pipeline.fit(frame, y).predict(frame).shape == (1500,)
    calibrated = CalibratedClassifierCV(PBODLClassifier(), cv=TimeSeriesSplit(3)).fit(frame, y)
    assert log_loss(y, calibrated.predict_proba(frame)) < 0.6
    search = GridSearchCV(PBODLClassifier(), {"dim": [2, 8], "model": ["pair-fm", "adpredictor"]}, cv=TimeSeriesSplit(2)).fit(
        frame, y
    )
    assert set(search.best_params_) == {"dim", "model"}
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()
