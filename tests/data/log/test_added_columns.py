"""Columns that come from the names of folders, and from texts of JSON inside of CSV files and tables."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pbodl.data.convert import from_data
from pbodl.data.guess.schema_guess import guess
from pbodl.data.log.log_reader import open_log
from pbodl.data.schema import Field, Schema

N = 240


def rows(day=1):
    return [{"click": int((n * 7 + day) % 11 == 0), "ad_id": f"a{n % 6}", "site": f"s{n * n % 5}"} for n in range(N)]


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(data), path)
    elif path.suffix == ".csv":
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([list(data[0]), *(row.values() for row in data)])
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in data))


def batch(log, schema):
    with open_log(log, schema) as reader:
        return [chunk.batch for chunk in reader]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_folders_of_a_partitioned_log_are_columns(tmp_path, suffix):
    days = ["2024-01-01", "2024-01-02", "2024-01-03"]
    for place, day in enumerate(days):
        write(tmp_path / "log" / f"day={day}" / "country=S%C3%A3o%20Tom%C3%A9" / f"part-0{suffix}", rows(place))
    found = guess(tmp_path / "log")
    assert (found.time, found.rows) == ("day", 3 * N)
    notes = {column.name: column.note for column in found.columns}
    assert notes["country"] == "it is constant, 'São Tomé'"
    batches = batch(tmp_path / "log", found.schema())
    assert [one.times[0] for one in batches] == [1704067200.0 + 86400 * place for place in range(3)]
    # As a field, and as if each row held it.
    schema = Schema(label="click", fields=[Field("ad_id", group="ad"), Field("day"), Field("country")])
    for one, day, place in zip(batch(tmp_path / "log", schema), days, range(3), strict=True):
        ref = from_data(schema, [row | {"day": day, "country": "São Tomé"} for row in rows(place)], labelled=True)
        np.testing.assert_array_equal(one.keys, ref.keys)


def test_a_column_of_the_file_comes_before_its_folder_and_null_has_a_name(tmp_path):
    write(tmp_path / "site=x" / "town=__HIVE_DEFAULT_PARTITION__" / "a.csv", rows())
    schema = Schema(label="click", fields=[Field("site"), Field("town")])
    (one,) = batch(tmp_path, schema)
    np.testing.assert_array_equal(one.keys, from_data(schema, [row | {"town": None} for row in rows()], labelled=True).keys)


def with_json(n, row):
    device = {"os": ("ios", "android")[n % 2], "size": {"w": 300 + n % 40}} if n % 9 else None
    return row | {"device": device, "tags": [["red", "new"], ["red"], ["a|b", "old"]][n % 3]}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_texts_of_json_are_read_as_what_they_hold(tmp_path, suffix):
    data = [with_json(n, row) for n, row in enumerate(rows())]
    texts = [row | {"device": row["device"] and json.dumps(row["device"]), "tags": json.dumps(row["tags"])} for row in data]
    write(tmp_path / f"log{suffix}", [row | {"device": row["device"] or ""} for row in texts])
    found = guess(tmp_path / f"log{suffix}")
    fields = {field.name: field for field in found.fields}
    assert set(fields) == {"ad_id", "site", "device.os", "device.size.w", "tags"}
    assert fields["tags"].kind == "multi"
    (one,) = batch(tmp_path / f"log{suffix}", found.schema())
    # The same log with real objects and lists, and rows of texts, have the same features.
    for other in (data, texts, pa.Table.from_pylist(data), pa.Table.from_pylist(texts)):
        ref = from_data(found.schema(), other, labelled=True)
        np.testing.assert_array_equal(one.keys, ref.keys)
        np.testing.assert_array_equal(one.values, ref.values)
        np.testing.assert_array_equal(one.indptr, ref.indptr)


def test_a_text_that_is_no_object_has_no_values(tmp_path):
    data = [row | {"device": '{"os": "ios"}' if n % 3 else "{broken"} for n, row in enumerate(rows())]
    write(tmp_path / "log.csv", data)
    schema = Schema(label="click", fields=[Field("ad_id"), Field("device.os")])
    ref = from_data(schema, [{**row, "device": {"os": "ios"} if n % 3 else None} for n, row in enumerate(rows())], labelled=True)
    np.testing.assert_array_equal(batch(tmp_path / "log.csv", schema)[0].keys, ref.keys)
