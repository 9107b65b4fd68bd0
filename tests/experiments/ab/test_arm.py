"""An arm at work: what it may know and when, how it explores, and that the best possible arm has no regret."""

import numpy as np
import pytest

from pbodl.experiments.ab import arm as ab_arm
from pbodl.experiments.ab.ad_features import AdFeatures, batch_of
from pbodl.experiments.ab.ad_market import DAY
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.arm import DELAY, WINDOW, ArmAtWork, burn_in, labels, served, with_candidates
from pbodl.experiments.ab.arm_figures import COLUMNS, contributions
from pbodl.experiments.ab.lineup import Arm
from pbodl.models.contract import Prediction
from pbodl.serving.scoring.predictor import Predictor

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


@pytest.mark.parametrize("kind", ["fm-mlp", "pair-fm"])
def test_arms_answer_as_the_server_does(setup, kind):
    world, features, _ = setup
    arm = at_work(setup, 900.0, kind)
    requests, candidates = with_candidates(world, world.requests(1).part(slice(0, 20)))
    rows = features.with_ads(np.repeat(features.of_requests(requests), np.diff(candidates.indptr), axis=0), candidates.ad)
    predictor, indptr = Predictor.of(arm.model), candidates.indptr
    ref = arm.model.predict(batch_of(rows))
    seeds = np.random.default_rng(0).integers(0, 2**53, len(requests)).astype(np.uint64)
    greedy, predicted = served(predictor, rows, indptr, exploring("greedy"), seeds)
    np.testing.assert_allclose(greedy, ref.ctr, rtol=1e-4)
    np.testing.assert_array_equal(predicted, greedy)
    drawn, predicted = served(predictor, rows, indptr, exploring("thompson"), seeds)
    np.testing.assert_array_equal(predicted, greedy)
    own = slice(indptr[3], indptr[4])
    np.testing.assert_allclose(drawn[own], arm.model.sample(batch_of(rows[own]), 1, int(seeds[3]))[0], rtol=1e-3)
    upper, _ = served(predictor, rows, indptr, exploring("ucb", 0.4), seeds)
    assert (upper >= greedy * (1 - 1e-6)).mean() > 0.9


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


def test_a_user_keeps_a_draw_for_as_long_as_the_arm_says(setup):
    requests = setup[0].requests(1)
    kept, fresh = (
        ArmAtWork(Arm("test", "pair-fm", 900.0, "thompson", keep=keep), *setup, "ecpm")._seeds(requests) for keep in (HOUR, 0.0)
    )
    assert len(np.unique(fresh)) == len(requests)
    spell = requests.user + len(setup[0].users.age) * (requests.time // HOUR).astype(np.int64)
    _, which = np.unique(spell, return_inverse=True)
    assert which.max() + 1 == len(np.unique(kept)) < len(requests)
    first = np.full(which.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, which, np.arange(len(requests)))
    np.testing.assert_array_equal(kept, kept[first[which]])
