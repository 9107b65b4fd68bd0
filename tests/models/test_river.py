"""River as a client: its own progressive validation runs on our models."""

import itertools
from typing import Any

import numpy as np
import pytest
from river import base, compose, evaluate, metrics

import pbodl
from tests.click_log import PLAIN, RICH, click_log, without
from tests.contract import FACTORIES, Factory, assert_same_state

LOG = click_log(150)


def dataset(rows: list[dict[str, Any]]) -> list[tuple[dict[Any, Any], bool]]:
    """Pairs of features and outcome, as River's datasets give them."""
    return [(x, bool(row["click"])) for x, row in zip(without(rows, "click"), rows, strict=True)]


@pytest.mark.parametrize("kind", FACTORIES)
def test_progressive_validation(kind: str) -> None:
    make: Factory = FACTORIES[kind]
    comp, ref = make(RICH), make(RICH)
    loss = evaluate.progressive_val_score(dataset(LOG), comp, metrics.LogLoss())
    clicks = np.array([row["click"] for row in LOG])
    p = np.empty(len(LOG))
    for i, row in enumerate(LOG):
        p[i] = ref.predict(row).ctr[0]
        ref.learn(row)
    assert loss.get() == pytest.approx(-np.mean(np.log(np.where(clicks == 1, p, 1 - p))), rel=1e-9)
    assert comp.rows_learned == len(LOG)
    assert_same_state(comp, ref)


@pytest.mark.parametrize("kind", FACTORIES)
def test_auc(kind: str) -> None:
    model = FACTORIES[kind](PLAIN)
    auc = evaluate.progressive_val_score(dataset(LOG), model, metrics.ROCAUC(n_thresholds=100))
    assert 0.0 < auc.get() < 1.0


def test_metrics_of_labels() -> None:
    model = pbodl.FMMLP(PLAIN, dim=2, hidden=(3,))
    accuracy = evaluate.progressive_val_score(dataset(LOG), model, metrics.Accuracy())
    p = pbodl.FMMLP(PLAIN, dim=2, hidden=(3,)).learn(LOG)
    assert accuracy.get() == np.mean((p > 0.5) == [row["click"] for row in LOG])


def test_several_metrics_and_checkpoints() -> None:
    both = metrics.LogLoss() + metrics.ROCAUC()
    steps = evaluate.iter_progressive_val_score(dataset(LOG), pbodl.SparseMLP(PLAIN, dim=2, hidden=()), both, step=50)
    assert [step["Step"] for step in steps] == [50, 100, 150]


def test_late_labels() -> None:
    # River holds each label back for 20 rows.
    numbered = [({**x, "moment": i}, y) for i, (x, y) in enumerate(dataset(LOG))]
    model = pbodl.FMMLP(PLAIN, dim=2, hidden=(3,))
    loss = evaluate.progressive_val_score(numbered, model, metrics.LogLoss(), moment="moment", delay=20)
    assert np.isfinite(loss.get())
    assert model.rows_learned == len(LOG)


def test_probabilities_come_by_outcome() -> None:
    model = pbodl.FMMLP(PLAIN, dim=2, hidden=(3,))
    for x, y in itertools.islice(dataset(LOG), 20):
        chances = model.predict_proba_one(x)
        assert set(chances) == {False, True}
        assert sum(chances.values()) == pytest.approx(1.0)
        model.learn_one(x, y)


def test_our_models_are_rivers_classifiers() -> None:
    for make in FACTORIES.values():
        assert isinstance(make(PLAIN), base.Classifier)


def test_a_pipeline_may_end_in_our_model() -> None:
    pipeline = compose.Pipeline(compose.Select("user", "ad", "site"), pbodl.FMMLP(PLAIN, dim=2, hidden=(3,)))
    loss = evaluate.progressive_val_score(dataset(LOG), pipeline, metrics.LogLoss())
    ref = evaluate.progressive_val_score(dataset(LOG), pbodl.FMMLP(PLAIN, dim=2, hidden=(3,)), metrics.LogLoss())
    assert loss.get() == ref.get()
