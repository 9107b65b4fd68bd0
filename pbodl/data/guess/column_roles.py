"""What a column may be for, by its name and what it holds: the label, the time, a field, or better left out.

Whole numbers are taken for categories (they mostly are codes), fractions for numbers. A column is left out if it is constant, or if
nearly every row has a unique value.
"""

import re

from pbodl.data.guess.column_stats import ColumnStats
from pbodl.data.schema import Field
from pbodl.data.texts import is_text, times
from pbodl.data.times import parse_times
from pbodl.errors import InputError

LABEL_WORDS = ("click", "clicked", "clicks", "clk", "label", "target", "y")
TIME_WORDS = {"time", "timestamp", "ts", "date", "datetime", "day", "hour", "when", "at"}
GROUP_WORDS = {
    "user": {"user", "uid", "device", "cookie", "visitor", "member", "age", "gender", "interests", "ip", "os", "browser"},
    "ad": {"ad", "ads", "adid", "campaign", "creative", "advertiser", "brand", "item", "product", "offer", "price", "bid"},
}
PREDICTION_WORDS = {"p", "prob", "probability", "pred", "prediction", "ctr", "pctr", "pcvr"}
NUMBER_WORDS = {"price", "bid", "amount", "count", "num", "age", "duration", "seconds", "days", "score", "distance"}
# Formats of whole numbers and of texts that are not ISO 8601; tried in this order, strictly.
FORMATS = (
    "%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%y%m%d%H", "%Y%m%d", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d", "%d.%m.%Y %H:%M:%S",
)  # fmt: skip
EARLIEST, LATEST = 631152000.0, 4102444800.0  # the years 1990 to 2099
UNIQUE = 0.9  # above this share of rows with a unique value, treat the column as an id
FEW = 20  # with fewer rows, uniqueness says nothing
SAMPLE = 1000  # values that are tried as times
LISTED = 0.2  # above this share of texts with a list's separator, treat the column as a list


def _words(column: ColumnStats) -> set[str]:
    """The words of a name: `adId` and `ad_id` are both `ad` and `id`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", column.name)}


def label_of(columns: list[ColumnStats], warnings: list[str]) -> str | None:
    """The column that says whether there was a click."""
    binary = [c for c in columns if c.distinct == 2 and (c.kind == "bool" or (c.low, c.high) == (0.0, 1.0))]
    for word in LABEL_WORDS:
        for column in binary:
            if word in _words(column):
                return column.name
    if len(binary) == 1:
        warnings.append(f"column {binary[0].name!r} is taken for the label, as it alone holds 0 and 1")
        return binary[0].name
    named = [repr(c.name) for c in columns if _words(c) & set(LABEL_WORDS)]
    hint = f" ({', '.join(named)} does not hold 0 and 1)" if named else ""
    warnings.append(f"no column can be taken for the label{hint}; set `label`")
    return None


def time_format_of(column: ColumnStats, warnings: list[str]) -> tuple[str | None] | None:
    """In a tuple, the format in which the column can be read as times (None: without one); None if it cannot."""
    if column.kind == "time":
        return (None,)
    named = bool(_words(column) & TIME_WORDS)
    if column.missing or column.kind not in ("whole", "fraction", "text") or not (named or column.kind == "text"):
        return None
    sample = column.sample[:SAMPLE]
    numeric = times(sample) if is_text(sample.type) else sample
    for time_format, values in [*((known, sample) for known in FORMATS), (None, numeric)]:
        try:
            seconds = parse_times(values, column.name, time_format)
        except InputError:
            continue
        if EARLIEST <= seconds.min() <= seconds.max() <= LATEST:
            return (time_format,)
    if named and 1e3 * EARLIEST <= column.low <= column.high <= 1e3 * LATEST:
        warnings.append(f'column {column.name!r} looks like a time in milliseconds; to use it, set time, and time_unit = "ms"')
    return None


def objection(column: ColumnStats, rows: int, is_time: bool) -> str:
    """Why a column should not be learned from; empty if it may be."""
    if column.distinct == 0:
        return "it is empty"
    if is_time:
        return "it is another time"
    if column.distinct == 1 and not column.missing:
        return f"it is constant, {column.sample[0].as_py()!r:.60}"
    if _words(column) & PREDICTION_WORDS and column.kind == "fraction" and 0.0 <= column.low <= column.high <= 1.0:
        return "it looks like a predicted or true probability, which is not known beforehand"
    there = rows - column.missing
    if there >= FEW and column.distinct > UNIQUE * there and field_of(column).kind == "category":
        return "nearly every row has a value of its own, as an id has"
    return ""


def field_of(column: ColumnStats) -> Field:
    """The field a column would be."""
    words = _words(column)
    group = next((name for name, known in GROUP_WORDS.items() if words & known), "context")
    kind = "category"
    if column.kind == "list" or (column.kind == "text" and column.listed > LISTED):
        kind = "multi"
    elif "id" not in words and (column.kind == "fraction" or (column.kind == "whole" and words & NUMBER_WORDS)):
        kind = "number"
    return Field(column.name, group=group, kind=kind)
