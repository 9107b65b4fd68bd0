"""`pbodl experiment live-ab`: lift of one arm over another, through the command, and what makes it doubtful."""

import json

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.experiments.decisions.live_ab import ArmLog, ab_warnings, live_ab, read_split
from tests.command_line import run_pbodl


def write(path, requests: int, rates: dict[str, float], shares: dict[str, float], seed: int = 0) -> None:
    """A log of a split with one slot; the arms click at these rates."""
    draws, lines, names = np.random.default_rng(seed), [], list(shares)
    for number in range(requests):
        arm = names[int(draws.choice(len(names), p=list(shares.values())))]
        split = {"arm": arm, "share": shares[arm], "key": number // 2 if arm == names[0] else f"k{number // 2}", "salt": ""}
        about = {"request": f"r{number}", "slot": 0, "slots": 1, "placed": 0, "policy": "greedy", "propensity": 1.0}
        about |= {"split": split, "name": arm, "candidates": [{"ad": 1}]}
        lines.append(json.dumps({"event": "impression", "id": f"r{number}.0", "time": 1.0, "decision": about}))
        if draws.random() < rates[arm]:
            lines.append(json.dumps({"event": "click", "id": f"r{number}.0", "time": 2.0}))
    path.write_text("\n".join(lines) + "\n")


def test_a_lift_is_found_through_the_command(tmp_path):
    log = tmp_path / "log.jsonl"
    write(log, 6000, {"a": 0.2, "b": 0.3}, {"a": 0.6, "b": 0.4})
    told = run_pbodl("experiment", "live-ab", log, "--json")
    assert told.code == 0
    found = told.json
    (one,) = found["differences"]
    assert (found["control"], one["arm"]) == ("a", "b")
    assert one["interval"][0] < 0.1 < one["interval"][1]
    assert one["any_time"][0] < one["interval"][0]
    assert one["any_time"][1] > one["interval"][1]
    assert one["decided"]
    assert one["lift"] == pytest.approx(one["difference"] / found["arms"][0]["value"])
    assert not found["shares"]["mismatch"]
    assert "decided" in told.err


def test_the_interval_looked_at_once_covers_the_truth():
    draws, covered, runs = np.random.default_rng(1), 0, 300
    for _ in range(runs):
        arm = np.where(draws.random(1500) < 0.3, "b", "a")
        reward = (draws.random(1500) < np.where(arm == "b", 0.25, 0.2)).astype(np.float64)
        (one,) = live_ab(ArmLog(arm.tolist(), reward, np.arange(1500), {"a": 0.7, "b": 0.3}))["differences"]
        covered += one["interval"][0] < 0.05 < one["interval"][1]
    assert abs(covered / runs - 0.95) < 4.0 * np.sqrt(0.95 * 0.05 / runs)


def test_lost_requests_of_one_arm_are_told():
    arm = ["a"] * 5600 + ["b"] * 4400
    found = live_ab(ArmLog(arm, np.zeros(10_000), np.arange(10_000), {"a": 0.5, "b": 0.5}))
    assert "not the planned ones" in ab_warnings(found)[0]


def test_what_cannot_be_compared_is_told(tmp_path):
    log = tmp_path / "log.jsonl"
    write(log, 50, {"a": 0.2, "b": 0.3}, {"a": 0.6, "b": 0.4})
    with pytest.raises(InputError, match="there is no arm 'c'"):
        live_ab(read_split([str(log)]), "c")
    with pytest.raises(InputError, match="without bids"):
        read_split([str(log)], "bid")
    other = tmp_path / "other.jsonl"
    other.write_text(log.read_text().replace('"share": 0.6', '"share": 0.9').replace('"r0', '"q0').replace('"r1', '"q1'))
    with pytest.raises(InputError, match="the split changed"):
        read_split([str(log), str(other)])
    write(log, 20, {"a": 0.2}, {"a": 1.0})
    with pytest.raises(InputError, match="requests of all arms"):
        read_split([str(log)])
    log.write_text('{"event": "click", "id": "x", "time": 1.0}\n')
    with pytest.raises(InputError, match="no decision of a split"):
        read_split([str(log)])
