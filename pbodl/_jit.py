"""The only module where Numba is configured.

`jit` compiles a plain Python loop. Its machine code is cached on disk in a folder named by a hash of the sources it can call:
Numba's own cache looks at the file of the *caller* alone, and would serve stale code after an edit of a callee.

The fast-math flags leave out `nnan` and `ninf`: with them the compiler may assume that NaN and infinity never occur, and would
delete the guards that reject such updates.
"""

import functools
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.cpu import CPUTargetOptions
from numba.core.options import TargetOptions
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

FASTMATH = {"reassoc", "contract", "arcp", "nsz", "afn"}

# A kernel's arrays do not overlap. Without this flag, for which Numba has no option, vector loops test at every entry whether they
# do, or fall back to single numbers. And a kernel counts no references: that is an atomic operation for every view of an array, a
# dozen per layer, and cost as much as a layer's arithmetic.
CPUTargetOptions.noalias = TargetOptions.Mapping("noalias")
KERNEL: dict[str, Any] = {"noalias": True, "_nrt": False}


# Compiled code calls code of its own layer and of those before it, so it is stale only when one of these was edited.
LAYERS = (
    "_jit", "mixing", "gaussian", "kernels", "data", "models", "publishing", "baselines", "training", "parallel", "streaming",
    "serving", "experiments",
)  # fmt: skip


def _cache_home() -> Path | None:
    """A folder of this user that can be written: the usual one, or one in the temporary folder; None if there is none."""
    named = os.environ.get("PBODL_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    places = (Path(named) / "pbodl", Path(tempfile.gettempdir()) / f"pbodl-cache-{os.geteuid()}")
    return next((place for place in places if _usable(place)), None)


def _usable(folder: Path) -> bool:
    """Whether files can be written there, and by nobody else: cached code is run."""
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            about = folder.stat()
            return about.st_uid in (0, os.geteuid()) and not about.st_mode & stat.S_IWOTH
    except OSError:
        return False


@functools.cache
def _cache_folder(layer: str) -> str | None:
    if "NUMBA_CACHE_DIR" in os.environ:
        return os.environ["NUMBA_CACHE_DIR"]
    if (home := _cache_home()) is None:
        return None
    package = Path(__file__).parent
    digest = hashlib.blake2b(f"{numba.__version__} {sys.version}".encode(), digest_size=8)
    for below in LAYERS[: LAYERS.index(layer) + 1]:
        for source in sorted([*package.glob(f"{below}.py"), *package.glob(f"{below}/**/*.py")]):
            digest.update(source.read_bytes())
    return str(home / f"numba-{layer}-{digest.hexdigest()}")


def compiled_before() -> bool:
    """Whether kernels of this version were compiled on this machine; if not, the first rows wait for it."""
    folder = _cache_folder("kernels")
    return folder is not None and os.path.isdir(folder) and any(os.scandir(folder))


def _compiled(function: Callable[..., Any], fastmath: set[str] = FASTMATH, **options: Any) -> Callable[..., Any]:
    layer = f"{function.__module__}.".split(".")[1]
    folder = _cache_folder(layer if layer in LAYERS else LAYERS[-1])
    # Numba reads the cache folder while it decorates: set it for ours alone, and leave other packages' as it is.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder or ""
    try:
        return numba.njit(function, cache=folder is not None, nogil=True, fastmath=fastmath, error_model="numpy", **options)
    finally:
        numba.config.CACHE_DIR = before


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

    options = {"fastmath": FASTMATH, "error_model": "numpy", "forceinline": True, **({} if allocates else KERNEL)}
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


@overload(prefetch)
def _compiled_prefetch(array, row):  # Numba compares its signature with the lambda's
    return lambda array, row: _prefetch(array, row)


def first_column(array: Any) -> Any:
    """array[:, 0] of an array of one column; the compiler knows it is contiguous if the array is, and multiplies no strides."""
    return array[:, 0]


@overload(first_column)
def _compiled_first_column(array):
    return (lambda array: array.reshape(array.shape[0])) if array.layout == "C" else lambda array: array[:, 0]


@intrinsic
def fetch_add(context, counter, amount):
    """Add to counter[0], an int64, in one atomic step, and return its value before. For compiled code."""

    def generate(context, builder, signature, arguments):
        array = make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, arguments[1], "monotonic")

    return types.int64(counter, types.int64), generate
