"""The outcomes of a test's arms as plain data: figures, lifts over a base, comparisons, and figures by day."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pbodl.experiments.ab.ab_arms import ArmOutcome
from pbodl.experiments.ab.arm_figures import FIGURES, Estimate, Resampled, resample
from pbodl.experiments.ab.lineup import ABTest

LIFTS = ("ctr", "true_ctr", "cpm", "value", "new_ctr", "new_true_ctr")
DIFFERENCES = ("regret", "new_regret", "new_share")


def summary(test: ABTest, outcomes: Sequence[Sequence[ArmOutcome]]) -> dict[str, Any]:
    """The summary of a test; `outcomes` are by seed, then by arm."""
    arms = [resample([world[arm].users for world in outcomes], seed=arm) for arm in range(len(test.arms))]
    lines = []
    for number, arm in enumerate(test.arms):
        days = np.sum([world[number].days for world in outcomes], axis=0)
        lines.append({
            "name": arm.name, "kind": arm.kind, "every": arm.every, "policy": arm.policy, "spread": arm.spread,
            "published": arm.published,
            "impressions": int(arms[number].total[0]), "clicks": int(arms[number].total[1]),
            "figures": {name: _plain(arms[number].figure(name)) for name in FIGURES},
            "lifts": _lifts(arms[number], arms[0], ("ctr", "true_ctr", "cpm", "value", "best")),
            "new_lifts": _lifts(arms[number], arms[test.new_ads_base], ("new_ctr", "new_true_ctr")),
            "seeds": [_by_seed(world, number, test) for world in outcomes],
            "days": {name: [_number(value) for value in FIGURES[name](days)] for name in FIGURES},
            "seconds": [world[number].facts.get("seconds") for world in outcomes],
        })  # fmt: skip
    return {
        "arms": lines,
        "base": test.arms[0].name,
        "new_ads_base": test.arms[test.new_ads_base].name,
        "comparisons": [_comparison(test, arms, arm, reference) for arm, reference in test.pairs],
    }


def _comparison(test: ABTest, arms: Sequence[Resampled], arm: int, reference: int) -> dict[str, Any]:
    return {
        "arm": test.arms[arm].name,
        "reference": test.arms[reference].name,
        "lifts": _lifts(arms[arm], arms[reference], LIFTS),
        "differences": {name: _plain(arms[arm].difference(name, arms[reference])) for name in DIFFERENCES},
    }


def _lifts(arm: Resampled, base: Resampled, names: Sequence[str]) -> dict[str, Any]:
    if arm is base:
        return {name: {"value": 0.0, "low": 0.0, "high": 0.0} for name in names}
    return {name: _plain(arm.lift(name, base)) for name in names}


def _by_seed(world: Sequence[ArmOutcome], number: int, test: ABTest) -> dict[str, float | None]:
    """The lifts and the regret in one world, which show how much they differ between worlds."""
    own, base, new_base = (world[arm].users.sum(axis=0) for arm in (number, 0, test.new_ads_base))
    lifts = {name: FIGURES[name](own) / FIGURES[name](base) - 1.0 for name in ("ctr", "true_ctr", "value")}
    lifts["new_true_ctr"] = FIGURES["new_true_ctr"](own) / FIGURES["new_true_ctr"](new_base) - 1.0
    return {name: _number(value) for name, value in {**lifts, "regret": FIGURES["regret"](own)}.items()}


def _plain(estimate: Estimate) -> dict[str, float | None]:
    return {name: _number(value) for name, value in estimate._asdict().items()}


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
