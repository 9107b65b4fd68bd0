"""A label computed from a column: `label = "rating >= 4"` is 1 where the rating is at least 4."""

import functools
import math
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.labels import parse_labels
from pbodl.data.numbers import parse_number, parse_numbers
from pbodl.errors import InputError

COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[..., Any]]] = {
    ">=": (operator.ge, pc.greater_equal),
    "<=": (operator.le, pc.less_equal),
    "==": (operator.eq, pc.equal),
    "!=": (operator.ne, pc.not_equal),
    ">": (operator.gt, pc.greater),
    "<": (operator.lt, pc.less),
}
FORM = re.compile(r"(.*?[^\s<>=!])\s*(>=|<=|==|!=|>|<)\s*([^\s<>=!].*)")


class Outcome(NamedTuple):
    """How a label is computed: a column, compared with a value."""

    column: str
    sign: str
    value: float | str

    def of_value(self, value: Any, row: int) -> float:
        """The label of one sample, whose column has this value."""
        if isinstance(self.value, str):
            if value is None:
                raise self._fault(row, value)
            return float(COMPARISONS[self.sign][0](str(value), self.value))
        try:
            number = parse_number(value)
        except (ValueError, TypeError):
            number = math.nan
        if math.isnan(number):
            raise self._fault(row, value)
        return float(COMPARISONS[self.sign][0](number, self.value))

    def of_values(self, values: pa.Array) -> NDArray[np.float32]:
        """The labels of a column."""
        compare = COMPARISONS[self.sign][1]
        if isinstance(self.value, str):
            texts = pc.cast(values, pa.string())
            if texts.null_count:
                row = int(np.argmin(texts.is_valid().to_numpy(zero_copy_only=False)))
                raise self._fault(row, None)
            return compare(texts, self.value).to_numpy(zero_copy_only=False).astype(np.float32)
        try:
            numbers = parse_numbers(values, self.column)
        except InputError as error:
            found = re.match(r"row (\d+):", str(error))
            raise self._fault(int(found[1]), values[int(found[1])].as_py()) if found else error from None
        if np.isnan(numbers).any():
            row = int(np.argmax(np.isnan(numbers)))
            raise self._fault(row, values[row].as_py())
        return COMPARISONS[self.sign][0](numbers, self.value).astype(np.float32)

    def _fault(self, row: int, value: Any) -> InputError:
        what = "a number" if isinstance(self.value, float) else "a value"
        return InputError(
            f"row {row}: column {self.column!r}, from which the label is computed, holds {value!r:.60}; it must hold {what}"
        )


@functools.lru_cache(maxsize=256)
def outcome_of(label: str) -> Outcome | None:
    """The computation that a label describes; None if the label is the name of a column.

    >>> outcome_of("rating >= 4"), outcome_of("click"), outcome_of("action == 'buy'")
    (Outcome(column='rating', sign='>=', value=4.0), None, Outcome(column='action', sign='==', value='buy'))
    """
    form = FORM.fullmatch(label.strip())
    if form is None:
        return None
    column, sign, text = form[1], form[2], form[3].strip()
    try:
        return Outcome(column, sign, float(text))
    except ValueError:
        value = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    # Texts are equal or not; anything else is a column with a strange name.
    return Outcome(column, sign, value) if sign in ("==", "!=") else None


def label_column(label: str) -> str:
    """The column that a label is, or is computed from."""
    outcome = outcome_of(label)
    return label if outcome is None else outcome.column


def clicks_of(label: str, values: pa.Array) -> NDArray[np.float32]:
    """The labels of an Arrow array, read from its column or computed from it."""
    outcome = outcome_of(label)
    return parse_labels(values, label) if outcome is None else outcome.of_values(values)
