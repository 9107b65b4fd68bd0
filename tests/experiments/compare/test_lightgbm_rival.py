"""LightGBM's adapter: it learns in batch, from categories and raw numbers."""

import numpy as np
import pytest

from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.experiments.compare import lightgbm_rival
from tests.experiments.compare.rivals import check_rival


def test_lightgbm():
    pytest.importorskip("lightgbm")
    check_rival("lightgbm", online=False)


def test_numbers_arrive_as_they_are():
    fields = [Field("ad", group="ad"), Field("price", kind="number"), Field("tags", kind="multi")]
    schema = lightgbm_rival.with_raw_numbers(Schema(label="click", fields=fields))
    rows = [{"click": 0, "ad": "a", "price": 3.5, "tags": ["x", "y"]}, {"click": 1, "ad": "b", "price": None, "tags": []}]
    batch = from_data(schema, rows, True)
    ads, prices, tags = lightgbm_rival._columns(batch, schema.fields)
    np.testing.assert_array_equal(prices, [3.5, np.nan])
    assert ads[0] != ads[1] and tags[0] in batch.keys and tags[0] != tags[1]


def test_a_cross_keeps_its_buckets():
    fields = [Field("ad", group="ad"), Field("price", kind="number"), Field("both", group="ad", cross=["ad", "price"])]
    schema = Schema(label="click", fields=fields)
    assert lightgbm_rival.with_raw_numbers(schema) == schema
