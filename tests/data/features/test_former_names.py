"""Data of the old form: renamed columns, columns that did not exist, columns that are no longer fields."""

import json

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import pbodl
from pbodl.data.convert import from_data
from pbodl.data.hashing import hash_value
from pbodl.data.log.log_reader import open_log
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.streaming.events import EventDecoder
from tests.serving.services import BOTH, answer, client_of

OLD = Schema(label="click", time="time", fields=[Field("user", group="user"), Field("ad", group="ad"), Field("shop")])
NEW = Schema(
    label="click",
    time="time",
    fields=[
        Field("person", group="user", aliases=["user"]),
        Field("creative", group="ad", aliases=["ad", "banner"]),
        Field("hour", optional=True),
    ],
    retired=["shop"],
)
ROWS = [{"user": i % 3, "ad": f"a{i % 4}", "shop": i % 2, "click": i % 2, "time": 1.7e9 + i} for i in range(12)]
NEWER = [{"person": i % 3, "creative": f"a{i % 4}", "hour": None, "click": i % 2, "time": 1.7e9 + i} for i in range(12)]


def same(ref, comp) -> None:
    for one, other in zip(ref, comp, strict=True):
        np.testing.assert_array_equal(one, other)


def test_old_and_new_rows_give_the_same_features(tmp_path):
    ref = from_data(NEW, NEWER, labelled=True)
    assert ref.keys[:3].tolist() == [hash_value("user", 0), hash_value("ad", "a0"), hash_value("hour", None)]
    between = [
        {"person" if i % 2 else "user": row["user"], **{n: v for n, v in row.items() if n != "user"}} for i, row in enumerate(ROWS)
    ]
    tables = [pa.Table.from_pylist(rows) for rows in (ROWS, NEWER)]
    both = tables[0].append_column("creative", pa.array([f"a{i % 4}" if i % 3 else None for i in range(12)]))
    for data in (ROWS, between, *tables, both, both.drop_columns(["shop"])):
        same(ref, from_data(NEW, data, labelled=True))
    pa.parquet.write_table(tables[0], tmp_path / "old.parquet")
    (tmp_path / "old.csv").write_text("user,ad,shop,click,time\n" + "\n".join(",".join(map(str, row.values())) for row in ROWS))
    (tmp_path / "old.jsonl").write_text("\n".join(map(json.dumps, between)))
    for name in ("old.parquet", "old.csv", "old.jsonl"):
        with open_log([str(tmp_path / name)], NEW) as log:
            same(ref, next(iter(log)).batch)
    decoder = EventDecoder(NEW)
    for rows in (ROWS, between, NEWER):
        for encode in (msgspec.json.encode, msgspec.msgpack.encode):
            messages = [encode(row) for row in rows]
            same(ref, decoder.decode(messages).rows)
            same(ref, decoder._closer(messages).rows)


def test_a_value_under_the_new_name_comes_first():
    row = {"user": 1, "person": 2, "ad": "x", "creative": None, "click": 0, "time": 1.7e9}
    ref = [hash_value("user", 2), hash_value("ad", "x"), hash_value("hour", None)]
    assert from_data(NEW, row, labelled=True).keys.tolist() == ref
    assert EventDecoder(NEW).decode([json.dumps(row).encode()]).rows.keys.tolist() == ref


def test_requests_of_the_old_form_are_answered():
    model = pbodl.PairFM(NEW, dim=4)
    model.learn(NEWER)
    client = client_of(model)
    new = {"user": {"person": 1}, "context": {"hour": 3}, "candidates": [{"creative": "a1"}, {"creative": "a2"}]}
    old = {"user": {"user": 1}, "context": {"hour": 3, "shop": 7}, "candidates": [{"ad": "a1", "shop": 1}, {"banner": "a2"}]}
    odd = {
        "user": {"user": 1.0},
        "context": {"hour": 3},
        "candidates": [{"ad": "a\u0031", "shop": [1]}, {"banner": "x", "creative": "a2"}],
    }
    for kind in BOTH:
        expected = answer(client, new, kind)["ctr"]
        assert expected[0] != expected[1]
        for request in (old, odd):
            np.testing.assert_array_equal(answer(client, request, kind)["ctr"], expected)
    given = client.post("/v1/score", json={"candidates": [{"adv": 1}]})
    assert given.status_code == 422 and "unknown field 'adv'" in given.json()["error"]["message"]


def test_slips_are_still_refused(tmp_path):
    table = pa.Table.from_pylist(NEWER)
    with pytest.raises(InputError, match="no column 'creative'"):
        from_data(NEW, table.drop_columns(["creative"]), labelled=True)
    pa.parquet.write_table(table.rename_columns(["person", "creativ", "hour", "click", "time"]), tmp_path / "slip.parquet")
    with pytest.raises(InputError, match="did you mean 'creativ'"):
        open_log([str(tmp_path / "slip.parquet")], NEW)
    with pytest.raises(InputError, match="is a former name"):
        Schema(label="click", fields=[Field("a"), Field("b", aliases=["a"])])
    with pytest.raises(InputError, match="is a former name"):
        Schema(label="click", fields=[Field("a")], retired=["click"])
    with pytest.raises(InputError, match="an alias must be"):
        Field("a", aliases=[""])
