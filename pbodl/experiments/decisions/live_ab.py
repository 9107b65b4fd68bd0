"""`pbodl experiment live-ab`: which model of a live split earns more, from the log of decisions.

The difference between an arm and the first one is estimated from all requests: each adds r/π if it went to the arm, -r/π₁ if it
went to the first one, and 0 otherwise, where r is its reward and π the arm's share of the split. The mean of these terms is the
difference of the arms' values per request. Keys, not requests, are dealt out to arms, so errors come from the spread between keys.

Every figure has two intervals: an ordinary one, for who looks once, at an end that was planned before; and one that may be looked
at any time (`sequential`). Shares that differ from the planned ones are a sign that requests are lost or counted twice, and no
figure of such a test is to be trusted.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from pbodl.errors import InputError
from pbodl.experiments.decisions.decision_reader import DecisionReader
from pbodl.experiments.decisions.off_policy import Z
from pbodl.experiments.decisions.policy_value import REWARDS
from pbodl.experiments.decisions.sequential import ALPHA, clustered_deviation, half_width, shares_factor
from pbodl.training.display import plain_table

MISMATCH = 0.001  # level of the check of the shares


class ArmLog(NamedTuple):
    """The requests of a split."""

    arm: list[str]
    reward: np.ndarray
    unit: np.ndarray  # number of the key
    shares: dict[str, float]


def read_split(paths: Sequence[str], reward: str = "click") -> ArmLog:
    """The requests of a log that a split dealt out; InputError if there are none, or if the split changed on the way."""
    if reward not in REWARDS:
        raise InputError(f"there is no reward {reward!r}; give one of: {', '.join(REWARDS)}")
    arms, rewards, units = [], [], list[int]()
    shares: dict[str, float] = {}
    salt, numbers = None, dict[str, int]()
    for request in DecisionReader(paths).requests():
        split = request.about.get("split")
        if not isinstance(split, dict):
            continue
        arm, share = str(split["arm"]), float(split["share"])
        if shares.setdefault(arm, share) != share or salt not in (None, split.get("salt", "")):
            raise InputError(
                f"the split changed within the log, at request {request.name!r}; give the files of one split at a time"
            )
        salt = split.get("salt", "")
        if reward == "bid" and request.bids is None:
            raise InputError(f"request {request.name!r} was logged without bids; compare with --reward click")
        worth = request.bids if reward == "bid" and request.bids is not None else None
        arms.append(arm)
        rewards.append(sum(shown.click * (1.0 if worth is None else worth[shown.candidate]) for shown in request.shown))
        units.append(numbers.setdefault(json.dumps(split.get("key")), len(numbers)))
    if not arms:
        raise InputError("the log holds no decision of a split; see [split] in the file of `pbodl serve --models`")
    if len(shares) < 2 or abs(sum(shares.values()) - 1.0) > 1e-6:
        known = ", ".join(f"{arm} ({share:g})" for arm, share in shares.items())
        raise InputError(f"the log has requests of {known} alone; a comparison needs requests of all arms of the split")
    return ArmLog(arms, np.array(rewards, np.float64), np.array(units, np.int64), shares)


def live_ab(log: ArmLog, control: str | None = None) -> dict[str, Any]:
    """Values of the arms, differences from the control with both intervals, and the check of the shares."""
    names = sorted(log.shares, key=lambda name: (name != control, -log.shares[name], name))
    if control is not None and names[0] != control:
        raise InputError(f"there is no arm {control!r} in the log; its arms are: {', '.join(names)}")
    arm = np.array(log.arm)
    base = names[0]
    arms, counts = list[dict[str, Any]](), list[int]()
    for name in names:
        mine = arm == name
        counts.append(int(mine.sum()))
        mean = float(log.reward[mine].mean()) if mine.any() else math.nan
        arms.append({"arm": name, "share": log.shares[name], "requests": counts[-1], "value": mean})
    factor = shares_factor(counts, [log.shares[name] for name in names])
    return {
        "control": base, "requests": len(arm), "keys": int(log.unit.max()) + 1, "arms": arms,
        "differences": [_difference(log, arm, name, base, arms[0]["value"]) for name in names[1:]],
        "shares": {"log_bayes_factor": factor, "mismatch": bool(factor > -math.log(MISMATCH))},
    }  # fmt: skip


def _difference(log: ArmLog, arm: np.ndarray, name: str, base: str, value: float) -> dict[str, Any]:
    # Around the common level of all arms, the terms are less noisy, and have the same mean.
    signs = (arm == name) / log.shares[name] - (arm == base) / log.shares[base]
    terms = (log.reward - log.reward.mean()) * signs
    mean, n, deviation = float(terms.mean()), len(terms), clustered_deviation(terms, log.unit)
    once, always = Z * deviation / math.sqrt(n), half_width(n, deviation, ALPHA)
    lift = mean / value if value else math.nan
    return {
        "arm": name, "difference": mean, "interval": [mean - once, mean + once], "any_time": [mean - always, mean + always],
        "lift": lift, "lift_interval": [(mean - once) / value, (mean + once) / value] if value else None,
        "lift_any_time": [(mean - always) / value, (mean + always) / value] if value else None,
        "decided": bool(abs(mean) > always),
    }  # fmt: skip


def ab_tables(found: dict[str, Any]) -> list[Table]:
    """The arms, and their differences from the control."""
    arms = plain_table(
        f"{found['requests']:,} requests, {found['keys']:,} keys",
        "arm",
        ("planned share", "requests", "share", "value per request"),
    )
    for one in found["arms"]:
        share = one["requests"] / found["requests"]
        arms.add_row(one["arm"], f"{one['share']:.3f}", f"{one['requests']:,}", f"{share:.4f}", f"{one['value']:.5f}")
    lines = plain_table(f"lift over {found['control']}", "arm", ("lift", "95 %, looked at once", "95 %, at any time", "decided"))
    for one in found["differences"]:
        once, always = one["lift_interval"] or [math.nan] * 2, one["lift_any_time"] or [math.nan] * 2
        lines.add_row(
            one["arm"], f"{one['lift']:+.2%}", f"{once[0]:+.2%} – {once[1]:+.2%}", f"{always[0]:+.2%} – {always[1]:+.2%}",
            "yes" if one["decided"] else "not yet",
        )  # fmt: skip
    return [arms, lines]


def ab_warnings(found: dict[str, Any]) -> list[str]:
    """What makes the comparison doubtful."""
    if not found["shares"]["mismatch"]:
        return []
    return [
        "the arms' shares of the requests are not the planned ones: requests are lost, repeated, or dealt out otherwise; do not"
        " trust the lift before this is explained"
    ]
