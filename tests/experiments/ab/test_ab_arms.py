"""The split of the traffic, the independence and the repeatability of arms, and the A/A test."""

import itertools

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.experiments.ab.ab_arms import Setting, arm_of, run_arms
from pbodl.experiments.ab.arm_figures import COLUMNS, FIGURES, resample
from pbodl.experiments.ab.lineup import QUALITY, REFERENCE, TESTS, ABTest, Arm

TINY = Setting(days=2, requests_per_day=1200, ads=40, burn_in=1)
LEARNING = ABTest("learning", (Arm("a", "fm-mlp", 900.0, "thompson"), Arm("b", "ftrl", 5.0)), 0, ())
NEVER = ABTest("never updated", (Arm("a", "ftrl", 1e9),), 0, ())


def test_users_are_split_evenly_and_for_ever():
    users = np.arange(80_000)
    arms = arm_of(users, "tables", 8)
    assert np.bincount(arms, minlength=8) == pytest.approx(10_000, rel=0.05)
    np.testing.assert_array_equal(arms[100:200], arm_of(users[100:200], "tables", 8))
    # Another test splits them anew: knowing the one arm says nothing of the other.
    other = arm_of(users, "ablation", 8)
    together = np.bincount(8 * arms + other, minlength=64)
    assert together == pytest.approx(1250, rel=0.15)


def test_arms_are_independent_and_repeatable():
    # Scoring that was just compiled may round differently from scoring out of the cache, so it is all compiled first.
    run_arms(LEARNING, [0, 1], 0, TINY._replace(days=1))
    both = run_arms(LEARNING, [0, 1], 0, TINY)
    for arm in (0, 1):
        (alone,) = run_arms(LEARNING, [arm], 0, TINY)
        np.testing.assert_array_equal(alone.users, both[arm].users)
        np.testing.assert_array_equal(alone.days, both[arm].days)
    impressions = sum(outcome.users[:, 0].sum() for outcome in both)
    assert impressions == TINY.days * TINY.requests_per_day
    other = run_arms(LEARNING, [1], 1, TINY)[0]
    assert other.users.sum(axis=0)[1] != both[1].users.sum(axis=0)[1]


def test_sums_by_user_and_by_day_agree():
    (outcome,) = run_arms(LEARNING, [1], 0, TINY)
    np.testing.assert_allclose(outcome.users.sum(axis=0), outcome.days.sum(axis=0))
    total = dict(zip(COLUMNS, outcome.users.sum(axis=0), strict=True))
    assert total["clicks"] <= total["impressions"] and total["value"] <= total["best"]
    assert total["clicks"] == pytest.approx(total["chances"], abs=5 * np.sqrt(total["chances"]))


def test_with_shared_traffic_every_arm_learns_all():
    own = run_arms(LEARNING, [0, 1], 0, TINY)
    shared = run_arms(LEARNING, [0, 1], 0, TINY._replace(share=True))
    learned = [[outcome.facts["counters"]["rows_learned"] for outcome in outcomes] for outcomes in (own, shared)]
    for arm in (0, 1):
        more = learned[1][arm] - learned[0][arm]
        others = own[1 - arm].users[:, 0].sum()
        # All but what was under way at the last update.
        assert others > 500 and more == pytest.approx(others, abs=60)


def test_the_same_arm_twice_differs_as_its_interval_says():
    (outcome,) = run_arms(NEVER, [0], 0, TINY._replace(requests_per_day=4000))
    users = np.arange(len(outcome.users))
    lifts = []
    for split in range(24):
        arms = arm_of(users, f"split {split}", 2)
        a, b = (resample([outcome.users[arms == arm]], seed=2 * split + arm) for arm in (0, 1))
        lifts.append([b.lift(name, a) for name in ("ctr", "cpm", "value")])
    value, low, high = np.moveaxis(np.array(lifts), 2, 0)
    assert (((low < 0.0) & (high > 0.0)).mean(axis=0) >= 0.8).all()
    claimed = (high - low).mean(axis=0) / (2 * 1.96)
    assert value.std(axis=0) / claimed == pytest.approx(1.0, abs=0.4)


def test_intervals_are_those_of_the_users():
    rng = np.random.default_rng(0)
    users = np.zeros((4000, len(COLUMNS)))
    users[:, 0] = 1 + rng.poisson(3, 4000)
    users[:, 1] = rng.binomial(users[:, 0].astype(int), rng.beta(2, 8, 4000))
    estimate = resample([users[:1000], users[1000:]], 0).figure("ctr")
    ratio = users[:, 1].sum() / users[:, 0].sum()
    spread = np.sqrt(np.square(users[:, 1] - ratio * users[:, 0]).sum()) / users[:, 0].sum()
    assert estimate.value == pytest.approx(ratio)
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    assert np.isnan(FIGURES["new_ctr"](users.sum(axis=0)))


def test_every_arm_of_the_experiment_can_be_built():
    for test in itertools.chain(*TESTS.values()):
        assert len({arm.name for arm in test.arms}) == len(test.arms)
        for arm in test.arms:
            if arm.kind == REFERENCE:
                continue
            model = arm.build(seed=7)
            assert model.kind == arm.kind and getattr(model.spec, "seed", 7) == 7
            assert getattr(model.spec, "retrain_every", None) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"days": 0}, "days is 0"),
        ({"burn_in": 0}, "burn-in"),
        ({"criterion": "x"}, "ecpm, ctr"),
        ({"market": "x"}, "standard, quality"),
    ],
)
def test_settings_are_checked(change, words):
    with pytest.raises(InputError, match=words):
        Setting(**change).check()


def test_by_default_every_ad_gets_its_impressions():
    assert Setting().settled(8)[1:3] == (400 * 60 * 8, 60)
    assert Setting(market="quality").settled(4)[1:3] == (400 * 40 * 4, 40)
    assert Setting(requests_per_day=100, ads=20).settled(8)[1:3] == (100, 20)


@pytest.mark.slow
def test_all_arms_of_the_quality_market_run():
    setting = Setting(days=1, burn_in=1, requests_per_day=4_000, criterion="ctr", market="quality")
    regrets = [
        float(FIGURES["regret"](outcome.users.sum(axis=0))) for outcome in run_arms(QUALITY, range(len(QUALITY.arms)), 77, setting)
    ]
    assert all(0.0 <= regret < 0.9 for regret in regrets)
