"""Times of impressions as float64 seconds since 1970-01-01 UTC, from numbers, timestamps or text.

Numbers are seconds, or have the schema's `time_unit`. A time outside the years 1900 to 2199 is refused: it is in another unit, and
one such row would expire all that a model with a time to live has learned.

A format such as `%y%m%d%H` is parsed here, a whole column at once. Every directive has a fixed width, so that a number (14102100)
and its text ("14102100") mean the same, and the result does not depend on the platform's strptime.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.errors import InputError

WIDTHS = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2}
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # to a second
UNIT_NAMES = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
EARLIEST, LATEST = -2208988800.0, 7258118400.0  # 1900-01-01, and 2200-01-01, which is too late
RECENT = 946684800.0  # 2000-01-01: a number that is later than this in another unit is likely in that unit
RANGES = {"Y": (1, 9999), "y": (0, 99), "m": (1, 12), "d": (1, 31), "H": (0, 23), "M": (0, 59), "S": (0, 60)}


def _pieces(time_format: str) -> list[tuple[str, int, int]]:
    """(directive or literal, start, width) for each piece of the format; a literal is one character."""
    pieces: list[tuple[str, int, int]] = []
    place = start = 0
    while place < len(time_format):
        piece = time_format[place]
        if piece == "%":
            piece = time_format[place : place + 2]
            if piece[1:] not in WIDTHS:
                raise InputError(
                    f"time_format {time_format!r}: {piece!r} is not known; allowed are %Y %y %m %d %H %M %S and literal characters"
                )
        width = WIDTHS[piece[1:]] if len(piece) == 2 else 1
        pieces.append((piece, start, width))
        place += len(piece)
        start += width
    return pieces


def check_format(time_format: str) -> None:
    """InputError unless the format can be read: known directives, none twice, ASCII, and a whole date."""
    directives = [piece[1] for piece, _, width in _pieces(time_format) if len(piece) == 2]
    year = ("Y" in directives) + ("y" in directives)
    if year != 1 or "m" not in directives or "d" not in directives or len(set(directives)) < len(directives):
        raise InputError(f"time_format {time_format!r} must name the year (%Y or %y), %m and %d, each once")
    if not time_format.isascii():
        raise InputError(f"time_format {time_format!r} must be ASCII")


def _parse_format(texts: pa.Array, time_format: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Seconds, and which of them are good, of strings in the format."""
    pieces = _pieces(time_format)
    width = pieces[-1][1] + pieces[-1][2]
    fits = pc.equal(pc.binary_length(texts), width)
    good = fits.to_numpy(zero_copy_only=False).copy()
    fitting = pc.if_else(fits, texts, "0" * width)
    letters = np.frombuffer(fitting.buffers()[2], dtype=np.uint8, count=len(texts) * width)
    letters = letters.reshape(len(texts), width).astype(np.int64)
    part: dict[str, Any] = {"H": np.int64(0), "M": np.int64(0), "S": np.int64(0)}
    for piece, start, length in pieces:
        if len(piece) == 1:
            good &= letters[:, start] == ord(piece)
            continue
        digits = letters[:, start : start + length] - ord("0")
        value = digits @ (10 ** np.arange(length - 1, -1, -1))
        low, high = RANGES[piece[1]]
        good &= ((digits >= 0) & (digits <= 9)).all(axis=1) & (value >= low) & (value <= high)
        part[piece[1]] = np.where(good, value, 1)
    # Two-digit years as strptime reads them: 69 to 99 are 1969 to 1999.
    year = part["Y"] if "Y" in part else part["y"] + np.where(part["y"] < 69, 2000, 1900)
    month = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (part["m"] - 1)
    day = month.astype("datetime64[D]") + (part["d"] - 1)
    good &= day.astype("datetime64[M]") == month
    seconds = day.astype("datetime64[s]").astype(np.int64) + 3600 * part["H"] + 60 * part["M"] + part["S"]
    return seconds.astype(np.float64), good


def _parse_iso(texts: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Seconds, and which of them are good, of ISO 8601 strings with or without a zone."""
    # Arrow casts texts with and without a zone to different types: give a zone to all.
    zoned = pc.match_substring_regex(texts, r"^.{11,}(Z|[+-]\d\d(:?\d\d)?)$")
    dated = pc.if_else(pc.less_equal(pc.binary_length(texts), 10), pc.binary_join_element_wise(texts, "T00:00", ""), texts)
    texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(dated, "Z", ""))
    try:
        moments = pc.cast(texts, pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return np.zeros(1), np.zeros(1, dtype=bool)
        # One bad text spoils the cast of all: halve to find the first; those behind it do not matter then.
        seconds, good = _parse_iso(texts[: len(texts) // 2])
        rest = texts[len(texts) // 2 :]
        more, fine = _parse_iso(rest) if good.all() else (np.zeros(len(rest)), np.ones(len(rest), dtype=bool))
        return np.concatenate([seconds, more]), np.concatenate([good, fine])
    return moments.cast(pa.int64()).to_numpy() / 1e6, np.ones(len(texts), dtype=bool)


def check_unit(unit: str) -> None:
    """InputError unless the unit is known."""
    if unit not in UNITS:
        raise InputError(f"time_unit is {unit!r}; allowed are 's', 'ms', 'us' and 'ns'")


def in_range(seconds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which times are in the years that are allowed; NaN is not."""
    return (seconds >= EARLIEST) & (seconds < LATEST)


def likely_unit(number: float) -> str | None:
    """The unit in which a number that is no time in seconds would be a recent one.

    >>> likely_unit(1731283200500.0), likely_unit(1731283200.5e9), likely_unit(5e9)
    ('ms', 'ns', None)
    """
    return next((unit for unit, scale in UNITS.items() if unit != "s" and RECENT <= number / scale < LATEST), None)


def parse_times(values: pa.Array, column: str, time_format: str | None, unit: str | None = None) -> NDArray[np.float64]:
    """Epoch seconds of an Arrow array whose numbers have a unit; InputError names the first row (counted from 0) that has none."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    good = pc.is_valid(values).to_numpy(zero_copy_only=False).copy()
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        moments = pc.cast(values, pa.timestamp("us"), safe=False).cast(pa.int64())
        seconds = pc.fill_null(moments, 0).to_numpy() / 1e6
    elif is_text(kind) or (time_format is not None and pa.types.is_integer(kind)):
        seconds, parsed = _parse_text(values, time_format)
        good &= parsed
    elif time_format is None and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        seconds = pc.fill_null(pc.cast(values, pa.float64(), safe=False), np.nan).to_numpy()
        seconds = seconds if unit in (None, "s") else seconds / UNITS[unit or "s"]
    elif pa.types.is_null(kind):
        seconds = np.zeros(len(values))
    else:
        raise InputError(
            f"time column {column!r} has type {kind}; allowed are epoch seconds, timestamps and text"
            + (f" in the format {time_format!r}" if time_format else " in ISO 8601, or set time_format")
        )
    fine = good & in_range(seconds)
    if not fine.all():
        row = int(np.argmin(fine))
        second = float(seconds[row]) if good[row] else None
        raise InputError(f"row {row}: {_fault(values[row].as_py(), second, column, time_format, unit)}")
    return seconds


def _fault(value: Any, seconds: float | None, column: str, time_format: str | None, unit: str | None) -> str:
    """What is wrong with a time."""
    holds = f"time column {column!r} holds {value!r:.60}"
    likely = None if seconds is None or time_format else likely_unit(seconds * UNITS[unit or "s"])
    if likely is not None:
        return f'{holds}, which looks like {UNIT_NAMES[likely]}; set time_unit = "{likely}" in the schema, or send epoch seconds'
    if seconds is not None and np.isfinite(seconds):
        return f"{holds}; it must be in the years 1900 to 2199"
    if time_format:
        return f"{holds}; it must be text or a whole number in the format {time_format!r}"
    return f"{holds}; it must be epoch {UNIT_NAMES.get(unit or 's', 'seconds')} or ISO 8601"


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts, plain or as a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _parse_text(values: pa.Array, time_format: str | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    # A log repeats its times: parse each distinct one once.
    coded = pc.dictionary_encode(values, null_encoding="encode")
    texts = pc.fill_null(pc.cast(coded.dictionary, pa.string()), "")
    if time_format is None:
        seconds, good = _parse_iso(texts)
    else:
        if not is_text(values.type):
            # As a number, 05010203 has lost its leading zero.
            width = sum(length for _, _, length in _pieces(time_format))
            texts = pc.utf8_lpad(texts, width, "0")
        seconds, good = _parse_format(texts, time_format)
    codes = coded.indices.to_numpy()
    return seconds[codes], good[codes]


def days_of_week(times: NDArray[np.float64]) -> NDArray[np.int64]:
    """The day of the week in UTC, 0 for Monday to 6 for Sunday, of epoch seconds."""
    return (np.floor(times / 86400.0).astype(np.int64) + 3) % 7


def derived(what: str, times: NDArray[np.float64]) -> NDArray[np.int64]:
    """What a field derives from the times of its rows."""
    return days_of_week(times) if what == "day_of_week" else hours_of_day(times)


def hours_of_day(times: NDArray[np.float64]) -> NDArray[np.int64]:
    """The hour of day, 0 to 23 in UTC, of epoch seconds."""
    return np.floor(times / 3600.0).astype(np.int64) % 24
