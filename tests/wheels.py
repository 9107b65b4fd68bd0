"""The package as users get it: a wheel built from the tree, in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

from tests.pages import ROOT


class NewEnvironment(NamedTuple):
    """A fresh virtual environment."""

    programs: Path
    library: Path
    variables: dict[str, str]  # of the process, without anything of the tests' environment


def build_package(folder: Path) -> Path:
    """Build the source distribution, and from it the wheel; returns the folder."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def new_environment(folder: Path) -> NewEnvironment:
    venv.create(folder, with_pip=True)
    library = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return NewEnvironment(folder / "bin", library, variables | {"COLUMNS": "200", "TERM": "dumb"})


def install_alone(wheel: Path, environment: NewEnvironment) -> None:
    """Install the wheel; its dependencies are those of the tests' environment, whose own `pbodl` is not found this way."""
    command = [environment.programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(command, check=True, env=environment.variables)
    found = [entry for entry in sys.path if entry.endswith("site-packages")]
    (environment.library / "dependencies.pth").write_text("\n".join(found))
