"""Labels (0 or 1) and weights (finite, not negative). Anything else is an error that names its row."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.numbers import LARGEST
from pbodl.errors import InputError


def check_label(value: Any, row: int, column: str) -> float:
    """The label of one sample as 0.0 or 1.0."""
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)) and value in (0, 1):
        return float(value)
    raise InputError(f"row {row}: label {column!r} holds {value!r}; it must be 0 or 1 (or False or True)")


def check_weight(value: Any, row: int, column: str) -> float:
    """The weight of one sample."""
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)) and 0 <= value <= LARGEST:
        return float(value)
    raise InputError(f"row {row}: weight {column!r} holds {value!r}; it must be a finite number of at least 0")


def parse_labels(values: pa.Array, column: str) -> NDArray[np.float32]:
    """The labels of an Arrow array."""
    numbers = _numbers(values)
    good = (numbers == 0) | (numbers == 1)
    if not good.all():
        row = int(np.argmin(good))
        check_label(values[row].as_py(), row, column)
    return numbers.astype(np.float32)


def parse_weights(values: pa.Array, column: str) -> NDArray[np.float32]:
    """The weights of an Arrow array."""
    numbers = _numbers(values)
    good = (numbers >= 0) & (numbers <= LARGEST)
    if not good.all():
        row = int(np.argmin(good))
        check_weight(values[row].as_py(), row, column)
    return numbers.astype(np.float32)


def _numbers(values: pa.Array) -> NDArray[np.float64]:
    """The column as floats, NaN where it holds no number."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return np.full(len(values), np.nan)
    return pc.fill_null(pc.cast(values, pa.float64(), safe=False), np.nan).to_numpy()
