"""The report of a run: whole, offline, and with the run's figures in it."""

import re
from html.parser import HTMLParser

import pytest

from pbodl.errors import InputError
from pbodl.training.report.page import page, table, write_page
from pbodl.training.session import train
from tests.click_log import PLAIN
from tests.training.logs import small_config, trained_run, write_log


class Checker(HTMLParser):
    """Counts tags, and holds the open ones against the closing ones."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    return checker


def test_a_run_has_its_report(tmp_path):
    run = trained_run(tmp_path, rows=3000)
    text = (run / "report.html").read_text(encoding="utf-8")
    checker = checked(text)
    assert checker.seen.count("figure") == 4
    assert checker.seen.count("script") == 5  # one draws, the others are data
    assert not re.search(r"src=|@import|url\((?!#)", text)
    assert set(re.findall(r"https?://[^\"/]+", text)) == {"http://www.w3.org"}  # the name of SVG, never loaded
    for words in ("AUC, progressive", "log loss, progressive", "Calibration", "Log loss by age of the ad", "each day", "each hour"):
        assert words in text
    assert "3,000 rows in one pass" in text
    assert "2014-10-2" in text
    assert "rejected embedding" in text
    assert "[schema]" in text and "[training]" in text
    assert not list(run.glob(".report*"))


def test_without_a_time(tmp_path):
    schema = {"label": "click", "fields": [{"name": field.name} for field in PLAIN.fields]}
    config = small_config(schema, {"every": "1k rows", "negative_rate": 0.5})
    summary = train(config, [write_log(tmp_path / "log.parquet", 2500)], tmp_path / "run")
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    checked(text)
    assert "each 1k rows" in text
    assert "row 1,000" in text
    assert '"groups":[]' in text  # ages need a time
    assert summary["negative_rate"] == 0.5


def test_a_few_rows_are_enough(tmp_path):
    checked((trained_run(tmp_path, rows=3) / "report.html").read_text(encoding="utf-8"))


def test_a_run_without_good_rows_has_none(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"user": 1, "ad": 2, "site": 3, "click": 7}\n')
    schema = {"label": "click", "fields": [{"name": field.name} for field in PLAIN.fields]}
    with pytest.raises(InputError, match="no good rows; 1 were bad"):
        train(small_config(schema), [str(log)], tmp_path / "run", bad_rows="skip")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_pages_escape_their_text(tmp_path):
    text = page("<title>", "a & b", table(["<column>"], [["<cell>"]]))
    checked(text)
    assert "&lt;title&gt;" in text
    assert "&lt;cell&gt;" in text
    assert write_page(tmp_path / "x.html", text).read_text(encoding="utf-8") == text
