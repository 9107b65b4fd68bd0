"""Machine code for one processor, whatever the machine at hand is: the same rows give the same bits everywhere.

A compiler that knows 512-bit registers rounds the remainders of loops otherwise than one that does not. So kernels are compiled for
x86-64-v3 (AVX2 and FMA: processors from 2013 on), whatever the host offers and the variables of Numba ask for. `PBODL_CPU=native`
compiles for the host instead: a few per cent faster, with bits of its own. So does a host that is not x86-64-v3.

Other libraries' compiled functions are left alone: the kernels have a target of their own in Numba.
"""

import os
from functools import partial
from typing import Any

from llvmlite import binding
from numba.core.codegen import JITCPUCodegen
from numba.core.cpu import CPUContext
from numba.core.decorators import jit
from numba.core.registry import CPUDispatcher, CPUTarget
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_override, target_registry

from pbodl.errors import InputError

TARGET = "pbodl"  # its name in Numba
PINNED, NATIVE = CPUS = "x86-64-v3", "native"  # what PBODL_CPU may be
FEATURES = (
    "avx", "avx2", "bmi", "bmi2", "cmov", "cx8", "cx16", "f16c", "fma", "fxsr", "lzcnt", "mmx", "movbe", "popcnt", "sahf", "sse",
    "sse2", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
)  # fmt: skip


def is_pinned() -> bool:
    """Whether kernels are compiled for x86-64-v3, so that they compute the same bits as on other machines."""
    wanted = os.environ.get("PBODL_CPU", PINNED)
    if wanted not in CPUS:
        raise InputError(f"PBODL_CPU is {wanted!r}; it may be {PINNED!r} (the same bits on every machine) or {NATIVE!r}")
    host = binding.get_host_cpu_features()
    return wanted == PINNED and binding.get_process_triple().startswith("x86_64") and all(host.get(name) for name in FEATURES)


class _Codegen(JITCPUCodegen):
    """Generates code for the pinned processor."""

    def _get_host_cpu_name(self) -> str:
        return PINNED if is_pinned() else binding.get_host_cpu_name()

    def _get_host_cpu_features(self) -> str:
        return ",".join(f"+{name}" for name in FEATURES) if is_pinned() else binding.get_host_cpu_features().flatten()


class _Context(CPUContext):
    def init(self) -> None:
        super().init()
        self._internal_codegen = _Codegen("pbodl.exec")


class _Descriptor(CPUTarget):
    """Numba's description of a target: the contexts are made when something is compiled or loaded."""

    @property
    def _toplevel_target_context(self) -> _Context:
        if self._context is None:
            self._context = _Context(self.typing_context, TARGET)
        return self._context

    _context: _Context | None = None


class Target(CPU):
    """The kernels' target. Whatever Numba knows to compile for a CPU is compiled for it as well."""


class PinnedDispatcher(CPUDispatcher):
    """A compiled function of PBODL."""

    targetdescr = _Descriptor(TARGET)

    def compile(self, signature: Any) -> Any:
        with target_override(TARGET):  # for what Numba looks up while it writes code
            return super().compile(signature)


target_registry[TARGET] = Target
dispatcher_registry[Target] = PinnedDispatcher
jit_registry[Target] = partial(jit, _target=TARGET)
