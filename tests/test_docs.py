"""The documentation is true: README and guide are executed, lines are short, and every excepted block says why."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import columns, undocumented
from tests.pages import OURS, ROOT, SERVERS, Reader, agree, blocks, matches, sessions, without_comment

README = ROOT / "README.md"  # through a real shell
GUIDE = [README, *sorted((ROOT / "docs" / "guide").glob("*.md"))]
MARKDOWN = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
LONGEST = 140
LONGEST_README = 120  # lines


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", GUIDE, ids=name_of)
def test_pages_show_what_comes_out(page, tmp_path):
    Reader(tmp_path, shell=page == README).read(page)


def test_most_commands_need_no_shell():
    lines = [command for page in GUIDE for block in blocks(page) if block.language == "console" and not block.reason
             for command, _ in sessions(block.text) if command.startswith("pbodl ") and not SERVERS.match(command)]  # fmt: skip
    assert len(lines) > 30 and all(map(OURS.fullmatch, map(without_comment, lines)))
    for line in ("pbodl -h | head", "pbodl train *.csv", "pbodl -h && ls", "pbodl -h >> x", "pbodl train $LOG", "pbodlx -h"):
        assert not OURS.fullmatch(line)


def test_blocks_that_are_not_run_say_why():
    excepted = [(name_of(page), block) for page in GUIDE for block in blocks(page) if block.reason]
    for name, block in excepted:
        assert len(block.reason.split()) > 3, f"{name}:{block.line}: say why this block is not run, not {block.reason!r}"
    assert len(excepted) <= 14, f"too many blocks are not run: {[(name, block.line) for name, block in excepted]}"


@pytest.mark.parametrize("page", MARKDOWN, ids=name_of)
def test_lines_are_short(page):
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    long = [f"{name_of(page)}:{n} has {len(line)} characters" for n, line in lines if len(line) > LONGEST]
    assert not long, f"break these lines; {LONGEST} characters are the most: {long}"


def test_the_tests_that_pages_name_exist():
    named = [
        (name_of(page), *name) for page in MARKDOWN for name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text("utf-8"))
    ]
    absent = [name for name in named if f"def {name[2]}(" not in (ROOT / name[1]).read_text("utf-8")]
    assert named and not absent, f"these pages name tests that do not exist: {absent}"


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < LONGEST_README, f"README.md has {len(lines)} lines; it must have fewer than {LONGEST_README}"


def test_figures_agree_within_tolerance_and_times_always():
    assert agree("AUC 0.7512, 20,000 rows in 3.1 s", "AUC  0.7540, 20,000 rows in 88.2 s")
    assert not agree("AUC 0.7512", "AUC 0.7812")
    assert not agree("AUC 0.7512", "log loss 0.7512")
    assert agree('{"ctr":[0.1,...', '{"ctr":[0.101,0.3]}')
    assert agree("2,634/s at 0:00:06", "9/s at 1:10:00")


def test_dots_stand_for_any_lines():
    assert matches(["a", "...", "d"], ["a", "b", "c", "d"])
    assert matches(["a", "...", "b"], ["a", "b"])
    assert not matches(["a", "...", "d"], ["a", "b"])
    assert not matches(["a"], ["a", "b"])


def test_commands_may_continue_on_the_next_line():
    assert sessions("$ one \\\n    two\nshown\n$ three\n") == [("one two", ["shown"]), ("three", [])]


def test_public_names_are_documented():
    assert not undocumented(), f"explain these in their docstrings: {undocumented()}"


def test_docstrings_explain_names_in_two_columns():
    docstring = """A thing.

    one         the first
    two, three  the others,
                which go on
    """
    assert columns(docstring) == {"one": "the first", "two": "the others, which go on", "three": "the others, which go on"}


@pytest.mark.slow
def test_a_broken_link_fails_the_site(tmp_path):
    for name in ("docs", "pbodl", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml", ROOT / "pyproject.toml"):
        shutil.copy(file, tmp_path)
    assert build(tmp_path) == 0
    page = tmp_path / "docs" / "guide" / "serving.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[nowhere](nowhere.md)\n", encoding="utf-8")
    assert build(tmp_path) == 1


def build(folder: Path) -> int:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}
    ).returncode
