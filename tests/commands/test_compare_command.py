"""`pbodl compare`: options arrive, files are written, and the last line is JSON."""

import msgspec
import pytest

from pbodl.training.config import check_config, to_toml
from tests.click_log import RICH
from tests.command_line import run_pbodl
from tests.training.logs import write_log


@pytest.fixture
def run(tmp_path):
    log, config = write_log(tmp_path / "log.parquet", 400), tmp_path / "config.toml"
    config.write_text(to_toml(check_config({"schema": msgspec.to_builtins(RICH)})))
    return lambda *arguments: run_pbodl("compare", log, "--config", config, *arguments)


def test_compare(run, tmp_path):
    result = run("--models", "adpredictor, ftrl", "--rows", "300", "--last", "0.2", "--out", str(tmp_path / "out"), "--json")
    assert result.code == 0, result.output
    found = result.json
    assert [line["model"] for line in found["models"]] == ["adpredictor", "ftrl"]
    assert found["provenance"]["rows"] == 300 and found["provenance"]["learned"] == 240
    assert {"compare.json", "compare.md", "report.html"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_without_a_folder_nothing_is_written(run, tmp_path):
    before = set(tmp_path.iterdir())
    result = run("--models", "ftrl", "--set", "model.kind=ftrl")
    assert result.code == 0
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("arguments", "words"), [(("--models", "ftr"), "did you mean 'ftrl'"), (("--rows", "5"), "at least 10")])
def test_wrong_input_writes_nothing(run, tmp_path, arguments, words):
    result = run(*arguments, "--out", str(tmp_path / "out"))
    assert result.code == 2 and words in result.prose
    assert not (tmp_path / "out").exists()
