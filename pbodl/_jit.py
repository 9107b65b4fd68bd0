"""The only module where Numba is configured; `_registers` adds a type to it.

`jit` compiles a plain Python loop, for the processor of `_pinned`, once: `_code_cache` keeps its machine code on disk.

The fast-math flags leave out `nnan` and `ninf`: with them the compiler may assume that NaN and infinity never occur, and would
delete the guards that reject such updates.
"""

import gc
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, event, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.cpu import CPUTargetOptions
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.core.options import TargetOptions
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array, populate_array

from pbodl._code_cache import SHIPPED, SUFFIX, CodeCache
from pbodl._pinned import TARGET

FASTMATH = {"reassoc", "contract", "arcp", "nsz", "afn"}


class _CollectLater(event.Listener):
    """No garbage collection while a function is compiled: it makes millions of objects, hardly any of them garbage, and looking
    through them again and again took a fifth of the time. Compilations are nested, and one thread at a time compiles."""

    depth, collects = 0, False

    def on_start(self, event: Any) -> None:
        if self.depth == 0:
            self.collects = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and self.collects:
            gc.enable()


event.register("numba:compile", _CollectLater())

# A kernel's arrays do not overlap. Without this flag, for which Numba has no option, vector loops test at every entry whether they
# do, or fall back to single numbers. And a kernel counts no references: that is an atomic operation for every view of an array, a
# dozen per layer, and cost as much as a layer's arithmetic.
CPUTargetOptions.noalias = TargetOptions.Mapping("noalias")
KERNEL: dict[str, Any] = {"noalias": True, "_nrt": False}


BY_NAME: dict[str, Any] = {}  # the functions that are compiled when they are called


def compiled_before() -> bool:
    """Whether the learning kernel of this version was compiled for this machine; if not, the first rows wait for it."""
    learn = BY_NAME.get("pbodl.kernels.network.learn_batch")
    return learn is not None and any(CodeCache(learn).entries())


class _PartLibrary(JITCodeLibrary):
    """The code of a part: linked into its callers, which optimise it together with their own. Itself it is never run."""

    def _optimize_final_module(self) -> None:
        """Leave it to the callers."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> "_PartLibrary":
        return self

    def set_env(self, name: str, env: Any) -> None:
        """There is no machine code to give an environment to."""


class _PartCompiler(Compiler):
    """Compiles a function for compiled callers alone."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(typing, target, library or _PartLibrary(target.codegen(), "part"), *rest)


# Python cannot call a part: what translates its arguments took longer to compile than the arithmetic.
PART: dict[str, Any] = {"pipeline_class": _PartCompiler, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


_told: list[bool] = []  # whether somebody has heard in this process that it compiles


def compiling_notice() -> str | None:
    """What to say before a wait for kernels that were never compiled on this machine. Only the first one to ask hears it."""
    if _told:
        return None
    _told.append(True)
    if compiled_before():
        return None
    unfit = "; the machine code in the package is for other versions of its libraries" if any(SHIPPED.glob(f"*{SUFFIX}")) else ""
    return f"PBODL compiles once on this machine, which takes about half a minute{unfit}"


def _compiled(function: Callable[..., Any], fastmath: set[str] = FASTMATH, **options: Any) -> Callable[..., Any]:
    """Compile a function twice at most, and only when it is called: for calls from Python, and as a part of compiled callers."""
    options = {"nogil": True, "fastmath": fastmath, "error_model": "numpy", "_target": TARGET, **options}
    called = numba.njit(function, no_cfunc_wrapper=True, **options)
    if not numba.config.DISABLE_JIT:
        called._cache = CodeCache(called)
        BY_NAME[f"{function.__module__}.{function.__qualname__}"] = called
        part = numba.njit(function, **options, **PART)
        called.get_call_template, called.get_overload = part.get_call_template, part.get_overload
    return called


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` on its first call; cached on disk, and run without the interpreter's lock."""
    return _compiled(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `jit`, for a part of a fused loop: always inlined into its compiled callers.

    An array travels between compiled functions as seven numbers, a bundle of arrays as over a hundred: a call costs more than
    the arithmetic of a small layer. As in a `kernel`, nothing is allocated, and no array is returned.
    """
    return _compiled(function, forceinline=True, **KERNEL)


def in_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `inlined`, for a sum whose order must stay: the compiler would gather scattered numbers to add eight at once, and
    gathering takes longer than adding."""
    return _compiled(function, {"contract"}, forceinline=True, **KERNEL)


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `jit`, for a hot loop that allocates nothing, returns no array, and is given arrays that do not overlap."""
    return _compiled(function, **KERNEL)


def by_type(kind: type, special: Callable[..., Any], general: Callable[..., Any], allocates: bool = False) -> Callable[..., Any]:
    """A function that is `special` for a first argument of this NamedTuple, and `general` for any other.

    Compiled callers choose when they are compiled, and contain one of the two: what a model does not use, it need not wait for. As
    in a `kernel`, nothing is allocated, unless `allocates` says so.
    """

    def chosen(first: Any, *rest: Any) -> Any:
        return (special if isinstance(first, kind) else general)(first, *rest)

    def choose(first: Any, *rest: Any) -> Callable[..., Any]:
        return (special if first.instance_class is kind else general).py_func  # type: ignore[attr-defined]

    options = {"fastmath": FASTMATH, "error_model": "numpy", "forceinline": True, **PART, **({} if allocates else KERNEL)}
    overload(chosen, jit_options=options, strict=False)(choose)
    return chosen


def prefetch(array: Any, row: Any) -> None:
    """Prefetch the start of array[row], which is needed soon: waiting for memory then overlaps with arithmetic."""


@intrinsic
def _prefetch(_: Any, array: Any, row: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = make_array(signature.args[0])(context, builder, arguments[0])
        byte, flag, size = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
        step = builder.extract_value(view.strides, 0)
        address = builder.gep(builder.bitcast(view.data, byte), [builder.mul(builder.zext(arguments[1], size), step)])
        instruction = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, instruction, "llvm.prefetch.p0")
        builder.call(function, [address, flag(0), flag(3), flag(1)])  # to read, into the nearest cache, data
        return context.get_dummy_value()

    return types.void(array, types.uint32), generate


@overload(prefetch, jit_options=PART)
def _compiled_prefetch(array, row):  # Numba compares its signature with the lambda's
    return lambda array, row: _prefetch(array, row)


def first_column(array: Any) -> Any:
    """array[:, 0] of an array of one column; the compiler knows it is contiguous if the array is, and multiplies no strides."""
    return array[:, 0]


@overload(first_column, jit_options=PART)
def _compiled_first_column(array):
    return (lambda array: viewed(array, (array.shape[0],))) if array.layout == "C" else lambda array: array[:, 0]


def viewed(array: Any, shape: Any) -> Any:
    """A contiguous array in another shape, unchecked: Numba's own `reshape` takes half a second to compile."""
    return array.reshape(shape)


@intrinsic
def _viewed(context: Any, array: Any, shape: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        old, new = (
            make_array(signature.args[0])(context, builder, arguments[0]),
            make_array(signature.return_type)(context, builder),
        )
        sizes, strides = cgutils.unpack_tuple(builder, arguments[1]), [old.itemsize]
        for size in sizes[:0:-1]:
            strides.insert(0, builder.mul(size, strides[0]))
        populate_array(new, old.data, sizes, strides, old.itemsize, old.meminfo, old.parent)
        return impl_ret_borrowed(context, builder, signature.return_type, new._getvalue())

    if array.layout != "C":
        raise TypingError("only a contiguous array has views of other shapes")
    return array.copy(ndim=len(shape))(array, types.UniTuple(types.intp, len(shape))), generate  # type: ignore[attr-defined]


@overload(viewed, jit_options=PART)
def _compiled_viewed(array, shape):
    return lambda array, shape: _viewed(array, shape)


@intrinsic
def fetch_add(context, counter, amount):
    """Add to counter[0], an int64, in one atomic step, and return its value before. For compiled code."""

    def generate(context, builder, signature, arguments):
        array = make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, arguments[1], "monotonic")

    return types.int64(counter, types.int64), generate
