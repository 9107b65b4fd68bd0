"""The estimators, against loops over impressions, and against Open Bandit Pipeline where it is installed."""

import csv
from importlib.resources import files

import numpy as np
import pytest

from pbodl.experiments.decisions.off_policy import (
    LoggedRows,
    doubly_robust,
    effective_size,
    ips,
    logged_value,
    snips,
    support_warnings,
)
from tests.oracles import off_policy as ref

ACTIONS = 4


def made(requests: int, slots: int, seed: int) -> tuple[list[dict], LoggedRows]:
    """Random impressions, for the oracle and for the estimators."""
    draws = np.random.default_rng(seed)
    rows = []
    for request in range(requests):
        for slot in range(slots):
            logged, policy = draws.dirichlet(np.full(ACTIONS, 9.0)), draws.dirichlet(np.full(ACTIONS, 9.0))
            action, rewards = int(draws.choice(ACTIONS, p=logged)), draws.random(ACTIONS)
            one = {"request": request, "slot": slot, "action": action, "policy": policy.tolist(), "rewards": rewards.tolist()}
            one |= {"propensity": logged[action], "target": policy[action], "reward": float(draws.random() < rewards[action])}
            rows.append(one)
    return rows, of_rows(rows)


def of_rows(rows: list[dict]) -> LoggedRows:
    columns = {name: np.array([row[name] for row in rows]) for name in ("reward", "propensity", "target", "request", "slot")}
    predicted = np.array([row["rewards"][row["action"]] for row in rows])
    baseline = np.array([np.dot(row["policy"], row["rewards"]) for row in rows])
    return LoggedRows(
        columns["reward"], columns["propensity"], columns["target"], predicted, baseline, columns["request"], columns["slot"]
    )


@pytest.mark.parametrize("slots", [1, 3])
def test_the_estimates_are_those_of_their_definitions(slots):
    rows, comp = made(80, slots, slots)
    for estimator, naive in ((ips, ref.ips), (snips, ref.snips), (doubly_robust, ref.doubly_robust)):
        found = estimator(comp)
        assert found.value == pytest.approx(naive(rows, 80), abs=1e-12)
        assert found.error == pytest.approx(ref.jackknife(naive, rows), rel=0.05)
        assert found.low < found.value < found.high
        assert found.high - found.low == pytest.approx(2.0 * 1.959963984540054 * found.error, rel=0.1)


def test_the_logged_policy_is_worth_what_it_earned():
    rows, comp = made(50, 2, 7)
    same = comp._replace(target=comp.propensity)
    assert logged_value(comp).value == pytest.approx(sum(row["reward"] for row in rows) / 50)
    assert ips(same).value == pytest.approx(logged_value(comp).value)
    assert effective_size(same.weight) == pytest.approx(100.0)
    assert not [told for told in support_warnings(same, np.zeros(100)) if "support" in told]


def test_missing_support_is_told():
    _, comp = made(400, 1, 3)
    assert "never shows" in support_warnings(comp, np.full(400, 0.25))[0]
    thin = comp._replace(target=comp.propensity * 0.5)
    assert "thin" in support_warnings(thin, np.zeros(400))[0]
    one = np.where(np.arange(400) == 0, 1.0, 1e-9)
    assert "a few impressions decide" in support_warnings(comp._replace(target=one, propensity=one**0), np.zeros(400))[-1]


def test_intervals_of_skewed_logs_hold_the_truth():
    """Few clicks, weighted by up to 2 n: an ordinary interval would be too short."""
    draws, logs, n, k, share = np.random.default_rng(11), 400, 3000, 6, 0.5
    held, rounds = dict.fromkeys((ips, snips, doubly_robust), 0), np.arange(n)
    for _ in range(logs):
        truth = 1.0 / (1.0 + np.exp(3.0 - 0.7 * draws.standard_normal((n, k))))
        old, new = (truth * np.exp(spread * draws.standard_normal((n, k))) for spread in (0.7, 0.4))
        best, target = old.argmax(axis=1), new.argmax(axis=1)
        shown = np.where(draws.random(n) < share, draws.integers(0, k, n), best)
        click = (draws.random(n) < truth[rounds, shown]).astype(np.float64)
        propensity = (1.0 - share) * (shown == best) + share / k
        chance = (shown == target).astype(np.float64)
        comp = LoggedRows(click, propensity, chance, new[rounds, shown], new[rounds, target], rounds, np.zeros(n, np.int64))
        value = truth[rounds, target].mean()
        for estimator in held:
            found = estimator(comp)
            held[estimator] += bool(found.low <= value <= found.high)
    for count in held.values():
        assert abs(count / logs - 0.95) < 4.0 * np.sqrt(0.95 * 0.05 / logs)


def bundled_sample(campaign: str) -> dict[str, np.ndarray]:
    """The sample of the Open Bandit Dataset that comes with the library; its own reader needs an old version of pandas."""
    file = files("obp").joinpath("dataset", "obd", "random", campaign, f"{campaign}.csv")
    with file.open(encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    return {
        "action": np.array([int(row["item_id"]) for row in rows]),
        "position": np.array([int(row["position"]) - 1 for row in rows]),
        "reward": np.array([float(row["click"]) for row in rows]),
        "pscore": np.array([float(row["propensity_score"]) for row in rows]),
    }


@pytest.mark.parametrize("campaign", ["all", "men"])
def test_open_bandit_pipeline_agrees_on_its_own_sample(campaign):
    pytest.importorskip("obp.ope", exc_type=ImportError)
    from obp.ope import DoublyRobust, InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting

    log = bundled_sample(campaign)
    n, taken, places = len(log["action"]), log["action"], log["position"]
    draws, actions, rounds = np.random.default_rng(1), int(taken.max()) + 1, np.arange(n)
    policy = draws.dirichlet(np.ones(actions), (n, 3)).transpose(0, 2, 1)  # rounds, actions, positions
    rewards = draws.random((n, actions, 3)) * 0.01
    comp = LoggedRows(
        log["reward"], log["pscore"], policy[rounds, taken, places], rewards[rounds, taken, places],
        (policy * rewards).sum(axis=1)[rounds, places], rounds, np.zeros(n, np.int64),
    )  # fmt: skip
    given = {**log, "action_dist": policy}
    assert n == 10_000
    assert ips(comp).value == pytest.approx(InverseProbabilityWeighting().estimate_policy_value(**given), abs=1e-9)
    normalised = SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**given)
    assert snips(comp).value == pytest.approx(normalised, abs=1e-9)
    robust = DoublyRobust().estimate_policy_value(**given, estimated_rewards_by_reg_model=rewards)
    assert doubly_robust(comp).value == pytest.approx(robust, abs=1e-9)
