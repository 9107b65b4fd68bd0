"""How a CSV file is laid out: what stands between its values, whether it begins with names, and which rows span several lines."""

import csv
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pbodl.data.log.lines import LineBlock
from pbodl.data.texts import NUMBER
from pbodl.errors import InputError

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}  # those that are recognised
NAMES = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "pipe": "|", "space": " "}
LOOK = 50  # lines that decide what the delimiter is
LONGEST_ROW = 1000  # lines of one row
QUOTE = ord('"')


def delimiter_of(given: str) -> str:
    """The delimiter that a person writes: one character, or its name.

    >>> delimiter_of("tab"), delimiter_of(";")
    ('\\t', ';')
    """
    delimiter = NAMES.get(given, given)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise InputError(f"the delimiter is {given!r}; it must be one ASCII character, or one of {', '.join(map(repr, NAMES))}")
    return delimiter


def split_line(text: str, delimiter: str) -> list[str]:
    """The values of one line."""
    return next(csv.reader([text], delimiter=delimiter), [])


def first_row(lines: Sequence[str], delimiter: str) -> tuple[list[str], int]:
    """The values of the first row, and on how many lines it stands."""
    reader = csv.reader(lines, delimiter=delimiter)
    values = next(reader, [])
    # A quote that is not closed here swallows everything: then the line stands alone.
    return (values, reader.line_num) if reader.line_num < len(lines) else (split_line(lines[0].rstrip("\r\n"), delimiter), 1)


def sniffed_delimiter(lines: Sequence[str], columns: int | None = None) -> str:
    """What stands between the values of a file that begins with these lines and, if this is known, has so many columns.

    Where several signs could, that with which most rows are as long as the first one; a value may hold other signs, such as the |
    of a list, and their number differs from row to row.
    """
    found: list[tuple[bool, bool, int, str]] = []
    for delimiter in DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:
            continue
        if widths and widths[0] > 1:
            steady = sum(width == widths[0] for width in widths) > 0.9 * len(widths)
            found.append((columns is not None and widths[0] in (columns, columns - 1), steady, widths[0], delimiter))
    return max(found, key=lambda one: one[:3])[3] if found else ","


def looks_like_data(names: Sequence[str]) -> bool:
    """Whether a first line holds values, not names: one of them is a number, or several are empty. Columns may be numbered, though.

    >>> looks_like_data(["0", "1", "1", "5"]), looks_like_data(["click", "ad"]), looks_like_data(["0", "1", "2"])
    (True, False, False)
    """
    numbered = [str(place) for place in range(len(names))], [str(place + 1) for place in range(len(names))]
    if list(names) in numbered:
        return False
    return sum(not name.strip() for name in names) > 1 or any(re.match(NUMBER, name.strip()) for name in names)


def ends_open(data: bytes) -> bool:
    """Whether a quoted value may go on behind these lines."""
    return data.count(b'"') % 2 == 1


def row_starts(lines: LineBlock, delimiter: str) -> NDArray[np.int64] | None:
    """The first line of each row, where quoted values may hold line ends; None if quotes are not where they must be."""
    data = np.frombuffer(lines.data, np.uint8)
    quotes = np.flatnonzero(data == QUOTE)
    if len(quotes) % 2:
        return None
    # Quotes open and close by turns; a doubled one inside a value closes and opens it.
    opening, closing = quotes[::2], quotes[1::2]
    before = data[np.maximum(opening - 1, 0)]
    begins = (opening == 0) | np.isin(before, [ord(delimiter), ord("\n"), QUOTE])
    behind = data[np.minimum(closing + 1, len(data) - 1)]
    if not (begins.all() and np.isin(behind, [ord(delimiter), ord("\n"), ord("\r"), QUOTE]).all()):
        return None
    inside = np.searchsorted(quotes, lines.ends[:-1]) % 2 == 1
    starts = np.flatnonzero(~inside)
    return starts if np.diff(np.append(starts, len(lines))).max(initial=0) <= LONGEST_ROW else None
