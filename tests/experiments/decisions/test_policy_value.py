"""`pbodl evaluate --policy`: what other policies would have earned, through the command."""

import json

import pytest

from pbodl.errors import InputError
from pbodl.experiments.decisions.policy_value import policy_value
from pbodl.serving.ranking.policies import RankPolicy
from tests.command_line import run_pbodl
from tests.experiments.decisions.decision_logs import trained, true_value, write_log


@pytest.fixture(scope="module")
def models():
    return trained(100, 1), trained(3000, 2)


@pytest.mark.parametrize("slots", [1, 2])
def test_the_value_of_another_model_is_found_through_the_command(models, tmp_path, slots):
    weak, strong = models
    log = tmp_path / "decisions.jsonl"
    write_log(log, weak, RankPolicy("epsilon", epsilon=0.5), 1500, 7, slots)
    strong.save(tmp_path / "run")
    told = run_pbodl("evaluate", tmp_path / "run", log, "--policy", "greedy", "--json")
    assert told.code == 0
    found = told.json
    ref = true_value(strong, RankPolicy("greedy"), slots)
    for name in ("ips", "snips", "dr"):
        value, (low, high) = found["values"][name]["value"], found["values"][name]["interval"]
        error = found["values"][name]["error"]
        assert abs(value - ref) < 4.0 * error
        assert low < value < high
    assert found["values"]["dr"]["error"] < found["values"]["ips"]["error"]
    assert abs(found["values"]["logged"]["value"] - true_value(weak, RankPolicy("epsilon", epsilon=0.5), slots)) < 0.1
    assert found["requests"] == 1500
    assert 0 < found["effective_sample_size"] < 1500 * slots
    assert not found["warnings"]
    assert "doubly robust" in told.err


def test_a_log_without_exploration_is_warned_of(models, tmp_path):
    weak, strong = models
    write_log(tmp_path / "log.jsonl", weak, RankPolicy("greedy"), 200, 3)
    found = policy_value(strong, RankPolicy("epsilon", epsilon=0.5), [str(tmp_path / "log.jsonl")])
    assert found["unsupported"] > 0.05
    assert any("never shows" in told for told in found["warnings"])


def test_bids_are_rewards_where_they_are_asked_for(models, tmp_path):
    write_log(tmp_path / "log.jsonl", models[0], RankPolicy("epsilon", epsilon=1.0), 100, 3, bids=True)
    clicks, bids = (
        policy_value(models[0], RankPolicy("epsilon", epsilon=1.0), [str(tmp_path / "log.jsonl")], reward)["values"]["logged"]
        for reward in ("click", "bid")
    )
    assert bids["value"] > 1.5 * clicks["value"] > 0.0


def test_what_is_wrong_with_a_log_is_told(models, tmp_path):
    path = tmp_path / "log.jsonl"
    good = {"request": "r", "slot": 0, "slots": 1, "placed": 0, "policy": "greedy", "propensity": 1.0, "candidates": [{"ad": 1}]}
    event = {"event": "impression", "id": "r.0", "time": 1.0}
    for lines, words in (
        (["{"], "line 1: it is not a JSON object"),
        ([json.dumps(event)], "0 whole decisions"),
        ([json.dumps({**event, "decision": {**good, "propensity": 0.0}})], "its propensity is 0.0"),
        ([json.dumps({**event, "decision": {**good, "placed": 4}})], "candidate 4 of 1"),
        ([json.dumps({**event, "decision": {"request": "r", "slot": 0}})], "did not write"),
    ):
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(InputError, match=words):
            policy_value(models[0], RankPolicy("greedy"), [str(path)])
    (tmp_path / "log.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not a log of decisions"):
        policy_value(models[0], RankPolicy("greedy"), [str(tmp_path / "log.csv")])
    with pytest.raises(InputError, match="no reward"):
        policy_value(models[0], RankPolicy("greedy"), [str(path)], "money")
