"""Reading logs: the same rows from every format, in any pieces, from any position; and what happens to bad ones."""

import gzip
import json
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pbodl.data.convert import Batch, concat, from_data
from pbodl.data.log import log_reader as readers
from pbodl.data.log.log_reader import Chunk, LogPosition, open_log
from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic import World
from pbodl.errors import InputError

ROWS = 3000
SCHEMA = Schema(label="click", time="when", fields=[Field("ad", group="ad"), Field("price", kind="number")])
HEADER = b"click,when,ad,price\n"


def assert_same(comp: Batch, ref: Batch) -> None:
    for name, left, right in zip(Batch._fields, comp, ref, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> tuple:
    """The folder of a world's log in every format, its schema, and the whole of it as one batch."""
    made = World(seed=5, days=2, rows=ROWS)
    folder = tmp_path_factory.mktemp("world")
    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        made.write(folder / name)
    table = pa.Table.from_batches(made.batches())
    with (folder / "a.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
    return folder, made.schema, from_data(made.schema, table, labelled=True)


FORMATS = ["a.csv", "a.csv.gz", "a.parquet", "a.jsonl"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("batch_rows", [700, 65536])
def test_every_format_gives_the_same_batch(world, name, batch_rows):
    folder, schema, ref = world
    with open_log(folder / name, schema, batch_rows=batch_rows, columns=["p_true"]) as log:
        chunks = list(log)
        assert log.rows_total == ROWS
        assert log.bytes_read == log.bytes_total == (folder / name).stat().st_size
    assert_same(concat([chunk.batch for chunk in chunks]), ref)
    assert [len(chunk.batch) for chunk in chunks] == [min(batch_rows, ROWS - i) for i in range(0, ROWS, batch_rows)]
    assert all(chunk.table.num_rows == len(chunk.batch) for chunk in chunks)
    assert "p_true" in chunks[0].table.column_names
    assert log.position == chunks[-1].position
    assert (log.bad_rows, log.out_of_order, log.position.row) == (0, 0, ROWS)


@pytest.mark.parametrize("name", FORMATS)
def test_going_on_from_any_position(world, name):
    folder, schema, ref = world
    paths = [folder / name, folder / "a.parquet"]
    twice = concat([ref, ref])
    with open_log(paths, schema, batch_rows=800) as log:
        chunks = list(log)
    assert_same(concat([chunk.batch for chunk in chunks]), twice)
    done = 0
    for i, chunk in enumerate(chunks):
        done += len(chunk.batch)
        start = LogPosition(**json.loads(json.dumps(chunk.position._asdict())))
        with open_log(paths, schema, batch_rows=800, start=start) as log:
            rest = list(log)
            assert [one.position for one in rest] == [one.position for one in chunks[i + 1 :]]
            assert log.position == chunks[-1].position
        if rest:
            assert_same(concat([one.batch for one in rest]), twice.rows(done, len(twice)))


def test_without_labels(world):
    folder, schema, ref = world
    table = pa.parquet.read_table(folder / "a.parquet").drop_columns(["click"])
    pa.parquet.write_table(table, folder / "unlabelled.parquet")
    with open_log(folder / "unlabelled.parquet", schema, labelled=False) as log:
        (chunk,) = log
    assert chunk.batch.clicks is None
    assert_same(chunk.batch._replace(clicks=ref.clicks), ref)


def test_closing_early_stops_the_thread(world):
    folder, schema, _ = world
    log = open_log(folder / "a.csv.gz", schema, batch_rows=10)
    next(log)
    log.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "pbodl-read-ahead"]
    assert list(log) == []
    open_log(folder / "a.csv.gz", schema).close()


def write(path, *lines: bytes):
    data = HEADER + b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


GOOD = [b"0,100,a,1", b"1,101,b,", b"0,102,a,2.5", b"1,103,c,3", b"0,104,c,3"]
BAD = {
    b"0,100,a": "it has 3 values, but the header has 4 columns",
    b"2,100,a,1": "label 'click' holds '2'; it must be 0 or 1",
    b",100,a,1": "label 'click' holds ''; it must be 0 or 1",
    b"0,noon,a,1": "time column 'when' holds 'noon'; it must be epoch seconds or ISO 8601",
    b"0,100,a,cheap": "number field 'price' holds 'cheap'; it must be a finite number",
    b"0,100,a,inf": "number field 'price' holds inf; it must be a finite number",
    b"0,100,\xff,1": r"column 'ad' holds b'\xff', which is not valid UTF-8",
    b'0,100,"a,1': "it has 3 values, but the header has 4 columns; one of its quotes may not be closed",
}


def ads(chunks) -> list:
    return [ad for chunk in chunks for ad in chunk.table.column("ad").to_pylist()]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_stopping_at_a_bad_row(tmp_path, bad, batch_rows):
    path = write(tmp_path / "a.csv", *GOOD[:3], bad, *GOOD[3:], bad)
    log = open_log([path], SCHEMA, batch_rows=batch_rows)
    chunks: list[Chunk] = []
    with pytest.raises(InputError) as error:
        chunks.extend(log)
    assert str(error.value).startswith(f"{path}, line 5: {BAD[bad]}")
    assert "--bad-rows skip" in str(error.value)
    assert ads(chunks) == ["a", "b", "a"]
    assert chunks[-1].position._replace(latest=None) == LogPosition(row=3, file=f"{tmp_path.name}/a.csv")
    log.close()
    # The row put right, reading goes on with it.
    write(path, *GOOD)
    with open_log([path], SCHEMA, start=chunks[-1].position) as log:
        assert ads(log) == ["c", "c"]


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_skipping_bad_rows(tmp_path, name, batch_rows):
    path = write(tmp_path / name, *BAD, *GOOD[:2], b"", b"\r", *BAD, *GOOD[2:], *BAD)
    quarantine = tmp_path / "bad.jsonl"
    log = open_log(path, SCHEMA, batch_rows=batch_rows, bad_rows="skip", bad_rows_file=quarantine)
    with log:
        chunks = list(log)
    assert_same(
        concat([chunk.batch for chunk in chunks]),
        concat([chunk.batch for chunk in open_log(write(tmp_path / "good.csv", *GOOD), SCHEMA)]),
    )
    assert (log.bad_rows, log.position.row) == (3 * len(BAD), 3 * len(BAD) + len(GOOD) + 2)
    records = [json.loads(line) for line in quarantine.read_text(encoding="utf-8").splitlines()]
    n = len(BAD)
    assert [record["line"] for record in records] == [*range(2, n + 2), *range(n + 6, 2 * n + 6), *range(2 * n + 9, 3 * n + 9)]
    for record, (raw, reason) in zip(records, [*BAD.items()] * 3, strict=True):
        assert record["file"] == str(path)
        assert record["reason"].startswith(reason)
        assert record["raw"] == raw.decode("utf-8", "backslashreplace")
    # From any chunk on, the rest, and in the end the same file of bad rows.
    ref = quarantine.read_bytes()
    for i, chunk in enumerate(chunks):
        again = open_log(path, SCHEMA, batch_rows=batch_rows, bad_rows="skip", bad_rows_file=quarantine, start=chunk.position)
        with again:
            assert ads(again) == ads(chunks[i + 1 :])
        assert again.position == log.position
        assert quarantine.read_bytes() == ref


def test_bad_rows_of_parquet_are_counted_from_one(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"click": [0, 1, 7, 1], "when": [1, 2, 3, None], "ad": [1, 2, 3, 4], "price": [1.0, np.inf, 1, 1]})
    pa.parquet.write_table(table, path)
    with pytest.raises(InputError, match=r"a.parquet, row 2: number field 'price' holds inf"):
        list(open_log(path, SCHEMA))
    quarantine = tmp_path / "bad.jsonl"
    with open_log(path, SCHEMA, bad_rows="skip", bad_rows_file=quarantine) as log:
        assert ads(log) == [1]
    records = [json.loads(line) for line in quarantine.read_text(encoding="utf-8").splitlines()]
    assert [record["row"] for record in records] == [2, 3, 4]
    assert json.loads(records[1]["raw"]) == {"ad": 3, "price": 1.0, "click": 7, "when": 3}


def test_bad_rows_of_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"click": 1, "when": 5, "ad": 1}\n{"click": 1, "ad": 2}\n{\n{"click": true, "when": 6, "ad": "3"}\n')
    with open_log(path, SCHEMA, bad_rows="skip") as log:
        assert [str(ad) for ad in ads(log)] == ["1", "3"]
    assert log.bad_rows == 2
    with pytest.raises(InputError, match=r"a.jsonl, line 2: time column 'when' holds None"):
        list(open_log(path, SCHEMA))


def test_rows_that_go_back_in_time_are_counted(tmp_path):
    times = [5, 3, 4, 6, 6, 5, 7]
    path = write(tmp_path / "a.csv", *(b"0,%d,a,1" % time for time in times))
    older = write(tmp_path / "b.csv", b"0,7,a,1", b"0,6,a,1")
    for batch_rows in (1, 2, 100):
        with open_log([path, older], SCHEMA, batch_rows=batch_rows) as log:
            counts = [chunk.position.out_of_order for chunk in log]
        assert counts[-1] == log.out_of_order == 4
        assert log.position.latest == 7.0


@pytest.mark.parametrize("name", ["a.csv.gz", "a.parquet"])
def test_damage_is_told_after_the_rows_before_it(world, tmp_path, name):
    folder, schema, ref = world
    whole = (folder / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) * 2 // 3])
    for bad_rows in ("stop", "skip"):
        log = open_log([folder / "a.csv", tmp_path / name], schema, batch_rows=100, bad_rows=bad_rows)
        chunks: list[Chunk] = []
        with pytest.raises(InputError, match=r"truncated" if name == "a.csv.gz" else "cannot be read"):
            chunks.extend(log)
        comp = concat([chunk.batch for chunk in chunks])
        assert len(comp) >= ROWS
        assert_same(comp, concat([ref, ref]).rows(0, len(comp)))
        log.close()


def test_empty_files_among_others_and_alone(tmp_path):
    empty, full = write(tmp_path / "a.csv"), write(tmp_path / "b.csv", *GOOD)
    with open_log([empty, full, empty], SCHEMA) as log:
        assert len(ads(log)) == len(GOOD)
    with pytest.raises(InputError, match=r"there are no rows in .*a.csv"):
        list(open_log(empty, SCHEMA))
    pa.parquet.write_table(pa.table({"click": [], "when": [], "ad": [], "price": []}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match=r"there are no rows in .*c.parquet"):
        list(open_log(tmp_path / "c.parquet", SCHEMA))


def test_texts_of_lists_and_weights(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"click,w,words\n1,0.5,a|b|a\n0,2,\n")
    schema = Schema(label="click", weight="w", fields=[Field("words", kind="multi")])
    (chunk,) = open_log(path, schema)
    ref = [{"click": 1, "w": 0.5, "words": ["a", "b", "a"]}, {"click": 0, "w": 2.0, "words": None}]
    assert_same(chunk.batch, from_data(schema, ref, labelled=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bad_rows": "ignore"}, "bad_rows is 'ignore'; allowed are 'stop' and 'skip'"),
        ({"bad_rows_file": "x"}, "set bad_rows='skip'"),
        ({"batch_rows": 0}, "batch_rows is 0"),
        ({"columns": ["pric"]}, r"no column 'pric' \(did you mean 'price'\?\)"),
        ({"start": LogPosition(source=1, file="b.csv")}, "file number 2 of the log, which was 'b.csv' and is now 'missing'"),
        ({"start": LogPosition(source=0, file="b.csv")}, "which was 'b.csv' and is now '.*/a.csv'"),
        ({"start": LogPosition(row=9)}, "fewer than the 9 rows"),
    ],
)
def test_refusals(tmp_path, change, words):
    path = write(tmp_path / "a.csv", *GOOD)
    with pytest.raises(InputError, match=words):
        list(open_log(path, SCHEMA, **change))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"fields": [Field("ads")]}, r"a.csv has no column 'ads', which the schema names as a field \(did you mean 'ad'\?\)"),
        ({"fields": [Field("site")]}, "no column 'site', which the schema names as a field; its columns are: click, when, ad"),
        ({"label": "clicked"}, r"no column 'clicked', which the schema names as its label \(did you mean 'click'\?\)"),
        ({"time": "whem"}, "no column 'whem', which the schema names as its time"),
        ({"weight": "w"}, "no column 'w', which the schema names as its weight"),
    ],
)
def test_columns_are_checked_when_the_log_is_opened(tmp_path, fields, words):
    path = write(tmp_path / "a.csv", *GOOD)
    schema = Schema(**{"label": "click", "fields": [Field("ad")]} | fields)
    with pytest.raises(InputError, match=words):
        open_log(path, schema)


def test_names_that_json_rows_may_lack(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"click": 1, "ad": 1}\n')
    schema = Schema(label="click", fields=[Field("ad"), Field("site")])
    (chunk,) = open_log(path, schema)
    assert_same(chunk.batch, from_data(schema, {"click": 1, "ad": 1, "site": None}, labelled=True))
    with pytest.raises(InputError, match=r"no column 'adx'.* \(did you mean 'ad'\?\)"):
        open_log(path, Schema(label="click", fields=[Field("adx")]))


def test_wrong_types_of_columns_are_told_at_once(tmp_path):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"click": [1], "ad": [[1]]}), path)
    with pytest.raises(InputError, match=r"a.parquet: .*for lists declare kind='multi'"):
        list(open_log(path, Schema(label="click", fields=[Field("ad")]), bad_rows="skip"))


def test_errors_of_the_program_travel_too(world, monkeypatch):
    folder, schema, _ = world

    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(readers, "chunk_of", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        list(open_log(folder / "a.csv", schema))


def test_the_rows_of_a_log_are_counted_where_quoted_texts_have_line_ends(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(HEADER + b"".join(b'%d,%d,"two\nlines %d",1\n' % (n % 2, 1735689600 + n, n % 5) for n in range(400)))
    with open_log(path, SCHEMA, batch_rows=100) as log:
        assert sum(len(chunk.batch) for chunk in log) == log.rows_total == 400
