"""Fields of kind `number`: reading quantities, and cutting them into log-spaced buckets.

Bucket of x: sign(x) floor(r log₂(1 + |x|)), r to an octave (four by default), the sign kept. It is computed from the
number's binary exponent and comparisons, not from a logarithm, whose last bit differs between machines. A field may have edges of
its own instead: bucket i holds the numbers from edge i - 1 on, and below edge i.

A curve has a feature for each edge. A number between two edges has a share of both, in proportion to its distance from the other;
one beyond the edges has the outermost whole. So the effect is a curve of straight lines, and neighbouring edges learn together.
"""

import bisect
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.errors import InputError

LARGEST = float(np.finfo(np.float32).max)
USUAL = 4  # buckets to an octave
MOST = 64


@functools.lru_cache(maxsize=MOST)
def _edges(resolution: int) -> tuple[float, ...]:
    """Where the buckets of an octave end, but the last."""
    return tuple(2.0 ** (part / resolution) for part in range(1, resolution))


def parse_number(value: Any) -> float:
    """A number from a Python value, NaN if it is missing; ValueError or TypeError if it is neither."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return math.nan
    if isinstance(value, bytes):
        raise TypeError("bytes are no number")
    return float(value)


def bucket(number: float, resolution: int = USUAL, edges: Sequence[float] = ()) -> int:
    """The bucket of one finite number.

    >>> [bucket(x) for x in (-3.0, 0.0, 1.0, 3.0, 1000.0)], bucket(1000.0, 1), bucket(2.5, edges=[1.0, 2.5])
    ([-8, 0, 4, 8, 39], 9, 2)
    """
    if edges:
        return bisect.bisect_right(edges, number)
    fraction, exponent = math.frexp(1.0 + abs(number))
    part = sum(2.0 * fraction >= edge for edge in _edges(resolution))
    size = resolution * (exponent - 1) + part
    return -size if number < 0 else size


def buckets(numbers: NDArray[np.float64], resolution: int = USUAL, edges: Sequence[float] = ()) -> NDArray[np.int64]:
    """The bucket of every number; all must be finite."""
    if edges:
        return np.searchsorted(np.array(edges), numbers, side="right").astype(np.int64)
    fraction, exponent = np.frexp(1.0 + np.abs(numbers))
    size = resolution * (exponent.astype(np.int64) - 1)
    for edge in _edges(resolution):
        size += 2.0 * fraction >= edge
    return np.where(numbers < 0, -size, size)


def shares(number: float, edges: Sequence[float]) -> list[tuple[int, float]]:
    """The edges of a curve that a finite number has a share of, and the shares.

    >>> shares(2.5, [1.0, 2.0, 4.0]), shares(2.0, [1.0, 2.0, 4.0]), shares(9.0, [1.0, 2.0, 4.0])
    ([(1, 0.75), (2, 0.25)], [(1, 1.0)], [(2, 1.0)])
    """
    left = min(max(bisect.bisect_right(edges, number) - 1, 0), len(edges) - 2)
    low, high = edges[left], edges[left + 1]
    share = float(np.float32((min(max(number, edges[0]), edges[-1]) - low) / (high - low)))
    return [(index, part) for index, part in ((left, 1.0 - share), (left + 1, share)) if part > 0.0]


def curve(numbers: NDArray[np.float64], edges: Sequence[float]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For every finite number an edge of the curve, and the share of the next edge, as `shares`; the edge has the rest."""
    knots = np.array(edges)
    left = np.clip(np.searchsorted(knots, numbers, side="right") - 1, 0, len(knots) - 2)
    share = (np.clip(numbers, knots[0], knots[-1]) - knots[left]) / (knots[left + 1] - knots[left])
    return left.astype(np.int64), share.astype(np.float32)


def logarithm(number: float) -> float:
    """The logarithm of one more than a number, its sign kept."""
    return math.copysign(math.log1p(abs(number)), number)


def logarithms(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `logarithm`, for an array; number by number, since NumPy's last bit may differ."""
    distinct, places = np.unique(numbers, return_inverse=True)
    return np.array([logarithm(number) for number in distinct.tolist()], dtype=np.float64)[places]


def check_multiplier(number: float, row: int, column: str) -> float:
    """The number itself; multipliers are float32, and one that does not fit is an error."""
    if abs(number) > LARGEST:
        raise InputError(
            f"row {row}: number field {column!r} holds {number!r}, too large to be a multiplier; "
            "use transform='buckets', or a larger unit"
        )
    return number


def multipliers(numbers: NDArray[np.float64], column: str) -> NDArray[np.float32]:
    """Numbers as float32 multipliers."""
    large = np.abs(numbers) > LARGEST
    if large.any():
        row = int(np.argmax(large))
        check_multiplier(float(numbers[row]), row, column)
    return numbers.astype(np.float32)


def bad_number(row: int, column: str, value: Any) -> InputError:
    return InputError(
        f"row {row}: number field {column!r} holds {value!r}; it must be a finite number, or empty, None or NaN for missing"
    )


def parse_numbers(values: pa.Array, column: str) -> NDArray[np.float64]:
    """The numbers of an Arrow array, NaN where missing; an InputError names the first row with neither."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        numbers = pc.fill_null(pc.cast(values, pa.float64(), safe=False), np.nan).to_numpy()
    elif pa.types.is_nested(kind):
        raise InputError(f"number field {column!r} has type {kind}; it must hold numbers")
    else:
        numbers = _parse_objects(values, column)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise bad_number(row, column, values[row].as_py())
    return numbers


def _parse_objects(values: pa.Array, column: str) -> NDArray[np.float64]:
    """Through Python, but each distinct value once."""
    coded = pc.dictionary_encode(values, null_encoding="encode")
    codes = coded.indices.to_numpy()
    parsed = np.empty(len(coded.dictionary))
    for code, value in enumerate(coded.dictionary.to_pylist()):
        try:
            parsed[code] = parse_number(value)
        except (ValueError, TypeError) as error:
            raise bad_number(int(np.argmax(codes == code)), column, value) from error
    return parsed[codes]
