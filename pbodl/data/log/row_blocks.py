"""What the readers of the different formats have in common: they hand out a file's rows in `RowBlock`s."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.data.log.log_sources import LogSource
from pbodl.data.schema import Schema, nearest
from pbodl.errors import InputError


class RowBlock(NamedTuple):
    """Consecutive rows of a file, numbered from the first row of the block."""

    rows: int  # all of them, good and bad
    table: pa.Table  # those that could be split into columns
    places: NDArray[np.int64]  # the numbers of these rows
    faults: dict[int, str]  # what is wrong with the others, by number; blank lines are in neither
    raw: Callable[[int], str]  # a row by its number, as it is in the file


class Layout(NamedTuple):
    """What a text file does not say itself."""

    columns: Sequence[str] = ()  # the names of its columns, if it has no header
    delimiter: str | None = None  # None: the reader finds out
    label: str | None = None  # a column that rows without an outcome may lack


def layout_of(schema: Schema) -> Layout:
    """The layout of the text files that a schema describes."""
    return Layout(schema.columns, schema.delimiter, schema.label_column)


class LogFile(Protocol):
    """An open file of a log."""

    source: LogSource
    columns: list[str]
    unit: str  # "line" or "row": how people count in such a file
    first: int  # the number of the first row in that count
    sparse: bool  # a row may lack a column; `columns` are those that were seen

    def blocks(self, columns: Sequence[str], size: int, start: int = 0, lists: Collection[str] | None = None) -> Iterator[RowBlock]:
        """The rows from `start` on, `size` to a block (the last may be smaller), with these columns.

        lists  the columns that hold lists, for formats that do not say so; None if that is unknown
        """
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes of the file, as it is stored, that were read."""
        ...

    def close(self) -> None: ...


def needed_columns(file: LogFile, schema: Schema, labelled: bool, others: Sequence[str] = ()) -> list[str]:
    """The columns to read for a schema, and `others`; InputError if the file lacks one of them."""
    derived = any(field.derive for field in schema.fields)
    wanted = {field.source: "as a field" for field in schema.fields if field.source is not None}
    if labelled:
        wanted |= {schema.label_column: "as its label"} | ({schema.weight: "as its weight"} if schema.weight else {})
    if schema.time is not None and (labelled or derived or schema.time in file.columns):
        wanted.setdefault(schema.time, "as its time")
    for name, aliases in schema.former_columns.items():
        wanted |= {alias: "as a field" for alias in aliases if alias in file.columns or file.sparse}
        if name not in file.columns and not file.sparse and any(alias in file.columns for alias in aliases):
            del wanted[name]
    for field in schema.fields:
        if field.optional and field.source not in file.columns and not file.sparse:
            wanted.pop(str(field.source), None)
    absent = {alias for aliases in schema.former_columns.values() for alias in aliases}
    absent |= {name for name, aliases in schema.former_columns.items() if file.sparse}
    absent |= {str(field.source) for field in schema.fields if field.optional}
    strangers = [name for name in file.columns if name not in wanted and name not in schema.retired]
    for name, role in wanted.items():
        # Where rows may lack a column, one that was not seen is misspelt only if there is another with a similar name.
        if name not in file.columns and name not in absent and not (file.sparse and not nearest(name, strangers)):
            raise _missing(file, f"{name!r}, which the schema names {role}", name)
    for name in others:
        if name not in file.columns:
            raise _missing(file, repr(name), name)
    columns = list(dict.fromkeys([*wanted, *others]))
    for name in columns:
        if file.columns.count(name) > 1:
            raise InputError(f"{file.source.name} has more than one column {name!r}; names must differ")
    return columns


def _missing(file: LogFile, what: str, name: str) -> InputError:
    hint = (
        ". The first line looks like values, not names: name the columns with --columns, or `columns` in [schema]"
        if getattr(file, "like_data", False)
        else ""
    )
    return InputError(
        f"{file.source.name} has no column {what}{nearest(name, file.columns)}; its columns are: {', '.join(file.columns)}{hint}"
    )


def shrunk(source: LogSource, start: int) -> InputError:
    """The error of a file that ends before the row to continue with."""
    return InputError(f"{source.name} has fewer than the {start} rows that were read from it before")
