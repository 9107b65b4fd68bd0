"""Columns of scikit-learn's X: tables, fields, and categories in floating point."""

import numpy as np
import pyarrow as pa

from pbodl.data.schema import Field
from pbodl.interface.sklearn_columns import fields_of, table_of, whole_categories


def test_arrays_get_names():
    assert table_of(np.zeros((2, 3))).column_names == ["x0", "x1", "x2"]
    assert table_of(np.zeros((2, 2)), ["a", "b"]).column_names == ["a", "b"]


def test_whole_floats_are_the_integers_they_stand_for():
    table = pa.table({"a": [1.0, None, 3.0, np.nan], "b": [0.5, 1.0, 2.0, 3.0], "n": [1.0, 2.0, 3.0, 4.0]})
    comp = whole_categories(table, [Field("a"), Field("b"), Field("n", kind="number"), Field("absent")])
    assert comp.column("a").to_pylist() == [1, None, 3, None]
    assert comp.column("b").type == comp.column("n").type == pa.float64()


def test_masks_and_negative_indices_choose_columns():
    table = pa.table({"a": [1], "b": [2]})
    assert [field.kind for field in fields_of(table, [True, False], "scale")] == ["category", "number"]
    assert [field.kind for field in fields_of(table, [-1], "scale")] == ["number", "category"]
