"""CSV files: a header, unless the columns are named elsewhere, then the rows; values with delimiters or quotes in double quotes.

Arrow parses a block of lines in one piece, all columns as text. Only if that fails, the lines are read one by one to say which of
them are bad, and why. A quoted value may hold line ends. If its quote is never closed, or closed where no value ends, the quote
spoils one line and not the rest of the file.
"""

import csv
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from pbodl.data.log.csv_layout import (
    LONGEST_ROW,
    LOOK,
    delimiter_of,
    ends_open,
    first_row,
    looks_like_data,
    row_starts,
    sniffed_delimiter,
    split_line,
)
from pbodl.data.log.lines import LineBlock, LineFile
from pbodl.data.log.row_blocks import Layout, RowBlock
from pbodl.errors import InputError


class CsvFile(LineFile):
    """An open CSV file."""

    first = 2
    sparse = False

    def _read_columns(self) -> list[str]:
        block = self._lines.peek(LOOK)
        if block is None:
            raise InputError(f"{self.source.name} is empty; a CSV file starts with a line of column names")
        head = CsvHead(self.source.name, block, self._layout)
        self.delimiter, self.headerless, self.like_data = head.delimiter, head.headerless, head.like_data
        if head.headerless:
            self.first = 1
        else:
            self._lines.take(head.lines)
            self.first = 1 + head.lines
        return head.columns

    def blocks(self, columns: Sequence[str], size: int, start: int = 0, lists: Collection[str] | None = None) -> Iterator[RowBlock]:
        """The rows from `start` on, `size` lines to a block."""
        parser = Parser(self.source.name, self.columns, columns, self.delimiter)
        for lines in self._line_blocks(size, start):
            yield parser.block(self._closed(lines))

    def _closed(self, lines: LineBlock) -> LineBlock:
        """The lines, and those behind them on which the last row ends."""
        if b'"' not in lines.data or not ends_open(lines.data):
            return lines
        ahead = self._lines.peek(LONGEST_ROW)
        for more in range(len(ahead) if ahead is not None else 0):
            if ahead is not None and ends_open(ahead.line(more)):
                taken = self._lines.take(more + 1)
                assert taken is not None
                return LineBlock(lines.data + taken.data, np.concatenate([lines.ends, taken.ends[1:] + lines.ends[-1]]))
        return lines


class CsvHead:
    """What the first lines of a CSV file say: its delimiter, its columns, and whether they are named in its first line."""

    def __init__(self, name: str, lines: LineBlock, layout: Layout = Layout()) -> None:  # noqa: B008
        given = list(layout.columns)
        try:
            head = lines.line(0).decode("utf-8-sig")
            texts = [head, *(lines.line(i).decode("utf-8", "replace") for i in range(1, len(lines)))]
            self.delimiter = (
                sniffed_delimiter(texts, len(given) or None) if layout.delimiter is None else delimiter_of(layout.delimiter)
            )
            values, self.lines = first_row(texts, self.delimiter)
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"the first line of {name} is not UTF-8 text that names the columns: {error}") from error
        if not values:
            raise InputError(f"the first line of {name} is blank; it must name the columns")
        self.headerless = bool(given) and set(values) - {layout.label} != set(given) - {layout.label}
        self.columns = values
        self.like_data = not given and looks_like_data(values)
        if self.headerless:
            if len(values) == len(given) - 1 and layout.label in given:
                given.remove(layout.label)
            if len(values) != len(given):
                raise InputError(
                    f"the first line of {name} has {len(values)} values, but {len(layout.columns)} columns are named; "
                    "check `columns` and `delimiter`"
                )
            self.columns = given


class Parser:
    """Splits lines into the wanted columns.

    spans  a quoted value may hold line ends; not so in a file that grows, where a row must not depend on what is there yet
    """

    def __init__(self, name: str, header: list[str], columns: Sequence[str], delimiter: str = ",", spans: bool = True) -> None:
        # Arrow wants distinct names; of those that occur twice, none is wanted.
        names = [name if header.count(name) == 1 else f"{name}\0{place}" for place, name in enumerate(header)]
        self._name, self._header, self._delimiter, self._spans = name, header, delimiter, spans
        self._wanted = [header.index(name) for name in columns]
        self._names = names
        self._parse_options = pa.csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=False)
        self._convert_options = pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in columns},
            include_columns=list(columns),
            strings_can_be_null=False,
        )
        self._empty = delimiter.encode() * (len(header) - 1) + b"\n"

    def block(self, lines: LineBlock) -> RowBlock:
        blank = lines.blank
        places = np.arange(len(lines))
        table = None if blank.any() else self._parse(lines.data, len(lines))
        starts = row_starts(lines, self._delimiter) if table is None and self._spans and b'"' in lines.data else None
        if starts is not None and not blank[starts].any():
            table, places = self._parse(lines.data, len(starts)), starts
        faults: dict[int, str] = {}
        if table is None:
            places, faults = self._one_by_one(lines, np.flatnonzero(~blank))
            stops = self._stops(lines, places)
            data = [lines.data[lines.ends[a] : lines.ends[b]] for a, b in zip(places.tolist(), stops.tolist(), strict=True)]
            table = self._parse(b"".join(data), len(places))
            if table is None:
                raise InputError(f"{self._name} cannot be read: some of its lines do not go together")
        if len(places) == len(lines):
            return RowBlock(len(lines), table, places, faults, lines.text)
        return RowBlock(len(lines), table, places, faults, lambda place: self._raw(lines, place))

    def _one_by_one(self, lines: LineBlock, candidates: np.ndarray) -> tuple[np.ndarray, dict[int, str]]:
        """The lines on which good rows begin, and the faults of the others."""
        faults: dict[int, str] = {}
        places: list[int] = []
        behind = 0  # the row before
        for place in candidates.tolist():
            if place < behind:
                continue
            line = lines.line(place)
            if (fault := self._fault(line)) and (stop := self._end_of(lines, place)):
                fault, behind = None, stop
            if fault:
                faults[place] = fault
            else:
                places.append(place)
        return np.array(places, dtype=np.int64), faults

    def _end_of(self, lines: LineBlock, place: int) -> int:
        """Behind which line a row ends that begins at a line with an open quote; 0 if this is no such row."""
        if not self._spans or not ends_open(lines.line(place)):
            return 0
        for stop in range(place + 1, min(place + LONGEST_ROW, len(lines))):
            if ends_open(lines.line(stop)):
                ends = lines.ends[place : stop + 2]
                row = LineBlock(lines.data[ends[0] : ends[-1]], ends - ends[0])
                starts = row_starts(row, self._delimiter)
                return stop + 1 if starts is not None and len(starts) == 1 and self._parse(row.data, 1) is not None else 0
        return 0

    def _stops(self, lines: LineBlock, places: np.ndarray) -> np.ndarray:
        """Behind which line each row ends."""
        return np.array([self._end_of(lines, place) or place + 1 for place in places.tolist()], dtype=np.int64)

    def _raw(self, lines: LineBlock, place: int) -> str:
        return "\n".join(map(lines.text, range(place, self._end_of(lines, place) or place + 1)))

    def _parse(self, data: bytes, rows: int) -> pa.Table | None:
        """The table of so many rows, or None if one of them is bad."""
        if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
            return None
        if b'"' in data or not rows:
            # An open quote in the last line would go unnoticed: with another line behind, it swallows that.
            data, rows = data + self._empty, rows + 1
            table = self._parse_plain(data)
            return table.slice(0, rows - 1) if table is not None and table.num_rows == rows else None
        table = self._parse_plain(data)
        return table if table is not None and table.num_rows == rows else None

    def _parse_plain(self, data: bytes) -> pa.Table | None:
        # One thread: the others are busy learning. One block: one chunk per column.
        options = pa.csv.ReadOptions(column_names=self._names, use_threads=False, block_size=len(data) + 1)
        try:
            return pa.csv.read_csv(pa.BufferReader(data), options, self._parse_options, self._convert_options)
        except pa.ArrowInvalid:
            return None

    def _fault(self, line: bytes) -> str | None:
        """What is wrong with one line; None if nothing is."""
        values_in_line = line.count(self._delimiter.encode()) + 1
        plain = b'"' not in line and b"\r" not in line[:-2]
        ragged = plain and values_in_line != len(self._header)
        if not ragged and ((plain and line.isascii()) or self._parse(line, 1) is not None):
            return None
        # A letter for each byte, whatever its meaning.
        text = line.rstrip(b"\r\n").decode("latin-1")
        if "\r" in text:
            return "it has a carriage return inside; a row ends at a line feed"
        try:
            values = split_line(text, self._delimiter)
        except csv.Error as error:
            return f"it cannot be split into values: {error}"
        if len(values) != len(self._header):
            return f"it has {len(values)} values, but the header has {len(self._header)} columns" + (
                "; one of its quotes may not be closed" if line.count(b'"') % 2 else ""
            )
        for place in self._wanted:
            value = values[place].encode("latin-1")
            try:
                value.decode()
            except UnicodeDecodeError:
                return f"column {self._header[place]!r} holds {value!r:.80}, which is not valid UTF-8"
        return "a quoted value is not closed, or a quote stands where no value begins or ends"
