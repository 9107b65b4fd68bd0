"""The table on the terminal and the files of a comparison."""

import json

import msgspec

from pbodl.experiments.compare.compare_report import comparison_table, lead, notes, write_comparison
from pbodl.experiments.compare.compare_run import CompareSettings, compare
from pbodl.training.config import check_config
from pbodl.training.display import console
from tests.click_log import PLAIN, click_log


def test_files_and_table(tmp_path):
    config = check_config({"schema": msgspec.to_builtins(PLAIN)})
    result = compare(config, click_log(600), CompareSettings(), ["ftrl", "adpredictor"])
    result |= {"refused": {"MatchBox": "it needs a user"}, "missing": [{"name": "LightGBM", "install": "pip install lightgbm"}]}
    write_comparison(tmp_path / "out", result)
    text = (tmp_path / "out" / "compare.md").read_text()
    assert "| FTRL | 0." in text and "to add: pip install lightgbm" in text and "MatchBox cannot learn this log" in text
    assert json.loads((tmp_path / "out" / "compare.json").read_text()) == json.loads(json.dumps(result))
    assert '"kind":"lines"' in (tmp_path / "out" / "report.html").read_text()
    with console.capture() as captured:
        console.print(comparison_table(result))
    assert "minus FTRL (95" in captured.get() and "AdPredictor" in captured.get()
    assert "540 rows" in lead(result) and len(notes(result)) == 2
