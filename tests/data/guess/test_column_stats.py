"""Statistics of columns, block by block."""

import pyarrow as pa
import pytest

from pbodl.data.guess.column_stats import ColumnStats

NAN = float("nan")


def stats(*blocks):
    column = ColumnStats("c")
    for block in blocks:
        column.add(pa.chunked_array([block]))
    return column


@pytest.mark.parametrize(
    ("values", "kind", "distinct", "missing"),
    [
        (pa.array([1, 2, 2, None]), "whole", 2, 1),
        (pa.array([1.0, 2.0, None, NAN]), "whole", 2, 2),  # whole numbers with gaps come as floats
        (pa.array([1.5, 2.0, 1.5]), "fraction", 2, 0),
        (pa.array(["1", "-2", ""]), "whole", 2, 1),
        (pa.array(["1", "2.5", None]), "fraction", 2, 1),
        (pa.array(["1", "x"]), "text", 2, 0),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "text", 2, 0),
        (pa.array([True, False]), "bool", 2, 0),
        (pa.array([0, 1], pa.timestamp("s")), "time", 2, 0),
        (pa.array([["a", "b"], ["b"], [], None]), "list", 2, 1),
    ],
)
def test_kinds(values, kind, distinct, missing):
    column = stats(values)
    assert (column.kind, column.distinct, column.missing, column.rows) == (kind, distinct, missing, len(values))


def test_blocks_add_up():
    column = stats(pa.array([1, 2]), pa.array([2, 7]), pa.array([None, -3]))
    assert (column.distinct, column.low, column.high, column.missing_share) == (4, -3.0, 7.0, 1 / 6)
    assert column.sample.to_pylist() == [1, 2]


def test_blocks_of_different_kinds_are_text():
    assert stats(pa.array(["1"]), pa.array(["x"])).kind == "text"
    assert stats(pa.array(["1"]), pa.array(["2.5"])).kind == "fraction"


def test_many_values_are_counted_exactly(monkeypatch):
    monkeypatch.setattr("pbodl.data.guess.column_stats.GATHER", 10)
    blocks = [pa.array(range(start, start + 30)) for start in range(0, 100, 20)]
    assert stats(*blocks).distinct == 110


def test_texts_that_look_like_lists():
    assert stats(pa.array(["a|b", "c", "d|e", "f"])).listed == 0.5
    assert stats(pa.array(["a|b", "c", "b|c", "a"])).elements == 3


def test_a_column_of_nothing():
    column = stats(pa.nulls(3))
    assert (column.rows, column.missing, column.distinct, column.missing_share) == (3, 3, 0, 1.0)
