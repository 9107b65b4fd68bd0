"""The file of models: what it says, and what is wrong with it."""

import pytest

from pbodl.errors import InputError
from pbodl.serving.models.models_file import WatchedPlan, plan_of, read_models_file
from pbodl.serving.models.served_models import ONLY, TrafficPlan

GOOD = (
    'default = "b"\nshadow = ["c"]\nsalt = "s"\n[models]\na = "runs/a"\nb = "runs/b"\nc = "runs/c"\n[split]\na = 0.25\nb = 0.75\n'
)


def test_a_plan_is_read(tmp_path):
    (tmp_path / "m.toml").write_text(GOOD)
    plan = read_models_file(tmp_path / "m.toml")
    assert plan.runs == {"a": "runs/a", "b": "runs/b", "c": "runs/c"}
    assert plan.traffic == TrafficPlan("b", {"a": 0.25, "b": 0.75}, "s", ("c",))
    assert plan_of(None, ["x=runs/x", "y=s3://b/y"], None).traffic.default == "x"
    assert plan_of("runs/a", [], None).runs == {ONLY: "runs/a"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models = 3", "not understood"),
        ("[models]\n", "names no model"),
        ('[models]\n"a b" = "x"', "letters, digits"),
        ('defalt = "a"\n[models]\na = "x"', "defalt"),
        ('default = "b"\n[models]\na = "x"', "default names the model 'b'"),
        ('shadow = ["aa"]\n[models]\na = "x"', "shadow names the model 'aa'"),
        ('[models]\na = "x"\n[split]\na = 0.5', "together they must be 1"),
        ('[models]\na = "x"\nb = "y"\n[split]\na = 1.5\nb = -0.5', "above 0"),
        ("[models", "not understood"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, text, words):
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(InputError, match=words):
        read_models_file(tmp_path / "m.toml")


def test_one_way_to_name_models():
    for arguments in ((None, [], None), ("runs/a", ["b=c"], None), (None, ["b=c"], "m.toml")):
        with pytest.raises(InputError, match="one of these"):
            plan_of(*arguments)
    for wrong in (["a"], ["a="], ["a=x", "a=y"], ["/=x"]):
        with pytest.raises(InputError, match="model"):
            plan_of(None, wrong, None)


def test_changes_are_noticed_and_bad_ones_leave_the_plan(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text(GOOD)
    watched = WatchedPlan(read_models_file(file), str(file))
    assert not watched.changed()
    file.write_text(GOOD + "# more\n")
    assert not watched.changed()
    file.write_text(GOOD.replace("0.25", "0.5").replace("0.75", "0.5"))
    assert watched.changed()
    assert watched.plan.traffic.split == {"a": 0.5, "b": 0.5}
    file.write_text("[models")
    with pytest.raises(InputError):
        watched.changed()
    assert not watched.changed()  # told once
    assert watched.plan.traffic.split == {"a": 0.5, "b": 0.5}


def test_keys_are_dealt_out_by_the_shares_and_stay():
    traffic = TrafficPlan("a", {"a": 0.9, "b": 0.1})
    arms = [traffic.arm_of(f"user {n}") for n in range(4000)]
    assert 0.08 < arms.count("b") / 4000 < 0.12
    assert arms == [traffic.arm_of(f"user {n}") for n in range(4000)]
    salted = TrafficPlan("a", {"a": 0.9, "b": 0.1}, "other")
    assert arms != [salted.arm_of(f"user {n}") for n in range(4000)]
