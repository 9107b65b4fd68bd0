"""Labels (0 or 1, or a word for them) and weights (finite, not negative). Anything else is an error that names its row."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.numbers import LARGEST
from pbodl.data.times import is_text
from pbodl.errors import InputError

WORDS = {
    "0": 0, "0.0": 0, "false": 0, "f": 0, "no": 0, "n": 0, "off": 0,
    "1": 1, "1.0": 1, "true": 1, "t": 1, "yes": 1, "y": 1, "on": 1,
}  # fmt: skip


def check_label(value: Any, row: int, column: str) -> float:
    """The label of one sample as 0.0 or 1.0.

    >>> [check_label(value, 0, "click") for value in (1, True, "yes", "False")]
    [1.0, 1.0, 1.0, 0.0]
    """
    if isinstance(value, str):
        value = WORDS.get(value.strip().lower(), value)
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)) and value in (0, 1):
        return float(value)
    raise InputError(f"row {row}: label {column!r} holds {value!r}; it must be 0 or 1 (or False or True, no or yes)")


def check_weight(value: Any, row: int, column: str) -> float:
    """The weight of one sample."""
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)) and 0 <= value <= LARGEST:
        return float(value)
    raise InputError(f"row {row}: weight {column!r} holds {value!r}; it must be a finite number of at least 0")


def parse_labels(values: pa.Array, column: str) -> NDArray[np.float32]:
    """The labels of an Arrow array."""
    numbers = _worded(values) if is_text(values.type) else _numbers(values)
    good = (numbers == 0) | (numbers == 1)
    if not good.all():
        row = int(np.argmin(good))
        check_label(values[row].as_py(), row, column)
    return numbers.astype(np.float32)


def labels_of_texts(texts: pa.Array) -> pa.Array:
    """0 and 1, null where there is no text; the texts themselves if one of them is no label."""
    numbers, there = _worded(texts), pc.is_valid(texts).to_numpy(zero_copy_only=False)
    return texts if np.isnan(numbers[there]).any() else pa.array(np.where(there, numbers, 0).astype(np.int8), mask=~there)


def _worded(texts: pa.Array) -> NDArray[np.float64]:
    """The labels that texts stand for, NaN where they stand for none; each distinct text is parsed once."""
    coded = texts if pa.types.is_dictionary(texts.type) else pc.dictionary_encode(texts)
    values = [WORDS.get((text or "").strip().lower(), np.nan) for text in coded.dictionary.to_pylist()]
    return np.array([*values, np.nan])[pc.fill_null(coded.indices, len(values)).to_numpy()]


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
