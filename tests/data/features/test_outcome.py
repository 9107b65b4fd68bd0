"""Labels that are computed from a column: the same from files, dicts, tables and events."""

import json

import pyarrow as pa
import pytest

from pbodl import Field, InputError, Schema
from pbodl.data.convert import from_data
from pbodl.data.features.outcome import outcome_of
from pbodl.data.log.log_reader import open_log
from pbodl.streaming.events import EventDecoder

RATINGS = [5, 3.5, 4, 1, 4.5]
SCHEMA = Schema(label="rating >= 4", fields=[Field("ad")])
REF = [1, 0, 1, 0, 1]


def rows():
    return [{"rating": rating, "ad": f"a{n}"} for n, rating in enumerate(RATINGS)]


def test_every_way_gives_the_same_labels(tmp_path):
    (tmp_path / "a.csv").write_text("ad,rating\n" + "".join(f"a{n},{rating}\n" for n, rating in enumerate(RATINGS)))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    for name in ("a.csv", "a.jsonl"):
        with open_log(tmp_path / name, SCHEMA) as reader:
            assert next(reader).batch.clicks.tolist() == REF
    assert from_data(SCHEMA, rows(), True).clicks.tolist() == REF
    assert from_data(SCHEMA, pa.Table.from_pylist(rows()), True).clicks.tolist() == REF
    events = EventDecoder(SCHEMA).decode([json.dumps({**row, "time": 1e9}).encode() for row in rows()])
    assert events.rows.clicks.tolist() == REF
    impression = json.dumps({"event": "impression", "id": 1, "time": 1e9, "ad": "a"}).encode()
    mixed = EventDecoder(Schema(label="rating < 4", fields=[Field("ad")])).decode(
        [impression, json.dumps({**rows()[1], "time": 1e9}).encode()]
    )
    assert mixed.rows.clicks.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("label", "ref"),
    [
        ("rating > 4", [1, 0, 0, 0, 1]),
        ("rating<=3.5", [0, 1, 0, 1, 0]),
        ("rating == 4", [0, 0, 1, 0, 0]),
        ("rating != 4", [1, 1, 0, 1, 1]),
        ("ad == 'a3'", [0, 0, 0, 1, 0]),
        ("ad != a3", [1, 1, 1, 0, 1]),
    ],
)
def test_comparisons(label, ref):
    schema = Schema(label=label, fields=[Field("x")])
    data = [{**row, "x": 1} for row in rows()]
    assert from_data(schema, data, True).clicks.tolist() == ref
    assert from_data(schema, pa.Table.from_pylist(data), True).clicks.tolist() == ref


def test_learning_one_row_takes_the_label_itself():
    assert from_data(SCHEMA, [{"ad": "a", "rating >= 4": 1}], True).clicks.tolist() == [1]


def test_names_of_columns_are_no_comparisons():
    for name in ("click", "a-b", "is click?", "a=b", "<b>", "a >= b", "label <?"):
        assert outcome_of(name) is None


def test_refusals(tmp_path):
    with pytest.raises(InputError, match="column 'rating' is the schema's label and also a field"):
        Schema(label="rating >= 4", fields=[Field("rating")])
    for data in ([{"ad": 1, "rating": 5}, {"ad": 1, "rating": "x"}], pa.table({"ad": [1, 1], "rating": [5, None]})):
        with pytest.raises(InputError, match="row 1: column 'rating', from which the label is computed, holds"):
            from_data(SCHEMA, data, True)
    (tmp_path / "a.csv").write_text("ad,rating\n1,5\n1,much\n")
    words = "line 3: column 'rating', from which the label is computed, holds 'much'"
    with open_log(tmp_path / "a.csv", SCHEMA) as reader, pytest.raises(InputError, match=words):
        list(reader)
