"""The online experiment as a whole on a tiny world: files, report, going on after an interruption, and the command."""

import json
import re
import shutil

import pytest

from pbodl.experiments.ab import ab_experiment as module
from pbodl.experiments.ab.ab_arms import Setting
from pbodl.experiments.ab.ab_experiment import ab
from pbodl.experiments.ab.lineup import ABLATION, TABLES
from tests.command_line import run_pbodl

TINY = Setting(days=2, requests_per_day=1600, ads=40, burn_in=1)
TWO = {"fm-batch": "ftrl", "dnn-batch": "ftrl"}
# The arms of the paper without the costly fits: what is tested here is the machinery.
MAIN = TABLES._replace(arms=tuple(arm._replace(kind=TWO.get(arm.kind, arm.kind)) for arm in TABLES.arms))
LESS = ABLATION._replace(arms=ABLATION.arms[1:3])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    out = tmp_path_factory.mktemp("ab")
    return out, ab(out, TINY, seeds=2, workers=1, tests=(MAIN, LESS))


@pytest.fixture
def done(simulated, tmp_path):
    """The finished experiment, in a folder that a test may change."""
    out, result = simulated
    return shutil.copytree(out, tmp_path / "ab"), result


def test_the_report_has_the_papers_figures_beside_ours(done):
    out, result = done
    text, page = (out / "ab.md").read_text(), (out / "report.html").read_text()
    for words in ("Table 3", "Table 4", "+2.2 %", "+4.1 %", "+5.6 %", "+22.7 %", "+25.6 %", "11.86 %", "16.72 %", "17.02 %"):
        assert words in text and words in page
    for arm in (*MAIN.arms, *LESS.arms):
        assert arm.name in text and arm.name in page
    assert page.count('"kind":"lines"') == 8
    assert set(re.findall(r"https?://[^\"/]+", page)) == {"http://www.w3.org"}  # the name of SVG, never loaded
    first = result["tests"]["tables"]["arms"][2]
    assert f"{100 * first['lifts']['ctr']['value']:+.1f} %" in text
    assert "nan" not in text.lower().split()


def test_the_figures_add_up(done):
    out, result = done
    assert json.loads((out / "ab.json").read_text()) == json.loads(json.dumps(result))
    arms = result["tests"]["tables"]["arms"]
    assert sum(arm["impressions"] for arm in arms) == 2 * TINY.days * TINY.requests_per_day
    base = arms[0]["figures"]["ctr"]["value"]
    for arm in arms[1:]:
        lift = arm["lifts"]["ctr"]
        assert lift["value"] == pytest.approx(arm["figures"]["ctr"]["value"] / base - 1)
        assert lift["low"] <= lift["value"] <= lift["high"]
        assert arm["figures"]["regret"]["value"] == pytest.approx(1 - arm["figures"]["value"]["value"])
        assert len(arm["days"]["ctr"]) == TINY.days and len(arm["seeds"]) == 2
    pairs = result["tests"]["tables"]["comparisons"]
    assert pairs[0]["arm"].endswith("(A/A)")


def test_nothing_is_simulated_twice_and_what_is_missing_is(done, monkeypatch):
    out, result = done
    run = []
    monkeypatch.setattr(module, "run_arms", lambda *_: pytest.fail("simulated again"))
    assert ab(out, TINY, seeds=2, workers=1, tests=(MAIN, LESS)) == result
    monkeypatch.undo()
    (out / "arms" / "tables-3-1.json").unlink()
    original = module.run_arms
    monkeypatch.setattr(module, "run_arms", lambda *given: run.append(given[1:3]) or original(*given))
    comp = ab(out, TINY, seeds=2, workers=1, tests=(MAIN, LESS))
    assert run == [((3,), 1)]
    figures = [[arm["figures"] for arm in whole["tests"]["tables"]["arms"]] for whole in (comp, result)]
    assert figures[0] == figures[1]


def test_one_test_can_run_alone(done, monkeypatch):
    out, result = done
    monkeypatch.setattr(module, "run_arms", lambda *_: pytest.fail("simulated again"))
    alone = ab(out, TINY, seeds=2, workers=1, tests=(MAIN, LESS), only="ablation")
    assert alone["tests"] == {"ablation": result["tests"]["ablation"]}


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(tmp_path):
    # Not against one process: scoring that was just compiled may round differently from scoring out of the cache.
    ab(tmp_path / "compiles", TINY._replace(days=1), seeds=1, workers=2, tests=(MAIN, LESS))
    two, three = (ab(tmp_path / str(n), TINY, seeds=2, workers=n, tests=(MAIN, LESS)) for n in (2, 3))
    figures = [[arm["figures"] for arm in whole["tests"]["ablation"]["arms"]] for whole in (two, three)]
    assert figures[0] == figures[1]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--days", "0", "'--days'"), ("--rank-by", "clicks", "allowed: ecpm, ctr"), ("--seeds", "0", "'--seeds'"),
        ("--ads", "1", "slots is 1"), ("--burn-in", "0", "burn-in is 0"), ("--workers", "0", "'--workers'"),
        ("--test", "quality", "allowed: tables, ablation"),
    ],
)  # fmt: skip
def test_the_command_refuses_what_makes_no_sense(tmp_path, option, value, words):
    small = ["--days", "1", "--requests-per-day", "200", "--seeds", "1", "--workers", "1"]
    refused = run_pbodl("experiment", "ab", "--out", tmp_path / "x", *small, option, value)
    assert refused.code == 2 and words in refused.prose


def test_the_quality_market_has_its_own_report(tmp_path):
    setting = Setting(days=1, requests_per_day=400, burn_in=1, criterion="ctr", market="quality")
    result = ab(tmp_path, setting, seeds=2, workers=1, first_seed=50)
    assert result["provenance"]["ads"] == 40 and result["provenance"]["first_seed"] == 50
    text = (tmp_path / "ab.md").read_text()
    assert "world 51" in text and "reference, Thompson" in text and "Table 3" not in text
