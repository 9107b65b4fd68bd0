"""Parquet files: any row groups, any start, and damage."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pbodl.data.convert import from_data
from pbodl.data.hashing import hash_value
from pbodl.data.log.columnar.parquet_reader import ParquetFile
from pbodl.data.log.log_sources import find_sources
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError

TABLE = pa.table(
    {
        "n": np.arange(100),
        "text": [f"t{i % 7}" if i % 5 else None for i in range(100)],
        "list": [[i, i + 1] for i in range(100)],
        "other": np.zeros(100),
    }
)


def blocks(path, columns=("text", "n", "list"), size=30, start=0):
    file = ParquetFile(find_sources(path)[0])
    try:
        return list(file.blocks(list(columns), size, start))
    finally:
        file.close()


@pytest.mark.parametrize("group", [1, 7, 30, 1000])
def test_any_row_groups_and_any_start(tmp_path, group):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(TABLE, path, row_group_size=group)
    ref = TABLE.select(["text", "n", "list"]).to_pylist()
    for start in (0, 1, 29, 30, 31, 99, 100):
        comp = blocks(path, start=start)
        assert [row for block in comp for row in block.table.to_pylist()] == ref[start:]
        assert [block.rows for block in comp] == [min(30, 100 - i) for i in range(start, 100, 30)]
    with pytest.raises(InputError, match="fewer than the 101 rows"):
        blocks(path, start=101)


def test_what_is_known_of_a_file(tmp_path):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(TABLE, path)
    file = ParquetFile(find_sources(path)[0])
    assert (file.columns, file.rows, file.bytes_read) == (["n", "text", "list", "other"], 100, 0)
    (block,) = file.blocks(["n", "text"], 100, 0)
    assert file.bytes_read == path.stat().st_size
    assert json.loads(block.raw(7)) == {"n": 7, "text": "t0"}
    assert pa.types.is_dictionary(block.table.schema.field("text").type)
    file.close()


def test_texts_are_dictionaries_where_the_file_has_them_so(tmp_path):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(TABLE.append_column("plain", TABLE["text"]), path, use_dictionary=["text"])
    (block,) = blocks(path, ["text", "plain"], 100)
    assert [pa.types.is_dictionary(kind) for kind in block.table.schema.types] == [True, False]
    assert block.table["text"].to_pylist() == block.table["plain"].to_pylist() == TABLE["text"].to_pylist()
    keys = from_data(Schema(label="n", fields=[Field("text"), Field("plain")]), block.table, False).keys.reshape(-1, 2)
    for name, column in zip(("text", "plain"), keys.T, strict=True):
        assert column.tolist() == [hash_value(name, value) for value in TABLE["text"].to_pylist()]


@pytest.mark.parametrize("coded", [False, True])
def test_texts_that_are_not_utf8(tmp_path, coded):
    texts = pa.array([b"a", b"\xff", b"\xef\xbf\xbd", None, b"\xff"], pa.binary())
    texts = texts.view(pa.string())
    table = pa.table({"text": texts.dictionary_encode() if coded else texts, "n": range(5)})
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(table, path)
    (block,) = blocks(path, ["text", "n"])
    assert block.table.column("n").to_pylist() == block.places.tolist() == [0, 2, 3]
    assert block.faults == {place: r"column 'text' holds b'\xff', which is not valid UTF-8" for place in (1, 4)}
    assert json.loads(block.raw(1)) == {"text": "\\xff", "n": 1}


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"?" * 50 + b"PAR1", b"click,ad\n1,2\n"])
def test_what_is_no_parquet_file(tmp_path, content):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a.parquet cannot be read: "):
        blocks(path)


def test_truncation(tmp_path):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(TABLE, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"a.parquet cannot be read: "):
        blocks(path)


def test_rows_before_a_damaged_row_group_are_handed_out(tmp_path):
    path = tmp_path / "a.parquet"
    options = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pa.parquet.write_table(TABLE, path, row_group_size=40, **options)
    column = pa.parquet.read_metadata(path).row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(data)
    file = ParquetFile(find_sources(path)[0])
    found = []
    with pytest.raises(InputError, match=r"a.parquet, after row 40, cannot be read: .*CRC"):
        for block in file.blocks(["n"], 30, 0):
            found += block.table.column("n").to_pylist()
    assert found == list(range(40))
    file.close()
