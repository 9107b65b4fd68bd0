"""Fields that are made, not read: crosses, columns used twice, days of the week, coarse buckets, logarithms and words.

Every way into a model gives the same features: dicts, tables, files, events and requests.
"""

import json

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pbodl
from pbodl import Field, InputError, Schema
from pbodl.data.convert import from_data
from pbodl.data.features.crosses import cross_keys
from pbodl.data.hashing import hash_value
from pbodl.data.log.log_reader import open_log
from pbodl.serving.scoring.predictor import Predictor
from pbodl.streaming.events import EventDecoder
from pbodl.training.inspect.feature_names import NameStore

FIELDS = [
    Field("site", group="context"),
    Field("hour", derive="hour_of_day"),
    Field("weekday", derive="day_of_week"),
    Field("user.age", group="user", kind="number"),
    Field("age coarse", group="user", kind="number", column="user.age", resolution=1),
    Field("age code", group="user", column="user.age"),
    Field("ad", group="ad"),
    Field("price", group="ad", kind="number"),
    Field("price level", group="ad", kind="number", column="price", edges=[1.0, 5.0, 12.5]),
    Field("price slope", group="ad", kind="number", column="price", transform="log"),
    Field("title", group="ad", kind="multi", split="words"),
    Field("tags", group="ad", kind="multi"),
    Field("site x ad", group="ad", cross=["site", "ad"]),
    Field("hour x site", cross=["hour", "site"]),
    Field("ad x price", group="ad", cross=["ad", "price"]),
    Field("age x ad x weekday", group="ad", cross=["age coarse", "ad", "weekday"]),
]
SCHEMA = Schema(label="click", time="time", fields=FIELDS)
PLAIN = Schema(label="click", time="time", fields=[*FIELDS[:3], Field("ad", group="ad"), *FIELDS[12:14]])
TITLES = ["Red shoes, SIZE 42", "", "ÉCLAIR!", None, "blue Shoes blue"]
ROWS = [
    {
        "click": n % 3 == 0,
        "time": 1_735_700_000 + 5_000 * n,
        "site": f"s{n % 4}" if n % 5 else None,
        "user": {"age": 18 + n % 9},
        "ad": n % 6,
        "price": None if n % 7 == 0 else 0.5 * n,
        "title": TITLES[n % 5],
        "tags": "x|y" if n % 2 else "x",
    }
    for n in range(40)
]


def features(batch):
    return [
        sorted(zip(batch.fields[a:b].tolist(), batch.keys[a:b].tolist(), batch.values[a:b].tolist(), strict=True))
        for a, b in zip(batch.indptr[:-1], batch.indptr[1:], strict=True)
    ]


@pytest.fixture(scope="module")
def ref():
    return features(from_data(SCHEMA, ROWS, True))


def test_a_cross_has_a_key_of_its_own_for_each_combination(ref):
    index = SCHEMA.field_index("site x ad")
    keys = {(row["site"], row["ad"]): [key for field, key, _ in one if field == index] for row, one in zip(ROWS, ref, strict=True)}
    assert all(len(key) == 1 for key in keys.values())
    assert len({key[0] for key in keys.values()}) == len(keys)
    parts = [np.array([hash_value("site", "s1")], np.uint64), np.array([hash_value("ad", 1)], np.uint64)]
    assert keys[("s1", 1)] == cross_keys("site x ad", parts).tolist()
    assert cross_keys("site x ad", parts[::-1]).tolist() != keys[("s1", 1)]


def test_what_is_derived(ref):
    weekday, coarse, age = (SCHEMA.field_index(name) for name in ("weekday", "age coarse", "age code"))
    for row, one in zip(ROWS, ref, strict=True):
        found = {field: key for field, key, _ in one}
        assert found[weekday] == hash_value("weekday", pd.Timestamp(row["time"], unit="s").day_of_week)
        assert found[coarse] == hash_value("age coarse", 4)  # 18 to 26 are all between 2⁴ - 1 and 2⁵ - 1
        assert found[age] == hash_value("age code", row["user"]["age"])
    level = SCHEMA.field_index("price level")
    assert [key for field, key, _ in ref[10] if field == level] == [hash_value("price level", 2)]  # 5.0 is in the bucket from 5 on
    slope = SCHEMA.field_index("price slope")
    assert [value for field, _, value in ref[3] if field == slope] == [np.float32(np.log1p(1.5))]
    assert len([field for field, _, _ in ref[0] if field == SCHEMA.field_index("title")]) == 4


def test_tables_and_files(ref, tmp_path):
    assert features(from_data(SCHEMA, pd.json_normalize(ROWS).astype({"site": "string"}), True)) == ref
    flat = pd.json_normalize(ROWS).astype({"title": "string", "site": "string"})
    flat.to_csv(tmp_path / "a.csv", index=False)
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for source in ("a.csv", "a.parquet", "a.jsonl"):
        with open_log(tmp_path / source, SCHEMA) as reader:
            (chunk,) = reader
        assert features(chunk.batch) == ref
    names = NameStore(SCHEMA)
    names.add(chunk.table)
    assert {key for one in ref for _, key, _ in one} <= {int(key) for key in names._index.keys}
    assert "site x ad=s1 × 1" in names.names()
    assert "title=shoes" in names.names()
    assert {"price level=below 1", "price level=5 to 12.5", "price level=12.5 or more"} <= set(names.names())


@pytest.mark.parametrize("schema", [SCHEMA, PLAIN])
def test_events(schema):
    rows = [row | {"click": int(row["click"])} for row in ROWS]
    ref = features(from_data(schema, rows, True))
    for message in ([json.dumps(row).encode() for row in rows], [msgspec.msgpack.encode(row) for row in rows]):
        events = EventDecoder(schema).decode(message)
        assert not events.bad
        assert features(events.rows) == ref


@pytest.mark.parametrize("kind", [pbodl.PairFM, pbodl.FMMLP])
@pytest.mark.parametrize("schema", [SCHEMA, PLAIN])
def test_requests(kind, schema):
    model = kind(schema)
    for _ in range(3):
        model.learn(ROWS)
    columns = {field.source: field.group for field in schema.fields if field.source}
    row = ROWS[8] | {"user.age": ROWS[8]["user"]["age"]}
    ads = [{name: one[name] for name, group in columns.items() if group == "ad"} for one in ROWS]
    user = {name: row[name] for name, group in columns.items() if group == "user"}
    context = {name: row[name] for name, group in columns.items() if group == "context"} | {"time": row["time"]}
    predictor = Predictor.of(model)
    for _ in range(2):  # the second time from the cache
        scores = predictor.score(user, context, ads)
        np.testing.assert_allclose(scores.ctr, model.predict([{**user, **context, **ad} for ad in ads]).ctr, rtol=2e-5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([Field("a"), Field("x", cross=["a", "b"])], "unknown field 'b'"),
        ([Field("a"), Field("l", kind="multi"), Field("x", cross=["a", "l"])], "crosses 'l', which must be a category"),
        ([Field("a", group="user"), Field("b", group="ad", column="a")], "a column belongs to one group"),
        ([Field("a", group="ad"), Field("b"), Field("x", cross=["a", "b"])], "set group='ad', since it differs from ad to ad"),
    ],
)
def test_schemas_that_are_refused(fields, words):
    with pytest.raises(InputError, match=words):
        Schema(label="click", fields=fields)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"cross": ["a"]}, "it must name two or more different fields"),
        ({"cross": ["a", "b"], "kind": "multi"}, "a cross must have kind='category'"),
        ({"cross": ["a", "b"], "column": "c"}, "give one of `column`, `derive` and `cross`"),
        ({"resolution": 8}, "resolution is 8; it is a whole number from 1 to 64, for transform='buckets'"),
        ({"kind": "number", "resolution": 0}, "resolution is 0"),
        ({"split": ","}, "split is ','"),
        ({"kind": "number", "edges": [2, 1]}, "edges must be finite numbers in rising order"),
        ({"edges": [1, 2]}, "edges must be finite numbers in rising order, for transform='buckets'"),
        ({"derive": "day_of_month"}, "unknown derive 'day_of_month' .*allowed: 'hour_of_day', 'day_of_week'"),
    ],
)
def test_fields_that_are_refused(about, words):
    with pytest.raises(InputError, match=words):
        Field("x", **about)
