"""Figures by period, on new ads and by age, against plain grouping of the rows."""

import json

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from pbodl.data.convert import from_data
from pbodl.models.clock import Duration
from pbodl.training.novelty import AGE_NAMES, AGES, DAY, FirstSeen
from pbodl.training.tracker import POINTS, Tracker
from tests.click_log import PLAIN, RICH, click_log, without

HOURS_6 = Duration(6 * 3600.0, False)
LOG = click_log(4000)  # a row a minute: almost three days


def predictions(n: int) -> np.ndarray:
    return np.random.default_rng(5).uniform(0.05, 0.6, n)


def tracked(period: Duration, sizes: int = 333, schema=RICH, log=LOG, weights=None) -> Tracker:
    tracker = Tracker(schema, period)
    predicted = predictions(len(log))
    weights = np.ones(len(log)) if weights is None else weights
    for start in range(0, len(log), sizes):
        piece = slice(start, start + sizes)
        tracker.add(from_data(schema, log[piece], True), predicted[piece], weights[piece])
    return tracker


def assert_same(comp, ref) -> None:
    """The same figures; sums may have been added up in another order."""
    assert json.loads(json.dumps(comp)).keys() == ref.keys()
    for name, value in ref.items():
        if isinstance(value, list):
            assert len(comp[name]) == len(value)
            for one, other in zip(comp[name], value, strict=True):
                assert_same(one, other)
        elif isinstance(value, dict):
            assert_same(comp[name], value)
        else:
            assert comp[name] == (pytest.approx(value) if isinstance(value, float) else value), name


def test_periods_in_time():
    days = tracked(HOURS_6).summary()["days"]
    times = np.array([row["time"] for row in LOG])
    clicks, predicted = np.array([row["click"] for row in LOG]), predictions(len(LOG))
    starts = np.floor(times / HOURS_6.amount) * HOURS_6.amount
    assert [day["start"] for day in days] == sorted(set(starts))
    for day in days:
        mine = starts == day["start"]
        assert day["rows"] == mine.sum()
        assert day["auc"] == pytest.approx(roc_auc_score(clicks[mine], predicted[mine]))
        assert day["log_loss"] == pytest.approx(log_loss(clicks[mine], predicted[mine]))


def test_new_ads_and_ages():
    summary = tracked(HOURS_6).summary()
    ages = FirstSeen(RICH).ages(from_data(RICH, LOG, True))
    clicks, predicted = np.array([row["click"] for row in LOG]), predictions(len(LOG))
    assert summary["new_ads"]["rows"] == (ages < DAY).sum() == sum(day["new_ads"]["rows"] for day in summary["days"])
    groups = np.searchsorted(AGES, ages, side="right")
    for group in summary["ages"]:
        mine = groups == AGE_NAMES.index(group["age"])
        assert group["rows"] == mine.sum()
        assert group["log_loss"] == pytest.approx(log_loss(clicks[mine], predicted[mine], labels=[0, 1]))
    assert sum(group["rows"] for group in summary["ages"]) == np.isfinite(ages).sum() > 0


def test_periods_in_rows():
    tracker = tracked(Duration(1000.0, True), schema=PLAIN, log=without(LOG, "time"))
    assert [(day["start"], day["rows"]) for day in tracker.summary()["days"]] == [(1000.0 * n, 1000) for n in range(4)]
    assert tracker.summary()["ages"] == []
    assert sum(point["rows"] for point in tracker.curve()) == 4000
    assert len(tracker.curve()) == 4 * POINTS


def test_the_curve_is_made_of_short_stretches():
    curve = tracked(HOURS_6).curve()
    times = np.array([row["time"] for row in LOG])
    step = HOURS_6.amount / POINTS
    assert [point["start"] for point in curve] == pytest.approx(sorted(set(np.floor(times / step) * step)))
    assert sum(point["rows"] for point in curve) == len(LOG)


def test_the_size_of_batches_does_not_matter():
    ref = tracked(HOURS_6, sizes=4000)
    for size in (1, 97):
        log = LOG[:600]
        assert_same(tracked(HOURS_6, size, log=log).summary(), tracked(HOURS_6, 600, log=log).summary())
    assert_same(tracked(HOURS_6).summary(), ref.summary())


@pytest.mark.parametrize("period", [HOURS_6, Duration(700.0, True)])
def test_resumed_is_never_stopped(period):
    predicted, ones = predictions(len(LOG)), np.ones(len(LOG))
    ref, first, comp = (Tracker(RICH, period) for _ in range(3))
    pieces = [slice(start, start + 250) for start in range(0, len(LOG), 250)]
    for place, piece in enumerate(pieces):
        batch = from_data(RICH, LOG[piece], True)
        ref.add(batch, predicted[piece], ones[piece])
        if place < 7:
            first.add(batch, predicted[piece], ones[piece])
        if place == 6:
            facts, arrays = first.state()
            comp.load_state(json.loads(json.dumps(facts)), arrays)
        if place > 6:
            comp.add(batch, predicted[piece], ones[piece])
    assert comp.summary() == ref.summary()
    assert comp.curve() == ref.curve()
    assert comp.reliability() == ref.reliability()


def test_rows_back_in_time_count_to_the_period_that_was_reached():
    log = [{**row, "time": row["time"] - (DAY if place == 3000 else 0.0)} for place, row in enumerate(LOG)]
    days = tracked(HOURS_6, log=log).summary()["days"]
    assert [day["rows"] for day in days] == [day["rows"] for day in tracked(HOURS_6).summary()["days"]]


def test_rows_count_by_what_they_stand_for():
    weights = np.where([row["click"] for row in LOG], 1.0, 4.0)
    summary = tracked(HOURS_6, weights=weights).summary()
    clicks = np.array([row["click"] for row in LOG])
    assert summary["ctr"] == pytest.approx(np.average(clicks, weights=weights))
    assert summary["log_loss"] == pytest.approx(log_loss(clicks, predictions(len(LOG)), sample_weight=weights))


def test_reliability_adds_up():
    groups = tracked(HOURS_6).reliability()
    assert sum(group["weight"] for group in groups) == len(LOG)
    assert sum(group["weight"] * group["observed"] for group in groups) == pytest.approx(sum(row["click"] for row in LOG))
    assert [group["predicted"] for group in groups] == sorted(group["predicted"] for group in groups)
