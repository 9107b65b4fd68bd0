"""docs/how-to-add-an-op.md is true: its steps are applied to a copy of the package, which then passes the page's own test."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to-add-an-op.md"


def applied(text: str, diff: str) -> str:
    """The text with a hunk in it; what the hunk shows of the file must stand there exactly once."""
    lines = diff.splitlines()
    assert all(line[:1] in (" ", "+", "-", "") for line in lines), diff
    before = "\n".join(line[1:] for line in lines if line[:1] != "+")
    after = "\n".join(line[1:] for line in lines if line[:1] != "-")
    changed, found = re.subn(rf"^{re.escape(before)}$", lambda _: after, text, flags=re.MULTILINE)
    assert found == 1, f"this stands {found} times in the file:\n{before}"
    return changed


@pytest.fixture
def copy(tmp_path):
    """The package with the page's new operation."""
    shutil.copytree(ROOT / "pbodl", tmp_path / "pbodl", ignore=shutil.ignore_patterns("__pycache__"))
    for block in blocks(PAGE):
        file = tmp_path / block.title
        if block.language == "diff":
            file.write_text(applied(file.read_text(encoding="utf-8"), block.text), encoding="utf-8")
        elif block.title:
            assert not file.exists(), f"{block.title} is there already"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "plain", [pytest.param(True, id="plain Python"), pytest.param(False, id="compiled", marks=pytest.mark.slow)]
)
def test_the_new_operation_learns_and_serves(copy, plain):
    variables = {**os.environ, "PYTHONPATH": str(copy), "PBODL_CACHE": str(copy / "cache"), "NUMBA_DISABLE_JIT": str(int(plain))}
    (test,) = copy.glob("tests/**/test_*.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(copy), str(test)]
    done = subprocess.run(command, cwd=copy, env=variables, capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


def test_the_code_of_the_operation_is_free():
    (line,) = re.findall(r"^\+CONCAT.* = ([\d, ]+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    codes = [int(code) for code in line.split(",")]
    assert codes == list(range(len(codes)))
