"""Figures of a frozen model against scikit-learn, overall, by day and by slice."""

import json

import numpy as np
import pytest
from rich.progress import Progress
from sklearn.metrics import log_loss, roc_auc_score

import pbodl
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.training import evaluate as evaluate_module
from pbodl.training.display import RemainingColumn, console, evaluation_tables
from pbodl.training.evaluate import evaluate
from tests.click_log import PLAIN, RICH, click_log
from tests.contract import fingerprint
from tests.training.logs import chunks

LOG = click_log(3000, seed=1)


@pytest.fixture(scope="module")
def model():
    model = pbodl.FMMLP(RICH, dim=3, hidden=(4,))
    model.learn(click_log(1500))
    return model


def reference(model, rows) -> dict[str, float]:
    predicted = model.predict(rows).ctr
    clicks = np.array([row["click"] for row in rows])
    both = 0 < clicks.sum() < len(clicks)
    return {
        "rows": len(rows),
        "auc": roc_auc_score(clicks, predicted) if both else None,
        "log_loss": log_loss(clicks, predicted, labels=[0, 1]),
        "ctr": clicks.mean(),
        "calibration": predicted.mean() / clicks.mean() if clicks.any() else None,
    }


def assert_line(line, ref) -> None:
    for name, value in ref.items():
        assert line[name] == (None if value is None else pytest.approx(value)), name


def test_overall_and_by_day(model):
    before = fingerprint(model)
    comp = evaluate(model, chunks(LOG))
    assert fingerprint(model) == before
    assert_line(comp, reference(model, LOG))
    assert comp["model"] == "fm-mlp"
    assert comp["rows_per_second"] > 0
    days = sorted({row["time"] // 86400 * 86400 for row in LOG})
    assert [day["start"] for day in comp["days"]] == days
    for day in comp["days"]:
        assert_line(day, reference(model, [row for row in LOG if row["time"] // 86400 * 86400 == day["start"]]))
    for name, (low, high) in comp["intervals"].items():
        assert low < comp[name] < high
    assert "slices" not in comp
    json.dumps(comp, allow_nan=False)


def test_the_size_of_chunks_does_not_matter(model):
    ref, comp = evaluate(model, chunks(LOG, size=3000), "site"), evaluate(model, chunks(LOG, size=70), "site")
    assert all(close(comp[name], ref[name]) for name in ("auc", "days", "slices", "intervals"))


def close(comp, ref) -> bool:
    if isinstance(ref, dict):
        return comp.keys() == ref.keys() and all(close(comp[key], ref[key]) for key in ref)
    if isinstance(ref, list):
        return len(comp) == len(ref) and all(map(close, comp, ref))
    return comp == (pytest.approx(ref) if isinstance(ref, float) else ref)


def test_by_a_column(model):
    comp = evaluate(model, chunks(LOG), "site")
    assert comp["by"] == "site"
    values = [line["value"] for line in comp["slices"]]
    assert sorted(values) == sorted({row["site"] or "(missing)" for row in LOG})
    assert [line["rows"] for line in comp["slices"]] == sorted((line["rows"] for line in comp["slices"]), reverse=True)
    for line in comp["slices"]:
        assert_line(line, reference(model, [row for row in LOG if (row["site"] or "(missing)") == line["value"]]))


@pytest.mark.parametrize("settled", [10**6, 500])
def test_the_most_frequent_values_and_all_others(model, settled, monkeypatch):
    monkeypatch.setattr(evaluate_module, "MOST_SLICES", 5)
    monkeypatch.setattr(evaluate_module, "SETTLED", settled)
    comp = evaluate(model, chunks(LOG), "user")["slices"]
    assert len(comp) == 6
    assert comp[-1]["value"] == "(other)"
    assert sum(line["rows"] for line in comp) == len(LOG)
    own = {line["value"] for line in comp[:-1]}
    for line in comp[:-1]:
        assert_line(line, reference(model, [row for row in LOG if str(row["user"]) == line["value"]]))
    assert_line(comp[-1], reference(model, [row for row in LOG if str(row["user"]) not in own]))
    if settled > len(LOG):
        counts = sorted((sum(row["user"] == user for row in LOG) for user in range(25)), reverse=True)
        assert [line["rows"] for line in comp[:-1]] == counts[:5]


def test_values_first_seen_after_it_was_settled_are_others(model, monkeypatch):
    monkeypatch.setattr(evaluate_module, "SETTLED", 100)
    late = [{**row, "site": "late"} for row in LOG[:50]]
    comp = evaluate(model, chunks(LOG[:300] + late), "site")["slices"]
    assert comp[-1] == comp[-1] | {"value": "(other)", "rows": 50}


def test_one_class_in_a_slice(model):
    rows = [{**row, "site": "never", "click": 0} for row in LOG[:40]] + LOG[40:100]
    line = next(line for line in evaluate(model, chunks(rows), "site")["slices"] if line["value"] == "never")
    assert line["auc"] is line["calibration"] is line["intervals"]["auc"] is None
    assert line["log_loss"] > 0


def test_bad_columns(model):
    with pytest.raises(InputError, match="no column 'sight'; its columns are: user, "):
        evaluate(model, chunks(LOG[:10]), "sight")
    with pytest.raises(InputError, match="'tags' holds lists"):
        evaluate(model, chunks(LOG[:10]), "tags")


def test_without_a_time_there_are_no_days():
    model = pbodl.FMMLP(PLAIN, dim=2, hidden=())
    assert evaluate(model, chunks(LOG[:100], PLAIN))["days"] == []


def test_examples_weights_do_not_count():
    weighted = Schema(label="click", weight="weight", fields=PLAIN.fields)
    comp = evaluate(pbodl.FMMLP(weighted, dim=2, hidden=()), chunks(LOG[:200], weighted))
    assert comp["ctr"] == pytest.approx(np.mean([row["click"] for row in LOG[:200]]))


def test_progress_and_nothing(model):
    seen: list[int] = []
    evaluate(model, chunks(LOG[:250]), progress=seen.append)
    assert seen == [100, 200, 250]
    nothing = evaluate(model, [], "site")
    assert (nothing["rows"], nothing["auc"], nothing["days"], nothing["slices"]) == (0, None, [], [])


def test_tables(model, monkeypatch):
    monkeypatch.setattr(evaluate_module, "MOST_SLICES", 3)
    tables = evaluation_tables(evaluate(model, chunks([{**row, "site": f"[{row['site']}]"} for row in LOG]), "site"))
    with console.capture() as captured:
        for table in tables:
            console.print(table)
    shown = captured.get()
    assert [table.title for table in tables][1] == "by day"
    assert "the 3 most frequent values" in shown
    assert "[site" in shown
    assert "2014-10-2" in shown


def test_the_remaining_time_is_shown_from_the_first_rows_on():
    shown = Progress(RemainingColumn(), get_time=lambda: clock[0])
    clock = [0.0]
    shown.add_task("", total=100)
    (task,) = shown.tasks
    column = RemainingColumn()
    assert column.render(task).plain == "-:--:--"
    clock[0] = 2.0
    shown.update(task.id, completed=10)
    assert column.render(task).plain == "0:00:18 left"
    shown.update(task.id, completed=100)
    assert column.render(task).plain == "0:00:02"
