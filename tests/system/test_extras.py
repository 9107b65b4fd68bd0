"""The lines that install optional libraries."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from pbodl.system import extras
from pbodl.system.extras import install_line

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_libraries_themselves_are_named(monkeypatch):
    listed = [
        "numpy>=2",
        "redis>=5.0; extra == 'redis'",
        'uvicorn[standard]>=0.30; extra == "serve"',
        "httpx>=0.27; extra == 'serve'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: listed)
    assert install_line("redis") == "pip install 'redis>=5.0'"
    assert install_line("serve") == "pip install 'uvicorn[standard]>=0.30' 'httpx>=0.27'"


def test_without_metadata_the_extra_is_named(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert install_line("serve") == "pip install 'pbodl[serve]'"


@pytest.mark.parametrize("extra", ["serve", "redis", "kafka", "cluster", "batch", "sklearn"])
def test_every_extra_of_the_guide_exists(extra):
    assert PROJECT["optional-dependencies"][extra]
    assert f"`{extra}`" in (ROOT / "docs" / "guide" / "install.md").read_text(encoding="utf-8")
    assert extras.install_line(extra).startswith("pip install ")


def test_make_run_installs_what_the_commands_of_the_readme_need():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installed = makefile.split("$(RUNS): |")[1].split("--editable '.[")[1].split("]'")[0].split(",")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    needs = {"pbodl serve": "serve", "pbodl up": "serve", "redis://": "redis", "kafka://": "kafka", "--engine ray": "cluster"}
    needs |= {"PBODLClassifier": "sklearn", "-batch": "batch"}
    lacking = {words: extra for words, extra in needs.items() if words in readme and extra not in installed}
    assert not lacking, f"README.md shows these, and `make run` does not install their extras: {lacking}"
