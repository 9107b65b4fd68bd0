"""Rows that are not in a file, read as a file is: dicts, DataFrames, Arrow tables, readers, and the answers to SQL queries.

Wherever a log is read (`open_log`, `guess`, and whatever is built on them), `paths` may be such rows:

    dicts                a dict (one row), a list of dicts, or an iterator of dicts; a dict may hold dicts: `user.age`
    tables               whatever has Arrow's PyCapsule interface: pandas, polars, pyarrow, DuckDB's relations
    readers              a `pyarrow.RecordBatchReader`; it is read once, as an iterator is
    a function           called without arguments, it returns one of these; it is called anew for every reading
    `sql(query, ...)`    such a function

A list may hold several of them, and paths among them.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pbodl.data.features.nested import flattened, leaves
from pbodl.data.log.columnar.batch_blocks import BatchFile, column_names, skipping
from pbodl.data.log.jsonl_reader import LOOK, column_of, is_listed
from pbodl.data.log.log_sources import LogSource
from pbodl.errors import InputError

BATCH = 1 << 16


class MemoryFile(BatchFile):
    """Rows in memory, as an open file."""

    def __init__(self, source: LogSource) -> None:
        self.source = source
        data = source.rows
        if callable(data) and not hasattr(data, "__arrow_c_stream__"):
            data = data()
        schema, self._read = _opened(data, source.name)
        self.columns = column_names(schema)
        self.rows = known_rows(data)
        self.bytes_read = 0

    def close(self) -> None:
        """Nothing is open."""

    def _batches(self, columns: Sequence[str], size: int, start: int) -> Iterator[pa.RecordBatch]:
        tops = {name.split(".")[0] for name in columns} | set(columns)
        for batch in skipping(self._read, start, self.source):
            yield batch.select([name for name in batch.schema.names if name in tops])
        self.bytes_read = self.source.size


def sql(query: str, connection: Any = None) -> Callable[[], Any]:
    """The rows that a SQL query selects, as a log: `open_log(sql("SELECT * FROM clicks ORDER BY time", connection), schema)`.

    query       a SELECT; order it by the time of the impressions
    connection  of DuckDB, of an ADBC driver, or of any DB-API driver, such as sqlite3; without one, DuckDB reads files that the
                query names
    """
    if connection is None:
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise InputError("a query without a connection needs DuckDB: pip install duckdb, or give a connection") from error
        connection = duckdb.connect()

    def rows() -> Any:
        try:
            cursor = connection.cursor()
            answer = cursor.execute(query)
            for name in ("fetch_record_batch", "to_arrow_reader"):  # ADBC and DuckDB
                for owner in (cursor, answer):
                    if hasattr(owner, name):
                        return getattr(owner, name)()
            names = [column[0] for column in cursor.description]
        except Exception as error:  # every driver has errors of its own
            raise InputError(f"the query {query!r:.200} failed: {type(error).__name__}: {error}") from error
        return (dict(zip(names, row, strict=True)) for row in iter(cursor.fetchone, None))

    return rows


def known_rows(data: Any) -> int | None:
    """The number of rows, if the data says it."""
    if isinstance(data, Mapping):
        return 1
    return len(data) if hasattr(data, "__len__") else None


def _opened(data: Any, name: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of the rows, and the rows."""
    if isinstance(data, Mapping):
        data = [data]
    try:
        if isinstance(data, pa.RecordBatch) or hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return batch.schema, iter([batch])
        if isinstance(data, pa.Table):
            return data.schema, iter(data.to_batches(BATCH))
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
            return reader.schema, _of_reader(reader, name)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"{name} does not convert to an Arrow table: {error}; "
            "a column must hold values of one type (in pandas, df[column].astype(str) makes it so)"
        ) from error
    if isinstance(data, Iterable):
        return _of_dicts(iter(data), name)
    raise InputError(
        f"{name} returned {type(data).__name__}, which holds no rows; "
        "it must be a list of dicts, or a table of Arrow, pandas or polars"
    )


def _of_reader(reader: pa.RecordBatchReader, name: str) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except pa.ArrowException as error:
            raise InputError(f"{name} cannot be read: {error}") from error
        yield batch


def _of_dicts(rows: Iterator[Any], name: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Dicts as batches. The first rows say which columns there are, and which hold lists."""
    first = list(itertools.islice(rows, BATCH))
    flat = [_row(row, place, name) for place, row in enumerate(first)]
    columns = leaves(flat)
    listed = {column for column in columns if is_listed([row.get(column) for row in flat[:LOOK]])}

    def batches() -> Iterator[pa.RecordBatch]:
        before, held = 0, flat
        while held:
            yield _batch(held, columns, listed, before, name)
            before += len(held)
            held = [_row(row, before + place, name) for place, row in enumerate(itertools.islice(rows, BATCH))]

    if not columns:
        raise InputError(f"there are no rows in {name}")
    return pa.schema([(column, pa.null()) for column in columns]), batches()


def _row(row: Any, place: int, name: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise InputError(f"row {place} of {name} is of type {type(row).__name__}; every row must be a dict")
    return flattened(row)


def _batch(rows: Sequence[Mapping[str, Any]], columns: list[str], listed: set[str], before: int, name: str) -> pa.RecordBatch:
    faults: dict[int, str] = {}
    arrays = [column_of(column, {i: row.get(column) for i, row in enumerate(rows)}, faults, column in listed) for column in columns]
    if faults:
        place, fault = min(faults.items())
        raise InputError(f"row {before + place} of {name}: {fault}")
    return pa.record_batch(arrays, columns)
