"""What a run shows: lines for periods and for all, only columns that mean something, and notes about the log."""

import pytest
from rich.console import Console

from pbodl import Field, Schema
from pbodl.training.config import check_config
from pbodl.training.display import log_notes, periods_table
from pbodl.training.session import train

DAY = 86400


def rows(n=400, days=3, ad="ad", shuffled=False):
    found = [{"click": i % 3 == 0, "time": 1.4e9 + days * DAY * i / n, ad: f"{i * 7 // n}-{i % 5}"} for i in range(n)]
    return found[::-1] if shuffled else found


def shown(table) -> str:
    console = Console(width=200)
    with console.capture() as text:
        console.print(table)
    return text.get()


def trained(tmp_path, log, group="ad", **training):
    schema = {"label": "click", "time": "time", "fields": [{"name": "ad", "group": group}]}
    return train(check_config({"schema": schema, "training": training}), log, tmp_path / "run")


def test_days_and_all(tmp_path):
    summary = trained(tmp_path, rows())
    text = shown(periods_table("a model", summary, True))
    assert "2014-05-13" in text
    assert "all" in text
    assert "new ads" in text
    assert log_notes(summary, ["ad"]) == []


def test_rows_are_no_dates_and_no_ad_is_never_new(tmp_path):
    summary = trained(tmp_path, rows(shuffled=True), group="user", every="100 rows")
    text = shown(periods_table("a model", summary, False))
    assert "row 100" in text
    assert "1970" not in text
    assert "new" not in text
    notes = log_notes(summary, ["user"])
    assert notes[0].startswith("no field has the group 'ad': a server cannot rank")
    assert notes[1].startswith("399 of 400 rows are older than a row before them; sort the log by time")


def test_one_period_is_all_there_is(tmp_path):
    text = shown(periods_table("a model", trained(tmp_path, rows(days=0.5), every="1000 rows"), False))
    assert "all" not in text


def test_a_second_pass_is_noted(tmp_path):
    (tmp_path / "a.csv").write_text("click,time,ad\n" + "".join(f"{r['click']},{r['time']},{r['ad']}\n" for r in rows()))
    summary = trained(tmp_path, [str(tmp_path / "a.csv")] * 2)
    assert any("a.csv was learned more than once: a second pass" in note for note in log_notes(summary, ["ad"]))


@pytest.mark.parametrize("count", [0, 3])
def test_bad_rows_are_noted(count):
    summary = {"rows": 5, "out_of_order": 0, "bad_rows": count, "files": ["a.csv"]}
    assert log_notes(summary, Schema(label="c", fields=[Field("a", group="ad")]).groups) == ["3 bad rows were left out"] * (
        count > 0
    )
