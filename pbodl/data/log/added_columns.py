"""Columns that a file does not have by itself: what its folders say (`day=2024-01-01/`), and what is in its texts of JSON.

`with_added` wraps a file's reader, so that whoever reads the log sees them as columns.
"""

import urllib.parse
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from pbodl.data.features.nested import flattened, flattened_table, leaves, object_of
from pbodl.data.log.log_sources import LogSource
from pbodl.data.log.row_blocks import LogFile, RowBlock
from pbodl.data.times import is_text

LOOK = 1000  # rows whose texts are tried as JSON
NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(source: LogSource) -> dict[str, str | None]:
    """The columns that a file's folders are named after, as Hive and Spark lay out partitions.

    >>> from pyarrow import fs
    >>> folder_values(LogSource("", fs.LocalFileSystem(), "log/day=2024-01-01/town=S%C3%A8te/part-0.csv", 0, "csv"))
    {'day': '2024-01-01', 'town': 'Sète'}
    """
    pairs = (part.partition("=") for part in source.path.split("/")[:-1])
    values = {name: urllib.parse.unquote(value) for name, sign, value in pairs if name and sign and source.format != "memory"}
    return {name: None if value == NULL else value for name, value in values.items()}


def json_columns(table: pa.Table) -> list[str]:
    """The names of the values inside of those columns whose texts are JSON objects."""
    names: list[str] = []
    for name in table.column_names:
        if not is_text(table.column(name).type):
            continue
        texts = [text for text in table.column(name).slice(0, LOOK).to_pylist() if text]
        objects = [object_of(text) for text in texts]
        if texts and None not in objects:
            names += leaves([flattened({name: value}) for value in objects])
    return names


def with_added(file: LogFile, inside: Sequence[str] = ()) -> LogFile:
    """The file with the columns of its folders, and those of these names that are inside of its texts; itself if there are none."""
    folders = {name: value for name, value in folder_values(file.source).items() if name not in file.columns}
    own = set(file.columns)
    objects: dict[str, str] = {}
    for name in inside:
        words = name.split(".")
        outer = next((part for end in range(len(words) - 1, 0, -1) if (part := ".".join(words[:end])) in own), None)
        if name not in own and name not in folders and outer is not None and not file.sparse:
            objects[name] = outer
    return AddedColumns(file, folders, objects) if folders or objects else file


class AddedColumns:
    """An open file with more columns than it has by itself."""

    def __init__(self, file: LogFile, folders: dict[str, str | None], objects: dict[str, str]) -> None:
        self._file, self._folders, self._objects = file, folders, objects
        self.source, self.unit, self.first, self.sparse = file.source, file.unit, file.first, file.sparse
        self.like_data = getattr(file, "like_data", False)
        self.columns = [*file.columns, *folders, *objects]

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    def close(self) -> None:
        self._file.close()

    def blocks(self, columns: Sequence[str], size: int, start: int = 0, lists: Collection[str] | None = None) -> Iterator[RowBlock]:
        """The rows from `start` on, `size` to a block, with these columns."""
        own = dict.fromkeys(self._objects.get(name, name) for name in columns if name not in self._folders)
        # A file is read by one of its columns at least, or its rows could not be counted.
        for block in self._file.blocks(list(own) or self._file.columns[:1], size, start, lists):
            table = flattened_table(block.table, columns)
            for name in columns:
                if name in self._folders:
                    table = table.append_column(name, _repeated(self._folders[name], table.num_rows))
            yield block._replace(table=table.select(columns))


def _repeated(value: str | None, rows: int) -> pa.Array:
    codes = pa.nulls(rows, pa.int32()) if value is None else pa.repeat(pa.scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(codes, pa.array([value or ""]))
