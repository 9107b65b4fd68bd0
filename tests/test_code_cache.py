"""Machine code is found by content: what changes a function changes its entry, nothing else does, and no entry is trusted."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pbodl import _code_cache, _jit
from pbodl._code_cache import FINGERPRINTS, Fingerprints, cache_home
from tests.pages import ROOT

compiled = pytest.mark.skipif(_jit.numba.config.DISABLE_JIT, reason="needs the compiler")

# A small package beside the real one's means of compiling: `top` calls `middle`, which calls `low`; `other` stands alone.
LOW = """
from pbodl._jit import inlined
SCALE = 2.0
@inlined
def low(x):
    return x * SCALE
@inlined
def other(x):
    return x - 1.0
"""
TOP = """
from pbodl._jit import jit
from pbodl.kernels.toy_low import low, other
@jit
def middle(x):
    return low(x) + 1.0
@jit
def top(x):
    return middle(x) * 3.0
@jit
def alone(x):
    return other(x)
"""
CALL = """
from pbodl.kernels import toy_top as toys
print(*(f(1.0) for f in (toys.middle, toys.top, toys.alone)))
print(*(sum(f._cache_misses.values()) for f in (toys.middle, toys.top, toys.alone)))
"""


class Toys:
    """A copy of the package with two small files more, and a cache of their machine code."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder / "copy", folder / "cache"
        (self.folder / "pbodl" / "kernels").mkdir(parents=True)
        for name in (*_code_cache.COMPILING, "errors"):
            (self.folder / "pbodl" / f"{name}.py").write_text((ROOT / "pbodl" / f"{name}.py").read_text())
        for name in ("", "kernels/"):
            (self.folder / "pbodl" / f"{name}__init__.py").touch()
        self.write(LOW, TOP)

    def write(self, low: str = LOW, top: str = TOP) -> "Toys":
        (self.folder / "pbodl" / "kernels" / "toy_low.py").write_text(low)
        (self.folder / "pbodl" / "kernels" / "toy_top.py").write_text(top)
        return self

    def call(self) -> tuple[list[float], list[int]]:
        """What the three functions give for 1, and how often each was compiled."""
        variables = {**os.environ, "PYTHONPATH": str(self.folder), "PBODL_CACHE": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1"}
        variables.pop("NUMBA_DISABLE_JIT", None)
        done = subprocess.run([sys.executable, "-c", CALL], env=variables, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        values, misses = (line.split() for line in done.stdout.splitlines())
        return [float(x) for x in values], [int(n) for n in misses]

    def entries(self) -> list[Path]:
        return sorted((self.cache / "pbodl" / "machine-code").iterdir())


@pytest.fixture
def toys(tmp_path: Path) -> Toys:
    return Toys(tmp_path)


def test_an_edit_recompiles_what_depends_on_it_and_nothing_else(toys):
    assert toys.call() == ([3.0, 9.0, 0.0], [1, 1, 1])
    assert toys.call() == ([3.0, 9.0, 0.0], [0, 0, 0])
    assert toys.write(low=LOW.replace("SCALE = 2.0", "SCALE = 4.0")).call() == ([5.0, 15.0, 0.0], [1, 1, 0])
    assert toys.write(low=LOW.replace("x - 1.0", "x - 2.0")).call() == ([3.0, 9.0, -1.0], [0, 0, 1])
    remarks = LOW.replace("    return x * SCALE", '    """Twice."""\n    # The same.\n\n    return x * SCALE')
    assert toys.write(low=remarks, top="# a remark\n\n" + TOP).call() == ([3.0, 9.0, 0.0], [0, 0, 0])


def test_another_folder_shares_the_entries(toys, tmp_path):
    toys.call()
    other = Toys(tmp_path / "elsewhere")
    other.cache = toys.cache
    assert other.call() == ([3.0, 9.0, 0.0], [0, 0, 0])


def test_a_damaged_entry_is_compiled_anew_and_mended(toys):
    values, _ = toys.call()
    damages: list[Callable[[bytes], bytes]] = [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:],
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: _code_cache._digest(b"not a pickle") + b"not a pickle",
        lambda data: data + b"more",
    ]
    for some in (damages[:3], damages[3:]):
        assert len(toys.entries()) == 3
        for path, damage in zip(toys.entries(), some, strict=True):
            path.write_bytes(damage(path.read_bytes()))
        assert toys.call() == (values, [1, 1, 1])
        assert toys.call() == (values, [0, 0, 0])


def test_a_cache_that_cannot_be_written_stops_nothing(toys):
    toys.cache.mkdir()
    (toys.cache / "pbodl").write_text("a file where a folder should be")
    variables = {"TMPDIR": str(toys.folder / "none")}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        assert toys.call()[0] == [3.0, 9.0, 0.0]
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def of(function) -> bytes:
    return Fingerprints().of(function)


def test_what_a_function_refers_to_is_part_of_its_fingerprint():
    def made(constant, other):
        def inner(x):
            return other(x) + constant

        return inner

    def shifted(x):
        return x + 1

    def scaled(x):
        return x * 1

    assert of(made(1, shifted)) == of(made(1, shifted))
    assert len({of(made(1, shifted)), of(made(1.0, shifted)), of(made(2, shifted)), of(made(1, scaled))}) == 4
    arrays = [np.arange(3), np.arange(3.0), np.arange(4)]
    assert len({of(made(array, shifted)) for array in arrays}) == 3
    with pytest.raises(_code_cache.Unknown):
        of(made(object(), shifted))


@compiled
def test_every_kernel_has_a_fingerprint_of_its_own():
    import pbodl.serving.scoring.predictor
    import pbodl.streaming.join.click_join  # noqa: F401

    fingerprints = {name: FINGERPRINTS.of(function) for name, function in _jit.BY_NAME.items()}
    assert len(fingerprints) > 150 and len(set(fingerprints.values())) == len(fingerprints)


@compiled
def test_a_kernel_is_stale_after_an_edit_anywhere_below_it(monkeypatch):
    """`learn_batch` reaches `normal.density` through five files, and `hash_keys` does not."""
    from pbodl.kernels import network, normal
    from pbodl.mixing import mix

    before = of(network.learn_batch), of(mix)
    monkeypatch.setattr(normal, "G3", normal.F(-0.25))
    assert of(network.learn_batch) != before[0] and of(mix) == before[1]


def test_the_cache_is_where_one_asks_for_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PBODL_CACHE", str(tmp_path / "here"))
    assert _code_cache.code_folder() == tmp_path / "here" / "pbodl" / "machine-code"


def test_nobody_else_can_put_code_there(monkeypatch, tmp_path):
    """A home that cannot be written stops nothing; nor does a home that others can write to get code that is run from there."""
    for name in ("PBODL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/proc")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache_home() == tmp_path / f"pbodl-cache-{os.geteuid()}"
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    assert cache_home() is None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"pbodl-cache-{os.geteuid()}").chmod(0o777)
    _code_cache._usable.cache_clear()
    assert cache_home() is None


@compiled
def test_machine_code_ships_with_the_package(tmp_path):
    """A package with the entries of this machine, in an environment that never compiled, learns and compiles nothing."""
    use = (
        "import pbodl; rows = [{'user': n % 4, 'ad': n % 5, 'click': int(n % 4 == n % 5)} for n in range(40)]; "
        "fields = [pbodl.Field('user', group='user'), pbodl.Field('ad', group='ad')]; "
        "model = pbodl.PairFM(pbodl.Schema(label='click', fields=fields)); model.learn(rows); print(model.predict(rows).ctr.sum())"
    )
    shutil.copytree(ROOT / "pbodl", tmp_path / "pbodl", ignore=shutil.ignore_patterns("__pycache__", "machine_code"))
    printed, own = [], _code_cache.code_folder()
    for cache in ({}, {"PBODL_CACHE": str(tmp_path / "empty")}):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), **cache}
        done = subprocess.run([sys.executable, "-c", use], env=environment, cwd=tmp_path, capture_output=True, text=True)
        printed.append((done.stdout, done.stderr))
        if not cache:
            assert own is not None and len(list(own.glob("*.code"))) > 5
            shutil.copytree(own, tmp_path / "pbodl" / "machine_code")
    assert printed[0] == printed[1] and printed[0][1] == ""
    assert not list((tmp_path / "empty").rglob("*.code"))
