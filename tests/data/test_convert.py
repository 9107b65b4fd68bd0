"""Batches: every shape of data against the naive rules, and every refusal."""

import datetime
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.convert import Batch, concat, from_data
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from tests.oracles.batch import features

CATEGORIES = [
    Field("hour", derive="hour_of_day"),
    Field("site", group="context"),
    Field("ad", group="ad"),
    Field("level", group="user"),
]
MIXED = [
    Field("interests", group="user", kind="multi"),
    Field("price", group="ad", kind="number"),
    Field("age", group="user", kind="number", transform="scale"),
    *CATEGORIES,
    Field("words", kind="multi"),
]
PLAIN_SCHEMA = Schema(label="click", fields=CATEGORIES, time="hour", time_format="%y%m%d%H")
MIXED_SCHEMA = Schema(label="click", fields=MIXED, time="when", weight="importance")
SMALL = Schema(label="click", fields=[Field("user_id", group="user"), Field("ad_id", group="ad")])


def assert_same(comp: Batch, ref: Batch) -> None:
    for name, left, right in zip(Batch._fields, comp, ref, strict=True):
        if right is None:
            assert left is None
            continue
        assert left.dtype == right.dtype, name
        assert left.flags.c_contiguous, name
        np.testing.assert_array_equal(left, right, err_msg=name)


def naive(schema: Schema, rows: list[dict], times: list[float], weights: list[float]) -> Batch:
    samples = [features(schema.fields, row, t) for row, t in zip(rows, times, strict=True)]
    flat = [feature for sample in samples for feature in sample]
    return Batch(
        np.array([key for key, _, _ in flat], dtype=np.uint64),
        np.array([value for _, value, _ in flat], dtype=np.float32),
        np.array([field for _, _, field in flat], dtype=np.int32),
        np.cumsum([0] + [len(sample) for sample in samples]).astype(np.int64),
        np.array([row["click"] for row in rows], dtype=np.float32),
        np.array(times, dtype=np.float64),
        np.array(weights, dtype=np.float32),
    )


def shapes(table: pa.Table) -> dict:
    """The same data in every shape that is accepted."""
    half = table.num_rows // 2
    chunks = pa.concat_tables([table.slice(0, half), table.slice(half)])
    shapes = {
        "dicts": table.to_pylist(),
        "table": table,
        "chunks": chunks,
        "slice": pa.concat_tables([table, table]).combine_chunks().slice(table.num_rows),
        "pandas": table.to_pandas(),
        "polars": pl.from_arrow(table),
        "stream": table.to_reader(),
    }
    if table.num_rows:
        shapes["record batch"] = table.combine_chunks().to_batches()[0]
    return shapes


VALUES = st.one_of(st.none(), st.sampled_from(["a", "b", "", "12", "a longer text"]))
PLAIN_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "hour": st.sampled_from([14102100, 14102123, 14103011]),
            "site": VALUES,
            "ad": st.one_of(st.none(), st.integers(-5, 2**40)),
            "level": st.one_of(st.none(), st.floats(-10, 10), st.integers(-3, 3).map(float)),
            "click": st.integers(0, 1),
        }
    ),
    max_size=8,
)
PLAIN_TYPES = pa.schema({"hour": pa.int64(), "site": pa.string(), "ad": pa.int64(), "level": pa.float64(), "click": pa.int64()})


@given(PLAIN_ROWS)
def test_every_shape_of_plain_rows_gives_the_same_batch(rows):
    moments = [datetime.datetime.strptime(f"{row['hour']}+0000", "%y%m%d%H%z").timestamp() for row in rows]
    ref = naive(PLAIN_SCHEMA, rows, moments, [1.0] * len(rows))
    table = pa.Table.from_pylist(rows, PLAIN_TYPES)
    for name, data in shapes(table).items():
        if name != "pandas":  # its nulls in integer columns are floats: the next test
            assert_same(from_data(PLAIN_SCHEMA, data, labelled=True), ref)
    coded = table.set_column(1, "site", table["site"].dictionary_encode())
    assert_same(from_data(PLAIN_SCHEMA, coded, labelled=True), ref)
    texts = [row | {"hour": str(row["hour"]), "ad": None if row["ad"] is None else str(row["ad"])} for row in rows]
    assert_same(from_data(PLAIN_SCHEMA, texts, labelled=True), ref)


@given(PLAIN_ROWS)
def test_pandas_columns_of_integers_with_nan(rows):
    ref = from_data(PLAIN_SCHEMA, rows, labelled=True)
    table = pa.Table.from_pylist(rows, PLAIN_TYPES)
    frame = table.to_pandas()
    assert_same(from_data(PLAIN_SCHEMA, frame, labelled=True), ref)
    frame["site"] = frame["site"].astype("category")
    assert_same(from_data(PLAIN_SCHEMA, frame, labelled=True), ref)


MIXED_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "interests": st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=6)),
            "price": st.one_of(st.none(), st.integers(-1000, 1000).map(float)),
            "age": st.one_of(st.none(), st.integers(-100, 100).map(lambda n: n / 4)),
            "site": VALUES,
            "ad": st.one_of(st.none(), st.integers(0, 9)),
            "level": st.sampled_from([1.5, 2.0]),
            "words": st.lists(st.integers(0, 3), max_size=5),
            "when": st.integers(0, 2**31).map(float),
            "importance": st.sampled_from([0.0, 0.5, 1.0, 2.0]),
            "click": st.booleans(),
        }
    ),
    max_size=8,
)
MIXED_TYPES = pa.schema(
    {
        "interests": pa.list_(pa.string()),
        "price": pa.float64(),
        "age": pa.float64(),
        "site": pa.string(),
        "ad": pa.int32(),
        "level": pa.float64(),
        "words": pa.list_(pa.int64()),
        "when": pa.float64(),
        "importance": pa.float32(),
        "click": pa.bool_(),
        "of no interest": pa.int8(),
    }
)


@given(MIXED_ROWS)
def test_every_shape_of_mixed_rows_gives_the_same_batch(rows):
    ref = naive(MIXED_SCHEMA, rows, [row["when"] for row in rows], [row["importance"] for row in rows])
    assert_same(from_data(MIXED_SCHEMA, rows, labelled=True), ref)
    table = pa.Table.from_pylist(rows, MIXED_TYPES)
    for data in shapes(table).values():
        assert_same(from_data(MIXED_SCHEMA, data, labelled=True), ref)


@pytest.mark.nojit
def test_lists_of_every_arrow_type():
    schema = Schema(label="click", fields=[Field("words", kind="multi"), Field("ad")])
    words = [["x", "y", "x"], None, ["z", "z", "z"], ["y", "x", "y"]]
    ref = from_data(schema, [{"words": list_, "ad": 1} for list_ in words], labelled=False)
    for kind in (
        pa.list_(pa.string()),
        pa.large_list(pa.large_string()),
        pa.list_(pa.string(), 3),
        pa.list_view(pa.string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ):
        table = pa.table({"words": pa.array(words, kind), "ad": [1, 1, 1, 1]})
        assert_same(from_data(schema, table, labelled=False), ref)
    assert ref.values.tolist() == [2, 1, 1, 1, 1, 3, 1, 2, 1, 1]
    nan = from_data(schema, {"words": math.nan, "ad": 1}, labelled=False)
    assert_same(nan, ref.rows(1, 2))


def test_long_lists_merge_their_repeats():
    schema = Schema(label="click", fields=[Field("words", kind="multi")])
    rng = np.random.default_rng(0)
    rows = [{"words": rng.integers(0, 300, length).tolist()} for length in (1000, 0, 3, 500)]
    ref = from_data(schema, rows, labelled=False)
    assert_same(from_data(schema, pa.Table.from_pylist(rows), labelled=False), ref)
    assert np.diff(ref.indptr)[1] == 0


def test_columns_of_nothing_but_nulls():
    table = pa.table({name: pa.nulls(2) for name in ("interests", "price", "age", "site", "ad", "level", "words")})
    table = table.append_column("when", pa.array([0.0, 1.0]))
    ref = from_data(MIXED_SCHEMA, table.to_pylist(), labelled=False)
    assert_same(from_data(MIXED_SCHEMA, table, labelled=False), ref)
    assert hash_value("words", None) == ref.keys[-1]


def test_one_dict_and_missing_keys():
    comp = from_data(SMALL, {"user_id": 7, "click": True}, labelled=True)
    assert comp.keys.tolist() == [hash_value("user_id", "7"), hash_value("ad_id", None)]
    assert (comp.clicks.tolist(), comp.times.tolist(), comp.weights.tolist()) == ([1.0], [0.0], [1.0])
    assert from_data(SMALL, {"user_id": 7, "ad_id": 1, "id": 3}, labelled=False).clicks is None
    assert len(from_data(SMALL, [], labelled=True)) == 0


def test_without_labels_time_and_weight_may_be_absent():
    schema = Schema(label="click", fields=[Field("ad_id")], time="when", weight="importance")
    for data in ({"ad_id": 1}, pa.table({"ad_id": [1]})):
        comp = from_data(schema, data, labelled=False)
        assert (comp.times.tolist(), comp.weights.tolist()) == ([0.0], [1.0])


def test_times_of_dicts():
    schema = Schema(label="click", fields=[Field("ad_id")], time="when")
    moment = datetime.datetime(2014, 10, 21, 3, tzinfo=datetime.UTC)
    for value in (
        moment,
        moment.isoformat(),
        moment.timestamp(),
        int(moment.timestamp()),
        pd.Timestamp(moment),
    ):
        for data in ({"ad_id": 1, "when": value}, [{"ad_id": 1, "when": value}] * 2):
            comp = from_data(schema, data, labelled=False)
            assert set(comp.times.tolist()) == {moment.timestamp()}


def test_len_rows_concat_and_replace():
    rows = [{"user_id": i, "ad_id": -i, "click": i % 2} for i in range(7)]
    whole = from_data(SMALL, rows, labelled=True)
    assert len(whole) == 7
    assert_same(concat([whole.rows(0, 3), whole.rows(3, 3), whole.rows(3, 99)]), whole)
    assert_same(whole.rows(2, 4), from_data(SMALL, rows[2:4], labelled=True))
    assert np.shares_memory(whole.rows(2, 4).keys, whole.keys)
    assert len(whole.rows(5, 2)) == 0
    changed = whole._replace(clicks=None)
    assert isinstance(changed, Batch) and changed.clicks is None and changed.keys is whole.keys
    assert from_data(SMALL, whole, labelled=True) is whole


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"usr_id": 7, "ad_id": 1, "click": 1}, "row 0: unknown field 'usr_id' (did you mean 'user_id'?"),
        ({"usr_id": 7, "ad_id": 1, "click": 1}, "fields are: user_id, ad_id"),
        ({"user_id": 7, "ad_id": 1}, "row 0 has no label 'click'"),
        ({"user_id": 7, "ad_id": 1, "clik": 1}, "row 0 has no label 'click' (did you mean 'clik'?"),
        (
            [{"user_id": 7, "ad_id": 1, "click": 0}, {"user_id": 7, "ad_id": 1, "click": 2}],
            "row 1: label 'click' holds 2",
        ),
        ({"user_id": 7, "ad_id": 1, "click": None}, "row 0: label 'click' holds None"),
        ({"user_id": 7, "ad_id": 1, "click": "maybe"}, "label 'click' holds 'maybe'"),
        ({"user_id": 7, "ad_id": [1], "click": 1}, "row 0, field 'ad_id': a value of type list"),
        ([{"user_id": 7, "ad_id": 1, "click": 1}, 3], "row 1 is of type int"),
        (pa.table({"user": [7], "ad_id": [1], "click": [1]}), "no column 'user_id' (did you mean 'user'?"),
        (pa.table({"user_id": [7], "ad_id": [1]}), "no label column 'click'"),
        (pa.table({"user_id": [7], "ad_id": [1], "click": [0.5]}), "row 0: label 'click' holds 0.5"),
        (pa.table({"user_id": [7], "ad_id": [1], "click": [None]}), "row 0: label 'click' holds None"),
        (pa.table({"user_id": [7], "ad_id": [1], "click": ["maybe"]}), "row 0: label 'click' holds 'maybe'"),
        (pa.table({"user_id": [7], "ad_id": [[1]], "click": [1]}), "for lists declare kind='multi'"),
        (
            pa.table([[7], [7], [1], [1]], ["user_id", "user_id", "ad_id", "click"]),
            "more than one column 'user_id'",
        ),
        (pd.DataFrame({"user_id": [7, "x"], "ad_id": 1, "click": 1}), "does not convert to an Arrow table"),
        (7, "data of type int"),
        ("user_id", "data of type str"),
        (Batch(*from_data(SMALL, {"user_id": 1, "ad_id": 1}, False)), "without its labels"),
    ],
)
def test_refusals(data, words):
    with pytest.raises(InputError) as error:
        from_data(SMALL, data, labelled=True)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"importance": -1.0}, "row 0: weight 'importance' holds -1.0"),
        ({"importance": math.nan}, "weight 'importance' holds nan"),
        ({"importance": 1e39}, "weight 'importance' holds 1e+39"),
        ({"when": math.nan}, "row 0: time column 'when' holds nan"),
        ({"when": None}, "row 0: time column 'when' holds None"),
        ({"price": math.inf}, "row 0: number field 'price' holds inf"),
        ({"price": "cheap"}, "row 0: number field 'price' holds 'cheap'"),
        ({"age": 1e39}, "too large to be a multiplier"),
        ({"words": 7}, "declared kind='multi' but holds"),
    ],
)
def test_refusals_of_mixed_rows_are_the_same_for_dicts_and_tables(change, words):
    row = {"interests": ["a"], "price": 1.0, "age": 2.0, "site": "s", "ad": 1, "level": 1, "words": ["w"]}
    row |= {"when": 0.0, "importance": 1.0, "click": 1}
    for data in (row, pa.Table.from_pylist([row])):
        from_data(MIXED_SCHEMA, data, labelled=True)
    for data in (row | change, pa.Table.from_pylist([row | change])):
        with pytest.raises(InputError) as error:
            from_data(MIXED_SCHEMA, data, labelled=True)
        assert words in str(error.value)


def test_what_labelled_data_and_derived_fields_need():
    schema = Schema(label="click", fields=[Field("ad_id")], time="when", weight="importance")
    derived = Schema(label="click", fields=[Field("hour", derive="hour_of_day")], time="when")
    for row, given_schema, labelled, words in (
        ({"ad_id": 1, "click": 1, "importance": 1}, schema, True, "no time"),
        ({"ad_id": 1, "click": 1, "when": 1}, schema, True, "no weight"),
        ({"whn": 1}, derived, False, "no time"),
    ):
        for data in (row, pa.Table.from_pylist([row])):
            with pytest.raises(InputError, match=words):
                from_data(given_schema, data, labelled)
    with pytest.raises(InputError, match="row 1 has no time 'when'"):
        from_data(schema, [{"ad_id": 1, "when": 3}, {"ad_id": 1}], labelled=False)


def test_concat_refuses_nothing_and_a_mixture():
    batch = from_data(SMALL, {"user_id": 1, "ad_id": 1, "click": 1}, labelled=True)
    with pytest.raises(InputError, match="at least one"):
        concat([])
    with pytest.raises(InputError, match="some of these batches"):
        concat([batch, batch._replace(clicks=None)])
