"""The same rows give the same bits on every x86-64 machine with AVX2 and FMA, whatever processor and libraries would choose.

`BITS` compares machines that never met: it was written by one of them. What changes the arithmetic of a kernel changes it, too;
`python -m tests.bits` prints it anew.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import llvmlite
import pytest
from llvmlite import binding

from pbodl import _pinned
from pbodl.errors import InputError
from tests import bits
from tests.pages import ROOT

# By the version of the compiler; for others, that of the processors is compared alone.
BITS: dict[str, dict[str, list[str]]] = {
    "0.50": {
        "pair-fm": ["60039f6d89249c16", "2f6a091564fa670b", "f55271413b3b9b17"],
        "fm-mlp": ["01232c9ca8954f4b", "900afdd67d7c9a06"],
        "ffm-mlp": ["1e9f9d19b24541dd"],
        "deep-probit": ["b4c25d9a3eca8340"],
        "sparse-mlp": ["2ded760b50486e19"],
        "adpredictor": ["4cf4d12bd7fe5b48"],
        "ftrl": ["40e7853fb7963bf0"],
        "matchbox": ["0e79d3b181307f2b"],
    },
}
VERSION = ".".join(llvmlite.__version__.split(".")[:2])
HOST = binding.get_host_cpu_features()
AVX512 = "avx512f" in HOST and HOST["avx512f"]
pytestmark = pytest.mark.skipif(not _pinned.is_pinned() or bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="other bits by design")

# What an environment may ask the compiler for, and what makes the libraries below choose other loops.
ASKED = {
    "the host": (binding.get_host_cpu_name(), HOST.flatten()),
    "x86-64-v3": ("x86-64-v3", ""),
    "haswell": ("haswell", ""),
    "znver2": ("znver2", ""),
    "256 bits": ("skylake-avx512", "+prefer-256-bit"),
    "512 bits": ("skylake-avx512", "-prefer-256-bit"),
}
WITHOUT_WIDE = {"NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX X86_V4 AVX512_ICL", "OPENBLAS_CORETYPE": "Haswell"}
LIBRARIES = {
    "without 512 bits": WITHOUT_WIDE,
    "BLAS for other processors": {"OPENBLAS_CORETYPE": "SkylakeX" if AVX512 else "Zen"},
    "BLAS for old processors": {"OPENBLAS_CORETYPE": "Sandybridge"},
}


def of(variables: dict[str, str], *kinds: str) -> dict[str, list[str]]:
    """What a process with these variables computes."""
    command = [sys.executable, "-m", "tests.bits", *kinds]
    done = subprocess.run(command, env={**os.environ, **variables}, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def asked_for(name: str) -> dict[str, str]:
    cpu, features = ASKED[name]
    if "avx512" in f"{cpu}{features}" and not AVX512:
        pytest.skip("this processor has no registers of 512 bits")
    return {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}


@pytest.fixture(scope="module")
def here() -> dict[str, list[str]]:
    return of({})


def test_these_are_the_bits_of_other_machines(here):
    if VERSION not in BITS:
        pytest.skip(f"nobody wrote down the bits of llvmlite {VERSION}")
    assert here == BITS[VERSION]
    assert list(here) == list(bits.OPTIONS)


@pytest.mark.parametrize("name", LIBRARIES)
def test_no_library_chooses_the_bits(here, name):
    assert of(LIBRARIES[name]) == here


def test_no_environment_chooses_the_bits(here, tmp_path):
    variables = asked_for("512 bits" if AVX512 else "the host")
    assert of({**variables, "PBODL_CACHE": str(tmp_path)}, "pair-fm") == {"pair-fm": here["pair-fm"]}
    assert list(Path(tmp_path).rglob("network.learn_batch-*"))  # it was compiled anew


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_nothing_that_is_asked_for_chooses_the_bits_of_any_kind(here, name, tmp_path):
    assert of({**asked_for(name), "PBODL_CACHE": str(tmp_path)}) == here


def test_the_processor_can_be_left_to_the_host(monkeypatch):
    assert _pinned._Codegen("test").magic_tuple()[1:] == (_pinned.PINNED, ",".join(f"+{name}" for name in _pinned.FEATURES))
    monkeypatch.setenv("PBODL_CPU", "native")
    assert not _pinned.is_pinned()
    assert _pinned._Codegen("test").magic_tuple()[1:] == (binding.get_host_cpu_name(), HOST.flatten())
    monkeypatch.setenv("PBODL_CPU", "z80")
    with pytest.raises(InputError, match="PBODL_CPU is 'z80'; it may be 'x86-64-v3'"):
        _pinned.is_pinned()


def test_a_host_without_these_instructions_compiles_for_itself(monkeypatch):
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: {**HOST, "avx2": False})
    assert not _pinned.is_pinned()


def test_other_compiled_functions_are_left_alone():
    import numba

    assert numba.njit(lambda x: x).targetctx.codegen().magic_tuple()[1] == (numba.config.CPU_NAME or binding.get_host_cpu_name())
