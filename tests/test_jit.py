"""Compiled helpers do as the plain ones."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from numba.core.caching import NullCache

from pbodl import _jit

compiled = pytest.mark.skipif(_jit.numba.config.DISABLE_JIT, reason="needs the compiler")


def anew(function):
    """Compile a function without a cache on disk: what comes from a cache has no code to look at."""
    compiled_function = _jit.jit(function)
    compiled_function._cache = NullCache()  # as plain Python, nobody asks for it
    return compiled_function


@anew
def total_with_prefetch(array, rows):
    total = 0.0
    for row in rows:
        _jit.prefetch(array, np.uint32(row))
        total += array[row].sum()
    return total


@anew
def sum_of_first_column(array):
    total, column = 0.0, _jit.first_column(array)
    for i in range(len(column)):
        total += column[i]
    return total


@anew
def transposed_sum(numbers, rows, columns):
    """Σ (i + 1) (10 j + 1) of a view with these rows and columns."""
    total, table = 0.0, _jit.viewed(numbers, (rows, columns))
    for i in range(rows):
        for j in range(columns):
            total += (i + 1) * (10 * j + 1) * table[i, j]
    return total


@anew
def double_in_view(numbers):
    view = _jit.viewed(numbers, (len(numbers),))
    for i in range(len(view)):
        view[i] *= 2


@anew
def view_of_its_own(n):
    """A view of an array that only the view keeps alive."""
    return _jit.viewed(np.ones(2 * n), (n, 2))


@anew
def view_of_a_column(array):
    return _jit.viewed(array[:, 0], (1, 2))[0, 0]


@anew
def take_numbers(counter, taken):
    number = _jit.fetch_add(counter, 1)
    while number < len(taken):
        taken[number] += 1
        number = _jit.fetch_add(counter, 1)


@pytest.mark.nojit
def test_a_prefetch_changes_nothing():
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert total_with_prefetch(array, np.array([3, 0])) == array[[3, 0]].sum()


@pytest.mark.nojit
@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (1, 12), (12, 1)])
def test_a_view_has_the_same_numbers_in_another_shape(shape):
    numbers = np.random.default_rng(1).normal(size=12)
    ref = np.einsum("i,j,ij", np.arange(shape[0]) + 1, 10 * np.arange(shape[1]) + 1, numbers.reshape(shape))
    assert transposed_sum(numbers, *shape) == pytest.approx(ref)
    before = numbers.copy()
    double_in_view(numbers)
    np.testing.assert_array_equal(numbers, 2 * before)


@pytest.mark.nojit
def test_a_view_keeps_its_numbers_alive():
    views = [view_of_its_own(n) for n in range(1, 200)]
    assert [view.shape for view in views] == [(n, 2) for n in range(1, 200)] and all((view == 1).all() for view in views)


@compiled
def test_a_column_of_a_table_has_no_views_of_other_shapes():
    with pytest.raises(_jit.TypingError, match="only a contiguous array"):
        view_of_a_column(np.ones((2, 3)))


@compiled
@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_after_a_compilation_if_it_was_before(collects):
    seen = []

    @_jit.numba.njit
    def inner(x):
        return x + 1

    class Watch(_jit.event.Listener):
        def on_start(self, event):
            seen.append(gc.isenabled())

        on_end = on_start

    before, watch = gc.isenabled(), Watch()
    _jit.event.register("numba:compile", watch)
    try:
        (gc.enable if collects else gc.disable)()
        _jit.numba.njit(lambda x: inner(x) * 2)(1)
        after = gc.isenabled()
        with pytest.raises(_jit.TypingError):
            _jit.numba.njit(lambda x: inner(x) + "a")(1)
        assert gc.isenabled() == after == collects
    finally:
        _jit.event.unregister("numba:compile", watch)
        (gc.enable if before else gc.disable)()
    assert len(seen) >= 4 and not any(seen[:3])


@_jit.inlined
def plus(first, amount):
    return first.x + amount


@_jit.inlined
def minus(first, amount):
    return first.x - amount


class Plus(NamedTuple):
    x: float


class Minus(NamedTuple):
    x: float


by_sign = _jit.by_type(Plus, plus, minus)


@anew
def call_by_sign(first, amount):
    return by_sign(first, amount)


@pytest.mark.nojit
def test_a_function_is_chosen_by_the_type_of_its_first_argument():
    for call in (by_sign, call_by_sign):
        assert (call(Plus(5.0), 2.0), call(Minus(5.0), 2.0)) == (7.0, 3.0)


@compiled
def test_a_caller_contains_only_the_function_that_was_chosen():
    call_by_sign(Minus(5.0), 2.0), call_by_sign(Plus(5.0), 2.0)
    for signature in call_by_sign.signatures:
        text = call_by_sign.inspect_llvm(signature)
        assert ("fadd" in text, "fsub" in text) == ((True, False) if "Plus" in str(signature[0]) else (False, True))


@compiled
def test_a_prefetch_is_an_instruction():
    array = np.ones((4, 3), np.float32)
    total_with_prefetch(array, np.array([1]))
    assert any("prefetch" in text for text in total_with_prefetch.inspect_asm().values())


@pytest.mark.nojit
@pytest.mark.parametrize("array", [np.arange(5.0).reshape(5, 1), np.arange(10.0).reshape(5, 2)[:, 1:]], ids=["dense", "gaps"])
def test_the_first_column_of_an_array_of_one(array):
    assert sum_of_first_column(array) == array.sum()


@compiled
def test_threads_that_count_together_take_every_number_once():
    counter, taken = np.zeros(1, np.int64), np.zeros(100_000, np.int64)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: take_numbers(counter, taken), range(4)))
    assert (taken == 1).all()


@compiled
def test_guards_against_nan_survive_the_flags():
    @_jit.jit
    def finite(x):
        return np.isfinite(x)

    assert [finite(np.float32(x)) for x in (1.0, np.nan, np.inf)] == [True, False, False]


@_jit.inlined
def doubled(x):
    return x + x


@anew
def doubled_and_one(x):
    return doubled(x) + 1


@compiled
def test_a_part_of_a_compiled_function_is_compiled_for_python_only_when_python_calls_it():
    assert doubled_and_one(3) == 7
    assert not doubled.overloads
    assert doubled(3) == 6
    assert len(doubled.overloads) == 1


@compiled
def test_a_part_has_no_machine_code_of_its_own():
    doubled_and_one(3)
    part = doubled.get_call_template.__self__
    (compiled_part,) = part.overloads.values()
    assert compiled_part.library.get_pointer_to_function(compiled_part.fndesc.llvm_cpython_wrapper_name) == 0


def test_only_the_first_hears_that_it_compiles(monkeypatch):
    monkeypatch.setattr(_jit, "_told", [])
    monkeypatch.setattr(_jit, "compiled_before", lambda: False)
    assert "compiles once" in _jit.compiling_notice() and _jit.compiling_notice() is None


def test_it_says_when_the_machine_code_of_the_package_does_not_fit(monkeypatch, tmp_path):
    (tmp_path / "network.learn_batch-0-0.code").touch()
    monkeypatch.setattr(_jit, "_told", [])
    monkeypatch.setattr(_jit, "compiled_before", lambda: False)
    monkeypatch.setattr(_jit, "SHIPPED", tmp_path)
    assert "other versions" in _jit.compiling_notice()


@compiled
def test_importing_compiles_nothing_and_does_not_look_as_if(tmp_path):
    asked = "import pbodl; from pbodl import _jit; print(_jit.compiled_before(), len(_jit.BY_NAME) > 99)"
    environment = {**os.environ, "PBODL_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr
