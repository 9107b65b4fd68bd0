"""Rows that are in no file give the batches of the same rows in a file."""

import json
import sqlite3

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pbodl import Field, InputError, Schema
from pbodl.data.guess.schema_guess import guess
from pbodl.data.log.columnar.memory_rows import sql
from pbodl.data.log.log_reader import open_log

SCHEMA = Schema(
    label="click", time="t", fields=[Field("user.age", kind="number"), Field("ad"), Field("words", kind="multi"), Field("n")]
)
ROWS = [
    {"click": n % 2, "t": 1e9 + n, "ad": f"a{n % 3}", "words": ["x", "y"][: n % 3], "user": {"age": 20.5 + n}, "n": n}
    for n in range(50)
]


def read(source, schema=SCHEMA, **options):
    with open_log(source, schema, batch_rows=20, **options) as reader:
        return list(reader), reader.rows_total


@pytest.fixture(scope="module")
def ref(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return read(path)[0]


@pytest.mark.parametrize(
    "source",
    [
        lambda: ROWS,
        lambda: tuple(ROWS),
        lambda: iter(ROWS),
        lambda: lambda: ROWS,
        lambda: pd.DataFrame(ROWS),
        lambda: pl.DataFrame(ROWS),
        lambda: pa.Table.from_pylist(ROWS),
        lambda: pa.RecordBatch.from_pylist(ROWS),
        lambda: pa.Table.from_pylist(ROWS).to_reader(7),
        lambda: [ROWS[:30], pd.DataFrame(ROWS[30:])],
    ],
)
def test_every_shape_gives_the_same_batches(ref, source):
    comp, _ = read(source())
    assert np.concatenate([c.batch.keys for c in comp]).tolist() == np.concatenate([c.batch.keys for c in ref]).tolist()
    assert np.concatenate([c.batch.clicks for c in comp]).tolist() == [row["click"] for row in ROWS]
    assert np.concatenate([c.batch.times for c in comp]).tolist() == [row["t"] for row in ROWS]


def test_positions_and_totals():
    chunks, total = read(ROWS)
    assert total == 50
    assert [len(chunk.batch) for chunk in chunks] == [20, 20, 10]
    rest, _ = read(ROWS, start=chunks[0].position)
    assert [c.batch.keys.tolist() for c in rest] == [c.batch.keys.tolist() for c in chunks[1:]]


def test_queries():
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute("CREATE TABLE clicks (click INTEGER, ad TEXT, price REAL)")
    connection.executemany("INSERT INTO clicks VALUES (?, ?, ?)", [(n % 2, f"a{n}", n / 2) for n in range(9)])
    schema = Schema(label="click", fields=[Field("ad"), Field("price", kind="number")])
    query = sql("SELECT * FROM clicks", connection)
    ref, _ = read([{"click": n % 2, "ad": f"a{n}", "price": n / 2} for n in range(9)], schema)
    for _ in range(2):
        assert read(query, schema)[0][0].batch.keys.tolist() == ref[0].batch.keys.tolist()
    assert guess(query).label == "click"
    with pytest.raises(InputError, match="the query 'SELECT nothing' failed: OperationalError"):
        read(sql("SELECT nothing", connection), schema)


class Answer:
    """As ADBC's cursors."""

    def cursor(self):
        return self

    def execute(self, query):
        return None

    def fetch_record_batch(self):
        return pa.Table.from_pylist(ROWS).to_reader()


def test_drivers_that_answer_in_arrow(ref):
    comp, _ = read(sql("SELECT", Answer()))
    assert [c.batch.keys.tolist() for c in comp] == [c.batch.keys.tolist() for c in ref]


def test_duckdb():
    pytest.importorskip("duckdb")
    comp, _ = read(sql("SELECT 1 AS click, 'x' AS ad"), Schema(label="click", fields=[Field("ad")]))
    assert len(comp[0].batch) == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([{"click": 1}, 3], "not int|must be|path"),
        (iter([3]), "row 0 of the list_iterator is of type int; every row must be a dict"),
        (lambda: 3, "returned int, which holds no rows"),
        (iter([]), "there are no rows in"),
        ([{"click": 1, "ad": {1}}], "row 0 of the rows: column 'ad': a value of type set"),
    ],
)
def test_refusals(source, words):
    with pytest.raises((InputError, TypeError), match=words):
        read(source, Schema(label="click", fields=[Field("ad")]))
