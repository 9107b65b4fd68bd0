"""Fields of kind `vector`: each number of a vector is a feature of the field, with the number as its value.

Component i has the key of the value i in the field. So a vector x enters a model as Σ_i x_i e_i, a projection whose columns e_i are
learned as all other weights are, and nothing between the table and the server has to know about vectors. `running_scale`
standardises each component, and divides by √length, so that a vector counts as much as a category.
"""

import functools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.features.tokens import holds_lists, pieces, split_texts
from pbodl.data.hashing import field_seed, hash_integers
from pbodl.data.numbers import LARGEST
from pbodl.data.schema import Field
from pbodl.data.times import is_text
from pbodl.errors import InputError


@functools.lru_cache(maxsize=256)
def component_keys(field: Field) -> NDArray[np.uint64]:
    """The keys of a field's components."""
    keys = hash_integers(np.arange(field.length, dtype=np.int64), field_seed(field.key_name))
    keys.flags.writeable = False
    return keys


def parse_vector(field: Field, value: Any) -> NDArray[np.float32] | None:
    """One vector from a Python value, None if it is missing; an InputError says what is wrong with it."""
    if value is None or (isinstance(value, str) and not value) or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, str):
        value = pieces(value, field.split)
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise InputError(
            f"vector field {field.name!r} holds {value!r:.60}; it must be a list of {field.length} numbers, or missing"
        )
    if len(value) != field.length:
        raise InputError(_wrong_length(field, len(value)))
    try:
        numbers = np.array([None if isinstance(item, (bool, bytes)) else item for item in value], np.float64)
    except (ValueError, TypeError):
        numbers = np.array([_number(item) for item in value])
    return _checked(field, numbers[None])[0]


def parse_vectors(field: Field, values: pa.Array) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The vectors of an Arrow array, (vectors, length), and which rows have one; an InputError names the first bad one."""
    n = len(values)
    if is_text(values.type):
        values = split_texts(values, field.split)
    if pa.types.is_null(values.type):
        return np.zeros((0, field.length), np.float32), np.zeros(n, bool)
    if not holds_lists(values.type):
        raise InputError(f"field {field.name!r} is declared kind='vector' but holds {values.type}; it must hold lists of numbers")
    there = pc.is_valid(values).to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(values).drop_null().to_numpy()
    wrong = np.flatnonzero(lengths != field.length)
    if len(wrong):
        raise InputError(f"row {np.flatnonzero(there)[wrong[0]]}: {_wrong_length(field, int(lengths[wrong[0]]))}")
    flat = values.drop_null().flatten()
    try:
        if pa.types.is_boolean(flat.type):
            raise pa.ArrowInvalid("bools are no numbers")
        numbers = pc.fill_null(pc.cast(flat, pa.float64(), safe=False), np.nan).to_numpy()
    except pa.ArrowException:
        numbers = np.array([_number(item) for item in flat.to_pylist()])
    try:
        return _checked(field, numbers.reshape(-1, field.length)), there
    except BadVector as error:
        raise InputError(f"row {np.flatnonzero(there)[error.row]}: {error}") from None


def vector_faults(field: Field, values: pa.Array) -> dict[int, str]:
    """The fault of each row whose vector cannot be read, by row; a fault of the column as a whole is an InputError."""
    if not is_text(values.type) and not holds_lists(values.type):
        parse_vectors(field, values)
        return {}
    faults = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            parse_vector(field, value)
        except InputError as error:
            faults[row] = str(error)
    return faults


class BadVector(InputError):
    """A vector that cannot be read, and its number among those that are there."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def _checked(field: Field, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    bad = ~(np.abs(numbers) <= LARGEST)
    if bad.any():
        row, place = (int(index) for index in np.argwhere(bad)[0])
        found = numbers[row, place]
        told = "no number" if np.isnan(found) else f"{found:g}"
        raise BadVector(
            row,
            f"vector field {field.name!r} holds {told} at index {place}; all its {field.length} numbers must be finite, or the "
            "whole vector missing",
        )
    return numbers.astype(np.float32)


def _wrong_length(field: Field, length: int) -> str:
    return (
        f"vector field {field.name!r} holds {length} number{'s' * (length != 1)}; the schema says length={field.length}: correct "
        "the data, or the length"
    )


def _number(item: Any) -> float:
    """A number, NaN if the item is none."""
    try:
        return np.nan if isinstance(item, (bool, bytes)) else float(item)
    except (TypeError, ValueError):
        return np.nan
