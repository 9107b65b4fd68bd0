"""The wheel and the source distribution: what is in them, and that the wheel works alone in an empty environment."""

import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

import pbodl
from tests.pages import ROOT, agree, blocks
from tests.wheels import build_package, install_alone, new_environment

README = ROOT / "README.md"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the source distribution, the wheel built from the source distribution."""
    return build_package(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture
def environment(tmp_path):
    return new_environment(tmp_path / "environment")


def run(*command, variables, folder):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=folder, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    files = [path for path in (ROOT / "pbodl").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert names == {path.relative_to(ROOT).as_posix() for path in files}
    assert {"pbodl/py.typed", "pbodl/serving/dashboard/page.html"} <= names
    assert re.search(rf"^Version: {re.escape(pbodl.__version__)}$", metadata, flags=re.MULTILINE)


def test_the_source_distribution_has_what_the_tests_need(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [
        "Makefile",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "requirements.lock",
        "docs/architecture.md",
        "tests/test_package.py",
    ]
    assert set(wanted) <= names


def test_the_changelog_knows_the_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(pbodl.__version__)} \(\d{{4}}-\d\d-\d\d\)$", text, flags=re.MULTILINE)


def test_the_commands_of_the_wheel_start(wheel, environment, tmp_path):
    programs, library, variables = environment
    install_alone(wheel, environment)
    origin = run(programs / "python", "-c", "import pbodl; print(pbodl.__file__)", variables=variables, folder=tmp_path)
    assert Path(origin.strip()).is_relative_to(library)
    assert pbodl.__version__ in run(programs / "pbodl", "--version", variables=variables, folder=tmp_path)
    assert "train" in run(programs / "pbodl", "--help", variables=variables, folder=tmp_path)


@pytest.mark.slow
def test_the_wheel_alone_runs_the_first_example(wheel, environment, tmp_path):
    programs, library, variables = environment
    lock = ROOT / "requirements.lock"
    run(programs / "python", "-m", "pip", "install", "--quiet", "-c", lock, wheel, variables=variables, folder=tmp_path)
    example = [block for block in blocks(README) if block.language in ("python", "text")]
    end = next(n for n, block in enumerate(example) if block.language == "text")
    (tmp_path / "example.py").write_text("\n".join(block.text for block in example[:end]), encoding="utf-8")
    printed = run(programs / "python", "example.py", variables=variables, folder=tmp_path)
    shown = example[end].text.splitlines()
    assert len(shown) == len(printed.splitlines()) and all(map(agree, shown, printed.splitlines()))
    assert pbodl.__version__ in run(programs / "pbodl", "--version", variables=variables, folder=tmp_path)
    assert (library / "pbodl").is_dir()
