"""CSV files: a header, then one row to a line, values with commas or quotes in double quotes.

Arrow parses a block of lines in one piece, all columns as text. Only if that fails, the lines are read one by one to say which of
them are bad, and why. A row never spans lines: a quote must be closed on the line where it is opened, so that a stray quote spoils
one row and not the rest of the file.
"""

import csv
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from pbodl.data.log.lines import LineBlock, LineFile
from pbodl.data.log.row_blocks import RowBlock
from pbodl.errors import InputError


class CsvFile(LineFile):
    """An open CSV file."""

    first = 2
    sparse = False

    def _read_columns(self) -> list[str]:
        block = self._lines.take(1)
        if block is None:
            raise InputError(f"{self.source.name} is empty; a CSV file starts with a line of column names")
        return header_columns(self.source.name, block.line(0))

    def blocks(self, columns: Sequence[str], size: int, start: int = 0, lists: Collection[str] | None = None) -> Iterator[RowBlock]:
        """The rows from `start` on, `size` lines to a block."""
        parser = Parser(self.source.name, self.columns, columns)
        for lines in self._line_blocks(size, start):
            yield parser.block(lines)


def header_columns(name: str, line: bytes) -> list[str]:
    """The columns that the first line of the file `name` names."""
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
        columns = next(csv.reader([text]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the first line of {name} is not UTF-8 text that names the columns: {error}") from error
    for strange, what in (("\t", "tabs"), (";", "semicolons")):
        if len(columns) == 1 and strange in text:
            raise InputError(f"the columns of {name} are separated by {what}; they must be by commas")
    if not columns:
        raise InputError(f"the first line of {name} is blank; it must name the columns")
    return columns


class Parser:
    """Splits lines into the wanted columns."""

    def __init__(self, name: str, header: list[str], columns: Sequence[str]) -> None:
        # Arrow wants distinct names; of those that occur twice, none is wanted.
        names = [name if header.count(name) == 1 else f"{name}\0{place}" for place, name in enumerate(header)]
        self._name, self._header = name, header
        self._wanted = [header.index(name) for name in columns]
        self._names = names
        self._parse_options = pa.csv.ParseOptions(ignore_empty_lines=False)
        self._convert_options = pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in columns},
            include_columns=list(columns),
            strings_can_be_null=False,
        )
        self._empty = b"," * (len(header) - 1) + b"\n"

    def block(self, lines: LineBlock) -> RowBlock:
        blank = lines.blank
        places = np.arange(len(lines))
        table = None if blank.any() else self._parse(lines.data, len(lines))
        faults: dict[int, str] = {}
        if table is None:
            candidates = np.flatnonzero(~blank).tolist()
            faults = {place: fault for place in candidates if (fault := self._fault(lines.line(place)))}
            places = np.array([place for place in candidates if place not in faults], dtype=np.int64)
            table = self._parse(b"".join(map(lines.line, places.tolist())), len(places))
            if table is None:
                raise InputError(f"{self._name} cannot be read: some of its lines do not go together")
        return RowBlock(len(lines), table, places, faults, lines.text)

    def _parse(self, data: bytes, rows: int) -> pa.Table | None:
        """The table of so many lines, or None if one of them is bad."""
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
        commas = line.count(b",") + 1
        plain = b'"' not in line and b"\r" not in line[:-2]
        ragged = plain and commas != len(self._header)
        if not ragged and ((plain and line.isascii()) or self._parse(line, 1) is not None):
            return None
        # A letter for each byte, whatever its meaning.
        text = line.rstrip(b"\r\n").decode("latin-1")
        if "\r" in text:
            return "it has a carriage return inside; a row ends at a line feed"
        try:
            values = next(csv.reader([text]), [])
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
        return "a quoted value is not closed on its line; a row must stand on one line"
