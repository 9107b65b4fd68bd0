"""The table and the page of importance and drift."""

from pbodl.interface.results import Result
from pbodl.training.inspect.field_report import fields_table, write_fields

LINE = {"field": "site [x]", "group": "context", "log_loss": 0.41, "adds": 0.012, "adds_interval": [0.01, 0.014]}
DRIFT = {"new": 0.25, "new_interval": [0.2, 0.3], "stability": 0.31, "stability_interval": [0.3, 0.32]}
FOUND = {"model": "pair-fm", "rows": 1000, "log_loss": 0.398, "fields": [{**LINE, **DRIFT}, {**LINE, "field": "price"}]}


def test_fields_are_shown():
    text = repr(Result(FOUND, fields_table))
    for words in ("pair-fm, 1,000 rows, log loss 0.3980", "site [x]", "+0.0120", "0.0100 – 0.0140", "25.0 %", "0.310"):
        assert words in text


def test_the_page_has_charts_and_the_table(tmp_path):
    html = write_fields(tmp_path / "fields.html", FOUND).read_text(encoding="utf-8")
    for words in ("Log loss that a field saves", "Drift of the values", "site [x]", "25.0 %", "rule of thumb"):
        assert words in html
