"""The wheel that an image is built from: pip takes it, and it holds the package as it runs here."""

import subprocess
import sys
from pathlib import Path

import pytest

import pbodl
from pbodl.deployment.package_wheel import package_wheel, requirements


def test_pip_installs_it_and_it_is_this_package(tmp_path: Path) -> None:
    name, packed = package_wheel()
    (tmp_path / name).write_bytes(packed)
    target = tmp_path / "target"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--target", str(target)]
    done = subprocess.run([*command, str(tmp_path / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    root = Path(pbodl.__file__).parent
    ref = {
        path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    comp = {path.relative_to(target / "pbodl"): path.read_bytes() for path in (target / "pbodl").rglob("*") if path.is_file()}
    assert comp == ref
    assert (target / "bin" / "pbodl").is_file()
    assert packed == package_wheel()[1]


def test_requirements_are_those_of_the_extras_in_the_versions_here() -> None:
    lines = requirements({"serve"}).splitlines()
    names = {line.partition("==")[0] for line in lines}
    assert {"numba", "pyarrow", "starlette", "uvicorn[standard]"} <= names and "redis" not in names
    assert all("==" in line for line in lines)
    assert {"redis"} <= {line.partition("==")[0] for line in requirements({"serve", "redis"}).splitlines()}


def test_what_is_not_installed_stays_as_the_package_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda name: ["numpy>=2.0", "nowhere-to-be-found>=3; extra == 'redis'"])
    assert "nowhere-to-be-found>=3" in requirements({"redis"}).splitlines()
