"""The batch models: their kernels against their JAX networks, when they fit, what they keep, and that they learn."""

from typing import Any

import numpy as np
import pytest

from pbodl.baselines import BatchDNN, BatchFM
from pbodl.baselines.batch_model import BatchModel
from pbodl.baselines.minibatch import MinibatchLayout
from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.training.stream_metrics import StreamMetrics
from tests.click_log import PLAIN, RICH, START, STEP, click_log

LOG = click_log(120)
QUICK: dict[str, Any] = {"dim": 3, "batch_size": 16, "max_epochs": 2, "learning_rate": 0.1, "initial_spread": 0.3}
MODELS = {
    "fm": lambda schema, **options: BatchFM(schema, **(QUICK | options)),
    "concat": lambda schema, **options: BatchDNN(schema, hidden=(5, 4), **(QUICK | options)),
    "sum": lambda schema, **options: BatchDNN(schema, hidden=(5,), embedding="sum", **(QUICK | options)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_kernel_is_the_network_that_was_trained(name: str) -> None:
    # RICH has lists, numbers and missing values: all of the layout is in use.
    model = MODELS[name](RICH)
    model.learn(LOG)
    model.fit()
    history = model.buffer.history()
    layout = MinibatchLayout(history, model.table.field, len(RICH.fields), len(LOG))
    distinct, places, values, _, _ = layout.minibatch(np.arange(len(LOG)), beyond=10**6)
    rows = np.concatenate([model.table.column("weights"), np.zeros((1, model._width()), np.float32)])
    vectors = rows[np.minimum(distinct, model.table.size)][places] * values[..., None]
    ref = np.asarray(model._forward(layout.slot_fields)(vectors, model.dense))
    comp = model._logits(model.table.column("weights"), model.dense, history)
    assert np.ptp(ref) > 0.1
    np.testing.assert_allclose(comp, ref, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_it_predicts_with_the_last_fit(name: str) -> None:
    model = MODELS[name](PLAIN)
    assert (model.learn(LOG[:60]) == 0.5).all()
    fitted = model.fit()
    assert fitted.rows == 60
    assert 0 < fitted.log_loss < 2
    after = model.predict(LOG)
    np.testing.assert_array_equal(model.learn(LOG[60:]), after.ctr[60:])
    np.testing.assert_array_equal(model.predict(LOG), after)
    np.testing.assert_allclose(after.ctr, 1 / (1 + np.exp(-after.mean)))
    assert not after.variance.any()
    counters = {"rows_learned": 120, "features": model.table.size, "buffered": 120, "fits": 1, "epochs": fitted.epochs}
    assert model.metrics() == counters


@pytest.mark.parametrize("name", MODELS)
def test_features_that_no_fit_has_seen_count_for_nothing(name: str) -> None:
    model = MODELS[name](PLAIN)
    model.learn(LOG)
    model.fit()
    new = {"user": "new", "ad": "new", "site": "new"}
    never = model.predict(new)
    model.learn([{**new, "click": 1}] * 3)
    np.testing.assert_array_equal(model.predict(new), never)
    if name == "fm":
        assert never.mean[0] == model.dense["bias"][0]


def fits_at(model: BatchModel, rows: list[dict[str, Any]]) -> list[int]:
    """After how many rows the model was fitted; checked to be the same however the rows come."""
    moments: list[int] = []
    model.fit = lambda: moments.append(int(model.table.count.sum()) // 3)  # type: ignore[assignment, return-value]
    model.learn(rows)
    return moments


def test_it_fits_when_a_number_of_rows_is_full() -> None:
    assert fits_at(MODELS["fm"](PLAIN, retrain_every="50 rows"), LOG) == [50, 100]
    assert fits_at(MODELS["fm"](PLAIN, retrain_every="40 rows"), LOG) == [40, 80, 120]


def test_it_fits_when_a_period_begins() -> None:
    timed = Schema(label="click", time="time", fields=PLAIN.fields)
    ref = [i for i in range(1, 120) if (START + STEP * i) // 3600 > (START + STEP * (i - 1)) // 3600]
    assert len(ref) == 2
    assert fits_at(MODELS["fm"](timed, retrain_every="1h"), LOG) == ref


def test_the_window_bounds_the_history() -> None:
    timed = Schema(label="click", time="time", fields=PLAIN.fields)
    for window, kept in (("30 rows", 30), ("10m", 11), (None, 120)):
        model = MODELS["fm"](timed, window=window)
        model.learn(LOG)
        assert model.metrics()["buffered"] == kept
        assert model.state()["buffer.times"][0] == LOG[-kept]["time"]
        assert model.fit().rows == kept


def test_a_fit_depends_on_the_history_alone() -> None:
    ref, comp = MODELS["concat"](PLAIN), MODELS["concat"](PLAIN)
    ref.learn(LOG)
    ref.fit()
    comp.learn(LOG[:70])
    comp.fit()
    comp.learn(LOG[70:])
    comp.fit()
    np.testing.assert_array_equal(comp.predict(LOG), ref.predict(LOG))


def test_nothing_to_fit_to() -> None:
    with pytest.raises(InputError, match="no history to fit to"):
        BatchFM(PLAIN).fit()


def test_few_rows_are_enough() -> None:
    # Too few for a held-out part: all epochs are run.
    model = MODELS["fm"](PLAIN)
    model.learn(LOG[:4])
    fitted = model.fit()
    assert fitted.epochs == 2
    assert np.isnan(fitted.log_loss)


@pytest.mark.parametrize("make", [lambda schema: BatchFM(schema), lambda schema: BatchDNN(schema, dim=8, hidden=(16,))])
def test_they_learn_a_small_world(make) -> None:
    world = World(rows=40_000, days=4)
    metrics, constant = StreamMetrics(), StreamMetrics()
    model = make(world.schema)
    batches = list(world.batches(30_000))
    model.learn(batches[0])
    model.fit()
    clicks = batches[1]["click"].to_numpy().astype(np.float32)
    metrics.add(model.predict(batches[1]).ctr, clicks)
    constant.add(np.full(len(clicks), batches[0]["click"].to_numpy().mean()), clicks)
    assert metrics.figures().log_loss < constant.figures().log_loss - 0.02
    assert metrics.figures().auc > 0.68


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; it must be 'adagrad' or 'adam'"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"window": "a week"}, "window"),
        ({"window": "7d"}, "time column"),
        ({"retrain_every": "1d"}, "time column"),
        ({"l2": -1.0}, "l2"),
        ({"hidden": ()}, "hidden has 0 layers"),
        ({"hidden": 3}, "hidden is 3"),
        ({"hidden": (8, 0)}, "a hidden layer's size is 0"),
        ({"embedding": "mean"}, "embedding is 'mean'; it must be 'concat' or 'sum'"),
    ],
)
def test_bad_parameters_are_refused_in_prose(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        BatchDNN(PLAIN, **options)


def test_a_field_of_its_own_for_each_embedding() -> None:
    # Side by side, the same value in two fields means two things.
    schema = Schema(label="click", fields=[Field("a"), Field("b")])
    model = BatchDNN(schema, dim=2, hidden=(8,), batch_size=8, max_epochs=10, learning_rate=0.2, initial_spread=0.5)
    model.learn([{"a": a, "b": b, "click": int(a > b)} for _ in range(40) for a in range(2) for b in range(2)])
    model.fit()
    up, down = model.predict([{"a": 1, "b": 0}, {"a": 0, "b": 1}]).ctr
    assert up > 0.8
    assert down < 0.2
