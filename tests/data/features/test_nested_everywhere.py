"""Rows that hold objects: whatever holds them, and whatever is done with them, the same features come out."""

import json
import random

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pbodl
from pbodl.data.convert import from_data
from pbodl.data.guess.schema_guess import guess
from pbodl.data.log.log_reader import open_log
from pbodl.data.schema import Field, Schema
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_messages import JSON, RequestError, Wire

SCHEMA = Schema(
    label="click",
    time="time",
    fields=[
        Field("user.id", group="user"),
        Field("user.geo.town", group="user"),
        Field("ad.topic", group="ad"),
        Field("ad.tags", group="ad", kind="multi"),
        Field("ad.price", group="ad", kind="number"),
    ],
)
NAMES = [field.name for field in SCHEMA.fields]


def rows(n=300):
    draws = random.Random(2)
    for number in range(n):
        user, ad = draws.randrange(20), draws.randrange(9)
        yield {
            "click": int(draws.random() < (0.5 if user % 2 == ad % 2 else 0.1)),
            "time": 1.7e9 + number,
            "user": {"id": f"u{user}", "geo": {"town": f"t{user % 3}"}} if number % 10 else None,
            "ad": {"topic": f"k{ad % 2}", "tags": ["a", "b"][: ad % 3], "price": ad + 0.5},
        }


ROWS = list(rows())


def plain(row):
    """The row without objects, by hand."""
    user, ad = row["user"] or {}, row["ad"]
    return {
        "click": row["click"], "time": row["time"], "user.id": user.get("id"), "user.geo.town": user.get("geo", {}).get("town"),
        "ad.topic": ad["topic"], "ad.tags": ad["tags"], "ad.price": ad["price"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return pbodl.train([plain(row) for row in ROWS], schema=SCHEMA)


def as_jsonl(data, folder):
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    return folder / "log.jsonl"


SHAPES = {
    "dicts": list,
    "DataFrame": pd.DataFrame,
    "structs": pa.Table.from_pylist,
    "record batch": pa.RecordBatch.from_pylist,
    "texts": lambda data: [{**row, "user": row["user"] and json.dumps(row["user"]), "ad": json.dumps(row["ad"])} for row in data],
    "table of texts": lambda data: pa.Table.from_pylist(SHAPES["texts"](data)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("part", [slice(0, 40), slice(0, 1), slice(3, 4)], ids=["many", "null", "one"])
def test_all_shapes_have_the_same_features(shape, part):
    ref = from_data(SCHEMA, [plain(row) for row in ROWS[part]], labelled=True)
    comp = from_data(SCHEMA, SHAPES[shape](ROWS[part]), labelled=True)
    for name in ("keys", "values", "fields", "indptr", "clicks", "times"):
        np.testing.assert_array_equal(getattr(comp, name), getattr(ref, name), err_msg=name)


@pytest.mark.parametrize("shape", SHAPES)
def test_predicting_sampling_and_learning_agree(model, shape):
    ref = [plain(row) for row in ROWS[:30]]
    comp = SHAPES[shape](ROWS[:30])
    np.testing.assert_array_equal(model.predict(comp).ctr, model.predict(ref).ctr)
    np.testing.assert_array_equal(model.sample(comp, draws=3), model.sample(ref, draws=3))
    one, other = (pbodl.PairFM(SCHEMA) for _ in range(2))
    np.testing.assert_array_equal(one.learn(comp), other.learn(ref))


def test_learning_and_explaining_one_row_whose_object_is_null(model):
    features, ref = ({name: value for name, value in row.items() if name != "click"} for row in (ROWS[0], plain(ROWS[0])))
    one, other = (pbodl.PairFM(SCHEMA) for _ in range(2))
    one.learn_one(features, 1), other.learn_one(ref, 1)
    assert one.predict_proba_one(features) == other.predict_proba_one(ref)
    assert pbodl.explain(model, features)["ctr"] == pbodl.explain(model, ref)["ctr"]


@pytest.mark.parametrize("first_is_null", [True, False])
def test_guessing_with_a_null_object(tmp_path, first_is_null):
    data = ROWS if first_is_null else ROWS[1:]
    for log in (data, pd.DataFrame(data), pa.Table.from_pylist(data), as_jsonl(data, tmp_path)):
        found = guess(log)
        assert sorted(field.name for field in found.fields) == sorted(NAMES)
        assert (found.label, found.rows, "user" in [column.name for column in found.columns]) == ("click", len(data), False)
        with open_log(log, found.schema()) as reader:
            assert sum(len(chunk.batch) for chunk in reader) == len(data)


def test_served_requests_with_objects(model):
    predictor, wire, row = Predictor.of(model), Wire(SCHEMA), ROWS[1]
    flat = plain(row)
    user, ad = ({name: value for name, value in flat.items() if name.startswith(part)} for part in ("user.", "ad."))
    for mine in (row["user"], None):
        ref = predictor.score(user if mine else {}, {"time": row["time"]}, [ad, ad]).ctr
        comp = predictor.score({"user": mine}, {"time": row["time"]}, [{"ad": row["ad"]}, ad]).ctr
        np.testing.assert_array_equal(comp, ref)
        request = {"user": {"user": mine}, "context": {"time": row["time"]}, "candidates": [{"ad": row["ad"]}, ad]}
        for body, kind in ((json.dumps(request).encode(), JSON), (msgspec.msgpack.encode(request), "application/msgpack")):
            parsed = wire.read(body, kind)
            encoder = predictor.encoder
            scores = predictor.score_encoded(encoder.encode_shared(parsed.shared), encoder.encode_own(parsed.own))
            np.testing.assert_array_equal(scores.ctr, ref)
    with pytest.raises(RequestError, match=r"unknown field 'ad\.colour'"):
        wire.read(json.dumps({"candidates": [{"ad": {"colour": 1}}]}).encode(), JSON)
    with pytest.raises(RequestError, match=r"unknown field 'usr\.id'"):
        wire.read(json.dumps({"user": {"usr": {"id": 1}}, "candidates": [ad]}).encode(), JSON)


def test_an_object_with_less_in_it_is_no_slip_but_a_misspelt_name_in_it_is():
    schema = Schema(label="click", fields=[Field("user.id"), Field("user.geo.town"), Field("ad")])
    ref = from_data(schema, {"user.id": 7, "user.geo.town": None, "ad": 1}, labelled=False)
    for user in ({"id": 7}, {"id": 7, "geo": None}, {"id": 7, "geo": {}}):
        comp = from_data(schema, {"user": user, "ad": 1, "site": "x"}, labelled=False)
        np.testing.assert_array_equal(comp.keys, ref.keys)
    with pytest.raises(pbodl.InputError, match=r"unknown field 'user\.idd' \(did you mean 'user\.id'"):
        from_data(schema, {"user": {"idd": 7}, "ad": 1}, labelled=False)
    with pytest.raises(pbodl.InputError, match=r"unknown field 'add'"):
        from_data(schema, {"user": {"id": 7}, "add": 1}, labelled=False)
