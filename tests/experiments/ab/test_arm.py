"""An arm at work: what it may know and when, how it explores, and that the best possible arm has no regret."""

import numpy as np
import pytest
from scipy.stats import norm

from pbodl.experiments.ab import arm as ab_arm
from pbodl.experiments.ab.ad_features import AdFeatures, batch_of
from pbodl.experiments.ab.ad_market import DAY
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.arm import DELAY, WINDOW, ArmAtWork, burn_in, labels, scores
from pbodl.experiments.ab.arm_figures import COLUMNS, contributions
from pbodl.experiments.ab.lineup import Arm
from pbodl.models.contract import Prediction

HOUR = 3600.0


@pytest.fixture(scope="module")
def setup():
    world = AdWorld(1, 3, 2000, 60)
    features = AdFeatures(world)
    return world, features, burn_in(world, features, 1)


def at_work(setup, every, kind="ftrl", policy="greedy", criterion="ecpm"):
    world, features, log = setup
    return ArmAtWork(Arm("test", kind, every, policy), world, features, log, criterion)


def exploring(policy, spread=1.0):
    return Arm("test", "fm-mlp", 900.0, policy, spread)


def serve_day(arm, requests):
    shown = []
    for part in arm.serve(requests):
        arm.receive(part.feedback)
        shown.append(part)
    return shown


class Spy:
    """A model that notes when it learned what."""

    def __init__(self, arm):
        self.arm, self.inner, self.learned, self.served = arm, arm.model, [], []

    def learn(self, batch):
        self.learned.append((self.arm.updated, batch.times.copy()))
        return self.inner.learn(batch)

    def predict(self, batch):
        self.served.append((self.arm.updated, self.inner.rows_learned))
        return self.inner.predict(batch)


class Oracle:
    """A model that knows the truth of the candidates last found."""

    def __init__(self, world):
        self.world, self.find = world, world.candidates

    def candidates(self, requests):
        self.last = self.find(requests)
        return self.last

    def predict(self, batch):
        p = self.last.probability
        assert len(batch) == len(p)
        return Prediction(p, p, np.zeros(len(p)))


@pytest.mark.parametrize("every", [5.0, 900.0, 4 * HOUR])
def test_nothing_is_learned_before_it_came_back(setup, every):
    arm = at_work(setup, every)
    arm.model = spy = Spy(arm)
    requests = setup[0].requests(1).part(slice(0, 2000, 4))
    shown = serve_day(arm, requests)
    assert len(spy.learned) > 3
    for now, arrivals in spy.learned:
        assert now % every == 0 and arrivals.max() <= now
    arrivals = np.concatenate([times for _, times in spy.learned])
    times = np.concatenate([part.requests.time for part in shown])
    assert (np.diff(arrivals) >= 0).all()
    np.testing.assert_array_equal(arrivals, times[: len(arrivals)] + WINDOW)
    due = times + WINDOW <= np.floor(times[-1] / every) * every
    assert len(arrivals) == due.sum()


def test_a_model_updated_daily_does_not_see_todays_clicks(setup):
    arm = at_work(setup, DAY)
    arm.model = spy = Spy(arm)
    world = setup[0]
    before = spy.inner.rows_learned
    serve_day(arm, world.requests(1))
    assert {learned for _, learned in spy.served} == {before}
    serve_day(arm, world.requests(2))
    yesterday = world.requests(1).time
    assert spy.inner.rows_learned - before == (yesterday + WINDOW <= 2 * DAY).sum() > 0


def test_late_clicks_are_not_known(setup):
    requests = setup[0].requests(0)
    clicked = np.ones(len(requests), bool)
    found = labels(requests, clicked)
    assert found.mean() == pytest.approx(1 - np.exp(-WINDOW / DELAY), abs=0.01)
    assert not found.all()
    assert not labels(requests, ~clicked).any()


def test_the_burn_in_ends_when_the_test_begins(setup):
    world, _, log = setup
    assert log.feedback.arrival.max() <= DAY
    assert len(log.feedback.click) == (world.requests(0).time + WINDOW <= DAY).sum()
    assert np.isfinite(log.first_shown[world.ads.start == -np.inf]).mean() > 0.9
    assert np.isinf(log.first_shown[world.ads.start > DAY]).all()


@pytest.mark.parametrize("criterion", ["ecpm", "ctr"])
def test_knowing_the_truth_leaves_no_regret(setup, monkeypatch, criterion):
    world = setup[0]
    arm = at_work(setup, DAY, criterion=criterion)
    arm.model = oracle = Oracle(world)
    monkeypatch.setattr(world, "candidates", oracle.candidates)
    requests = world.requests(1).part(slice(0, 200))
    (shown,) = arm.serve(requests)
    np.testing.assert_array_equal(shown.value, shown.best)
    assert (shown.ad == shown.best_ad).all()
    bid = world.ads.bid[shown.ad] if criterion == "ecpm" else 1.0
    np.testing.assert_allclose(shown.value, shown.probability * bid)


def test_regret_is_never_negative_and_new_means_first_shown_today(setup):
    world = setup[0]
    arm = at_work(setup, 900.0, "fm-mlp")
    shown = serve_day(arm, world.requests(1)) + serve_day(arm, world.requests(2))
    sums = np.concatenate([contributions(part, world) for part in shown])
    column = {name: sums[:, place] for place, name in enumerate(COLUMNS)}
    assert (column["best"] >= column["value"]).all() and (column["best"] > column["value"]).any()
    ad = np.concatenate([part.ad for part in shown])
    time = np.concatenate([part.requests.time for part in shown])
    first = setup[2].first_shown.copy()
    for one in np.unique(ad):
        first[one] = min(first[one], time[ad == one].min())
    np.testing.assert_array_equal(column["new"], time - first[ad] < DAY)
    assert 0 < column["new"].sum() < len(ad)


def test_thompson_draws_agree_with_the_prediction_on_average():
    rng = np.random.default_rng(0)
    mean, variance = np.array([-1.5, -1.0, -2.0]), np.array([0.1, 0.5, 1.0])
    predicted = Prediction(norm.cdf(mean / np.sqrt(1 + variance)), mean, variance)
    indptr = np.array([0, 3])
    drawn = np.array([scores(predicted, indptr, exploring("thompson"), rng) for _ in range(20_000)])
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - predicted.ctr) <= 5 * error + 1e-6).all()
    # The least uncertain has nothing beyond what all share.
    assert np.ptp(drawn[:, 0]) == 0.0
    upper = scores(predicted, indptr, exploring("ucb"), rng)
    assert upper[0] == pytest.approx(predicted.ctr[0], rel=1e-6) and (upper[1:] > predicted.ctr[1:]).all()
    assert scores(predicted, indptr, exploring("greedy"), rng) is predicted.ctr


@pytest.mark.parametrize("spread", [0.5, 0.1])
def test_less_spread_explores_less_and_keeps_the_average(spread):
    rng = np.random.default_rng(1)
    mean, variance = np.array([-1.5, -1.0, -2.0]), np.array([0.1, 0.5, 1.0])
    predicted = Prediction(norm.cdf(mean / np.sqrt(1 + variance)), mean, variance)
    indptr = np.array([0, 3])
    full, less = (
        np.array([scores(predicted, indptr, exploring("thompson", part), rng) for _ in range(20_000)]) for part in (1.0, spread)
    )
    error = less.std(axis=0) / np.sqrt(len(less))
    assert (np.abs(less.mean(axis=0) - predicted.ctr) <= 5 * error + 1e-6).all()
    assert (less.std(axis=0)[1:] < 1.2 * spread * full.std(axis=0)[1:]).all()
    upper, higher = (scores(predicted, indptr, exploring("ucb", part), rng) for part in (spread, 1.0))
    assert (predicted.ctr[1:] < upper[1:]).all() and (upper[1:] < higher[1:]).all()


def test_passes_over_the_burn_in_count_every_row_once(setup, monkeypatch):
    log = setup[2]
    variances = {}
    for passes in (1, 4):
        monkeypatch.setitem(ab_arm.PASSES, "fm-mlp", passes)
        model = at_work(setup, 900.0, "fm-mlp").model
        assert model.rows_learned == passes * len(log.feedback.click)
        rows = model.predict(batch_of(log.feedback.keys[:200]))
        variances[passes] = rows.variance.mean(), np.abs(rows.mean).mean()
    # As sure as after one pass, or nearly: rows that counted four times would leave much less variance.
    assert variances[4][0] == pytest.approx(variances[1][0], rel=0.3)
    assert variances[4] != variances[1]


def test_equal_uncertainty_changes_no_order():
    mean = np.array([-1.5, -1.0, -2.0])
    predicted = Prediction(mean, mean, np.full(3, 0.4))
    for policy in ("thompson", "ucb"):
        found = scores(predicted, np.array([0, 3]), exploring(policy), np.random.default_rng(0))
        assert np.argsort(found).tolist() == [2, 0, 1]
