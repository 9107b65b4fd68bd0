"""Machine code on disk, found by the content of the code that it was made from.

The name of an entry holds two fingerprints. The first is of a function: its bytecode, without docstring and line numbers, and all
that it refers to, function by function. The second is of the types of its arguments, the versions of Python and of the compiler,
and the processor. So clones, environments and containers share entries, an edit makes stale what depends on it and nothing else,
and entries can ship with the package. An entry that is damaged, or cannot be read, is compiled anew.

Machine code can do whatever it likes, so entries are read from where only this user and root can write. That is why they may be
pickles, as those of Numba are.
"""

import ast
import contextlib
import functools
import hashlib
import os
import pickle
import platform
import stat
import sys
import tempfile
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

PACKAGE = Path(__file__).parent
SHIPPED = PACKAGE / "machine_code"  # entries that a wheel brings
# These files say how all others are compiled, by means that bytecode does not show.
COMPILING = ("_jit", "_pinned", "_registers", "_code_cache")
SUFFIX = ".code"
DIGEST = 32  # bytes before an entry's content
HAS_DOCSTRING = 0x4000000  # a flag of code since Python 3.13; before, a docstring is the first constant


class Unknown(Exception):
    """A function refers to something of which there is no fingerprint."""


def cache_home() -> Path | None:
    """A folder of this user that can be written: the usual one, or one in the temporary folder; None if there is none."""
    named = os.environ.get("PBODL_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folders = (Path(named) / "pbodl", Path(tempfile.gettempdir()) / f"pbodl-cache-{os.geteuid()}")
    return next((folder for folder in folders if _usable(folder)), None)


@functools.cache
def _usable(folder: Path) -> bool:
    """Whether files can be written there, and by nobody else: cached code is run. Tried once in a process."""
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            about = folder.stat()
            return about.st_uid in (0, os.geteuid()) and not about.st_mode & stat.S_IWOTH
    except OSError:
        return False


def code_folder() -> Path | None:
    """Where this user's entries are."""
    home = cache_home()
    return None if home is None else home / "machine-code"


def _digest(*parts: bytes) -> bytes:
    total = hashlib.blake2b(digest_size=DIGEST)
    for part in parts:
        total.update(len(part).to_bytes(8, "little") + part)
    return total.digest()


class Fingerprints:
    """Fingerprints of functions, each worked out once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bytes]] = {}  # by identity; the object is kept, so that no other gets its number

    def of(self, thing: Any) -> bytes:
        """The fingerprint of whatever compiled code refers to."""
        if isinstance(thing, (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)):
            return _digest(type(thing).__name__.encode(), repr(thing).encode())
        if id(thing) not in self._known:
            self._known[id(thing)] = thing, b"itself"  # if it is met again before it is known
            try:
                self._known[id(thing)] = thing, self._parts(thing)
            except Unknown:
                del self._known[id(thing)]
                raise
        return self._known[id(thing)][1]

    def _parts(self, thing: Any) -> bytes:
        if isinstance(thing, Dispatcher):
            options = {name: _ordered(value) for name, value in thing.targetoptions.items()}
            return _digest(b"compiled", repr(sorted(options.items())).encode(), self.of(thing.py_func))
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, np.ndarray):
            return _digest(b"array", str((thing.dtype, thing.shape)).encode(), thing.tobytes())
        if isinstance(thing, type):
            names = repr((thing.__module__, thing.__qualname__, getattr(thing, "_fields", ())))
            return _digest(b"type", names.encode())
        if isinstance(thing, tuple):
            return _digest(b"tuple", type(thing).__qualname__.encode(), *map(self.of, thing))
        if isinstance(thing, (types.ModuleType, types.BuiltinFunctionType, np.ufunc)) and not _is_ours(thing):
            return _digest(b"named", thing.__name__.encode())
        if callable(thing) and (_is_ours(thing, COMPILING) or not _is_ours(thing)):
            return _digest(b"named", f"{thing.__module__}.{getattr(thing, '__qualname__', repr(type(thing)))}".encode())
        raise Unknown(f"{thing!r} of type {type(thing)}")

    def _function(self, function: types.FunctionType) -> bytes:
        closure = [cell.cell_contents for cell in function.__closure__ or ()]
        if not _is_ours(function) and not closure:
            return _digest(b"named", f"{function.__module__}.{function.__qualname__}".encode())
        name = f"{function.__module__}.{function.__qualname__}"
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        code = self._code(function.__code__, function.__globals__)
        return _digest(b"function", name.encode(), code, *map(self.of, closure), b"defaults", *map(self.of, defaults))

    def _code(self, code: types.CodeType, names: dict[str, Any]) -> bytes:
        parts = [code.co_code, code.co_exceptiontable, repr((code.co_varnames, code.co_freevars, code.co_names)).encode()]
        parts.append(repr((code.co_argcount, code.co_kwonlyargcount, code.co_flags & 0xFF)).encode())
        constants = list(code.co_consts)
        if constants and isinstance(constants[0], str) and (sys.version_info < (3, 13) or code.co_flags & HAS_DOCSTRING):
            constants[0] = None
        for constant in constants:
            parts.append(self._code(constant, names) if isinstance(constant, types.CodeType) else self._constant(constant))
        parts.extend(self.of(names[name]) for name in code.co_names if name in names)
        return _digest(*parts)

    def _constant(self, constant: Any) -> bytes:
        if isinstance(constant, (tuple, frozenset)):
            return _digest(*(self._constant(part) for part in (constant if isinstance(constant, tuple) else sorted(constant))))
        return _digest(repr(constant).encode())


FINGERPRINTS = Fingerprints()


def _ordered(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else getattr(value, "__qualname__", value)


def _is_ours(thing: Any, modules: tuple[str, ...] = ()) -> bool:
    """Whether it comes from this package; with `modules`, from one of these."""
    name = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None) or ""
    package = __name__.rpartition(".")[0]
    return name in {f"{package}.{module}" for module in modules} if modules else name.partition(".")[0] == package


def _compiler() -> bytes:
    """The fingerprint of what turns code into machine code: versions, processor, options, and our own means of compiling."""
    config = numba.config
    options = (config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE, config.BOUNDSCHECK, config.USING_SVML)
    libraries = (numba.__version__, llvmlite.__version__, np.__version__)
    versions = (sys.implementation.cache_tag, sys.abiflags, platform.machine(), libraries, options)
    return _digest(repr(versions).encode(), *(_syntax((PACKAGE / f"{name}.py").read_text("utf-8")) for name in COMPILING))


def _syntax(source: str) -> bytes:
    """The syntax tree of a file, without docstrings and comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and isinstance(node.body[0], ast.Expr):
            node.body[0] = ast.Pass()
    return ast.dump(tree).encode()


COMPILER: list[bytes] = []  # once it was needed


class CodeCache:
    """The entries of one function; Numba's dispatcher calls it as it calls its own cache."""

    def __init__(self, called: Dispatcher) -> None:
        function = called.py_func
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._called, self._name = called, name.replace("<", "").replace(">", "")

    @property
    def cache_path(self) -> str:
        """Where entries are written; importing alone looks at no folder."""
        return str(code_folder())

    def entries(self) -> Iterator[Path]:
        """All entries of this function as it is now, whatever the types of its arguments."""
        if (pattern := self._pattern()) is not None:
            for folder in (SHIPPED, code_folder()):
                if folder is not None:
                    yield from folder.glob(f"{pattern}-*{SUFFIX}")

    def load_overload(self, signature: Any, context: Any) -> CompileResult | None:
        """The compiled function for arguments of these types, or None if it must be compiled."""
        context.refresh()
        name = self._entry(signature, context.codegen())
        for folder in (SHIPPED, code_folder()):
            if name is not None and folder is not None and (content := _read(folder / name)) is not None:
                try:
                    return _rebuilt(context, content)
                except Exception:  # whatever it is, it can be compiled
                    continue
        return None

    def save_overload(self, signature: Any, compiled: CompileResult) -> None:
        """Keep a compiled function. Whoever cannot write does without."""
        name, folder = self._entry(signature, compiled.codegen), code_folder()
        if name is None or folder is None or compiled.lifted or compiled.library.has_dynamic_globals:
            return
        content, new = _reduced(compiled), folder / f"{os.getpid()}-{threading.get_ident()}.new"
        try:
            folder.mkdir(0o700, exist_ok=True)
            new.write_bytes(_digest(content) + content)
            new.replace(folder / name)  # a reader sees the whole entry or none
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)

    def flush(self) -> None:
        """Numba asks for it when a function is compiled again by hand."""

    def _pattern(self) -> str | None:
        try:
            return f"{self._name}-{FINGERPRINTS.of(self._called).hex()[:24]}"
        except Unknown:
            return None

    def _entry(self, signature: Any, codegen: Any) -> str | None:
        """The file name of an entry."""
        if not COMPILER:
            COMPILER.append(_compiler())
        if (pattern := self._pattern()) is None:
            return None
        made_for = _digest(COMPILER[0], repr(codegen.magic_tuple()).encode(), str(signature).encode())
        return f"{pattern}-{made_for.hex()[:24]}{SUFFIX}"


def _reduced(compiled: CompileResult) -> bytes:
    """A compiled function as bytes. Nobody compiles it into another function, so its intermediate code is left out."""
    (name, kind, (machine_code, _)), about, environment, signature, objectmode, lifted, _, *rest = compiled._reduce()
    module = compiled.library._get_module_for_linking()
    symbols = [thing.name for part in (module.functions, module.global_variables) for thing in part if not thing.is_declaration]
    nothing = (name, kind, (machine_code, binding.parse_assembly("").as_bitcode()))
    return dumps((symbols, (nothing, about, environment, signature, objectmode, lifted, "", *rest)))


def _rebuilt(context: Any, content: bytes) -> CompileResult:
    symbols, parts = pickle.loads(content)
    context.codegen()._engine._defined_symbols.update(symbols)
    return CompileResult._rebuild(context, *parts)


def _read(path: Path) -> bytes | None:
    """The content of an entry, if it is there and whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content = data[DIGEST:]
    return content if _digest(content) == data[:DIGEST] else None
