"""Columns of text brought to their types, and left alone where they are not of them."""

import pyarrow as pa
import pytest

from pbodl.data.features.tokens import split_texts
from pbodl.data.labels import labels_of_texts as labels
from pbodl.data.schema import Field, Schema
from pbodl.data.texts import numbers, times, typed


def lists(texts):
    return split_texts(texts, "|")


@pytest.mark.parametrize(
    ("reader", "texts", "ref"),
    [
        (labels, ["0", "1", "1.0", "True", "FALSE", None, " 1"], [0, 1, 1, 1, 0, None, 1]),
        (labels, ["0", "2"], ["0", "2"]),
        (labels, [""], [""]),
        (numbers, ["1", "-2.5e3", "", None, ".5"], [1.0, -2500.0, None, None, 0.5]),
        (numbers, ["1", "x"], ["1", "x"]),
        (lists, ["a|b", "a", "", None, "|"], [["a", "b"], ["a"], None, None, ["", ""]]),
        (times, ["1413849600", "1413849600.5"], [1413849600.0, 1413849600.5]),
        (times, ["2014-10-21", "2014-10-22"], ["2014-10-21", "2014-10-22"]),
        (times, ["2014-10-21", "1413849601"], [1413849600.0, 1413849601.0]),
        (times, ["1413849601", "soon"], ["1413849601", "soon"]),
    ],
)
def test_readers(reader, texts, ref):
    assert reader(pa.array(texts, pa.large_string())).to_pylist() == ref


SCHEMA = Schema(
    label="click",
    time="when",
    weight="importance",
    fields=[Field("site"), Field("price", kind="number"), Field("words", kind="multi")],
)
TEXTS = {"click": "1", "when": "60", "importance": "2", "site": "7", "price": "3", "words": "a|b", "id": "9"}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_tables(kind):
    table = pa.table({name: pa.array([text, text], pa.string()).cast(kind) for name, text in TEXTS.items()})
    ref = TEXTS | {"click": 1, "when": 60.0, "importance": 2.0, "price": 3.0, "words": ["a", "b"]}
    assert typed(SCHEMA, table, labelled=True).to_pylist() == [ref, ref]
    ref |= {"click": "1", "importance": "2"}
    assert typed(SCHEMA, table, labelled=False).to_pylist() == [ref, ref]


def test_a_time_with_a_format_stays_text():
    schema = Schema(label="click", time="hour", time_format="%y%m%d%H", fields=[Field("site")])
    table = pa.table({"hour": ["14102100"]})
    assert typed(schema, table, labelled=True).to_pylist() == [{"hour": "14102100"}]


def test_slices_of_columns_are_read_as_whole_columns_are():
    # Releases of Arrow before 24 write zero bytes over texts when a slice of them is compared with a null.
    column = pa.array(["", "1.5", "-2", "", "7"], pa.large_string())
    for start in range(4):
        assert numbers(column[start:]).to_pylist() == [None, 1.5, -2.0, None, 7.0][start:]
        assert lists(column[start:]).to_pylist() == [None, ["1.5"], ["-2"], None, ["7"]][start:]
    moments = pa.array(["2024-01-01", "5", "2024-01-01", "7"], pa.large_string())
    for start in range(3):
        assert times(moments[start:]).to_pylist() == [1704067200.0, 5.0, 1704067200.0, 7.0][start:]
