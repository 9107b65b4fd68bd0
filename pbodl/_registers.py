"""Registers of eight numbers of float32, for compiled code; in Python they are arrays.

The compiler makes vector instructions of long loops by itself. It often fails where a loop of eight passes is inside others: it
unrolls that loop first, and then finds no way back from single numbers. Here registers are named, and any processor can run it.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model
from numba.np.arrayobj import make_array

from pbodl._jit import PART

REGISTER = 8  # numbers of float32


class Eight(types.Type):
    """The type of a register in compiled code."""

    def __init__(self) -> None:
        super().__init__("eight")


_EIGHT, _VECTOR = Eight(), ir.VectorType(ir.FloatType(), REGISTER)


@register_model(Eight)
class _EightModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _as_part(function: Callable[..., Any], compiled: Any) -> None:
    """Have compiled callers of `function` use an intrinsic."""
    names = ", ".join(inspect.signature(function).parameters)
    overload(function, jit_options=PART)(eval(f"lambda {names}: lambda {names}: compiled({names})", {"compiled": compiled}))


def eight(array: Any, at: Any) -> Any:
    """The numbers `at` to `at` + 7 of a contiguous array, counted as if it had one dimension; unchecked."""
    return array.reshape(-1)[int(at) : int(at) + 8].copy()


def put_eight(array: Any, at: Any, numbers: Any) -> None:
    """Write eight numbers, where `eight` reads them. MODIFIES: array."""
    array.reshape(-1)[int(at) : int(at) + 8] = numbers


def all_eight(x: Any) -> Any:
    """Eight times the same number."""
    return np.full(8, x, np.float32)


def plus_product(a: Any, b: Any, c: Any) -> Any:
    """a + b c, eight at once."""
    return a + b * c


def product(a: Any, b: Any) -> Any:
    """a b, eight at once."""
    return a * b


def roots(a: Any) -> Any:
    """√a, eight at once."""
    return np.sqrt(a)


def sum_of_eight(a: Any) -> Any:
    """The sum of eight numbers."""
    return a.sum()


def one_by_one() -> None:
    """In a loop, keeps the compiler from taking several passes at once: to look up eight numbers of a table it would gather them by
    one instruction, which takes longer than eight loads."""


@intrinsic
def _one_by_one(_: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], True)  # no instruction, but of unknown effect
        return context.get_dummy_value()

    return types.void(), generate


def _address(builder: Any, context: Any, signature: Any, arguments: Any) -> Any:
    data = make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.bitcast(builder.gep(data, [arguments[1]]), _VECTOR.as_pointer())


@intrinsic
def _eight(_: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(builder, context, signature, arguments), align=4)

    return _EIGHT(array, types.uint64), generate


@intrinsic
def _put_eight(_: Any, array: Any, at: Any, numbers: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _address(builder, context, signature, arguments), align=4)
        return context.get_dummy_value()

    return types.void(array, types.uint64, _EIGHT), generate


@intrinsic
def _all_eight(_: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(nothing, arguments[0], ir.IntType(32)(0))
        return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8))

    return _EIGHT(types.float32), generate


@intrinsic
def _plus_product(_: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(arguments[0], builder.fmul(arguments[1], arguments[2]))

    return _EIGHT(_EIGHT, _EIGHT, _EIGHT), generate


@intrinsic
def _product(_: Any, a: Any, b: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(arguments[0], arguments[1])

    return _EIGHT(_EIGHT, _EIGHT), generate


@intrinsic
def _roots(_: Any, a: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_VECTOR, [_VECTOR]), "llvm.sqrt.v8f32")
        return builder.call(function, arguments)

    return _EIGHT(_EIGHT), generate


@intrinsic
def _sum_of_eight(_: Any, a: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (left,) = arguments
        for half in (4, 2, 1):
            mask = ir.VectorType(ir.IntType(32), half)
            lower, upper = (
                builder.shuffle_vector(left, left, ir.Constant(mask, list(range(first, first + half)))) for first in (0, half)
            )
            left = builder.fadd(lower, upper)
        return builder.extract_element(left, ir.IntType(32)(0))

    return types.float32(_EIGHT), generate


for _function, _intrinsic in (
    (eight, _eight), (put_eight, _put_eight), (all_eight, _all_eight), (plus_product, _plus_product), (product, _product),
    (roots, _roots), (sum_of_eight, _sum_of_eight), (one_by_one, _one_by_one),
):  # fmt: skip
    _as_part(_function, _intrinsic)
