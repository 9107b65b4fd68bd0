"""Vectors: the same features from dicts, Arrow lists, texts and requests; a projection in every model; what is refused."""

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import pbodl
from pbodl.data.convert import from_data
from pbodl.data.features.vectors import component_keys
from pbodl.data.hashing import hash_value
from pbodl.data.log.row_faults import good_rows
from pbodl.data.running_scale import RunningScale
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.serving.scoring.predictor import Predictor
from tests.click_log import START
from tests.serving.services import BOTH, answer, client_of

LENGTH = 3
FIELDS = [
    Field("user", group="user"),
    Field("taste", group="user", kind="vector", length=2),
    Field("ad", group="ad"),
    Field("text", group="ad", kind="vector", length=LENGTH),
]
SCHEMA = Schema(label="click", time="time", fields=FIELDS)


def rows(n: int, seed: int = 0) -> list[dict]:
    """Clicks that follow the product of two numbers of the vectors."""
    draw = np.random.default_rng(seed)
    taste, text = draw.normal(3.0, 2.0, (n, 2)).round(3), draw.normal(-1.0, 0.5, (n, LENGTH)).round(3)
    clicks = (taste[:, 0] - 3.0) * (text[:, 1] + 1.0) + draw.normal(0, 0.2, n) > 0
    lines = [
        {"user": i % 7, "taste": taste[i].tolist(), "ad": i % 5, "text": text[i].tolist(), "click": int(clicks[i])}
        for i in range(n)
    ]
    return [{**line, "time": START + i} for i, line in enumerate(lines)]


def same(one, other) -> None:
    for ref, comp in zip(one, other, strict=True):
        np.testing.assert_array_equal(ref, comp)


def test_every_way_gives_the_same_features():
    data = rows(6)
    data[2]["text"], data[4]["taste"] = None, None
    ref = from_data(SCHEMA, data, labelled=True)
    texts = [hash_value("text", i) for i in range(LENGTH)]
    assert ref.keys[ref.fields == 3][:LENGTH].tolist() == texts == component_keys(FIELDS[3]).tolist()
    assert ref.keys[ref.fields == 3][2 * LENGTH] == hash_value("text", None)
    assert np.diff(ref.indptr).tolist() == [7, 7, 5, 7, 6, 7]
    table = pa.Table.from_pylist(data)
    same(ref, from_data(SCHEMA, table, labelled=True))
    for kind in (pa.list_(pa.float32(), LENGTH), pa.large_list(pa.float64()), pa.list_view(pa.float64())):
        column = pa.array([row["text"] for row in data], kind)
        same(ref, from_data(SCHEMA, table.set_column(3, "text", column), labelled=True))
    written = pa.array([None if row["text"] is None else "|".join(map(str, row["text"])) for row in data])
    same(ref, from_data(SCHEMA, table.set_column(3, "text", written), labelled=True))
    same(ref.rows(1, 4), from_data(SCHEMA, table.slice(1, 3), labelled=True))


def test_components_are_standardised_each_by_itself():
    data = rows(200)
    scale, batch = RunningScale(SCHEMA), from_data(SCHEMA, data, labelled=True)
    scaled = scale.learn(batch)
    vectors = np.array([row["text"] for row in data], np.float32).astype(np.float64)
    comp = scaled[batch.fields == 3].reshape(-1, LENGTH)[150]
    deviation = vectors[:150].std(axis=0, ddof=1) * np.sqrt(1 + 1 / 150)
    np.testing.assert_allclose(comp, (vectors[150] - vectors[:150].mean(axis=0)) / deviation / np.sqrt(LENGTH), rtol=1e-5)
    # One by one, and with missing vectors between, the same.
    alone = RunningScale(SCHEMA)
    parts = []
    for row in data:
        alone.learn(from_data(SCHEMA, {**row, "text": None, "taste": None}, labelled=True))
        parts.append(alone.learn(from_data(SCHEMA, row, labelled=True)))
    np.testing.assert_array_equal(np.concatenate(parts), scaled)


def test_pairs_see_a_vector_as_one_field():
    model = pbodl.PairFM(SCHEMA, dim=4)
    model.learn(rows(400))
    row = rows(1, seed=9)[0]
    comp = model.predict(row).mean[0]
    state, batch = model.state(), from_data(SCHEMA, row, labelled=False)
    at = {int(key): place for place, key in enumerate(state["embedding.keys"])}
    values, groups = model.scale.peek(batch), [0, 0, 1, 1]
    sums, ref = np.zeros((4, 2, 4)), float(state["dense.0.mean"][0, -1])
    for key, value, field in zip(batch.keys.tolist(), values.tolist(), batch.fields.tolist(), strict=True):
        sums[field] += value * state["embedding.mean"][at[key]].reshape(2, 4)
        ref += value * float(state["linear.mean"][at[key], 0])
    pair = 0
    for f in range(4):
        for g in range(f + 1, 4):
            ref += state["dense.0.mean"][0, pair] * float(sums[f, groups[g]] @ sums[g, groups[f]])
            pair += 1
    assert comp == pytest.approx(ref, rel=1e-4)


@pytest.mark.parametrize("kind", [pbodl.PairFM, pbodl.FMMLP, pbodl.FFMMLP, pbodl.DeepProbit, pbodl.SparseMLP])
def test_models_learn_from_vectors_and_serve_them(kind, tmp_path):
    options = {} if kind is pbodl.PairFM else {"hidden": (8,)}
    model = kind(SCHEMA, dim=4, **options)
    data = rows(3000)
    model.learn(data[:1000])
    model.learn(pa.Table.from_pylist(data[1000:]))
    fresh = rows(500, seed=1)
    ctr, clicks = model.predict(fresh).ctr, np.array([row["click"] for row in fresh])
    if kind not in (pbodl.SparseMLP, pbodl.DeepProbit):  # these two learn products slowly
        assert ctr[clicks == 1].mean() - ctr[clicks == 0].mean() > 0.3
    model.save(tmp_path)
    np.testing.assert_array_equal(pbodl.load(tmp_path).predict(fresh).ctr, ctr)
    shared = {"user": 3, "taste": [4.0, 2.5]}
    own = [{"ad": 1, "text": [0.5, -1.5, 2.0]}, {"ad": "new", "text": [0.5, 1.5, 2.0]}, {"ad": 2}, {"text": [0.0, 1, 2]}]
    scores = Predictor.of(model).score(shared, {}, own)
    expected = model.predict([{**shared, **candidate} for candidate in own])
    np.testing.assert_allclose(scores.mean, expected.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scores.variance, expected.variance, rtol=1e-4)


def test_a_server_reads_vectors_in_json_and_msgpack():
    model = pbodl.PairFM(SCHEMA, dim=4)
    model.learn(rows(500))
    client = client_of(model)
    shared, own = {"user": 3, "taste": [4.0, 2.5]}, [{"ad": 1, "text": [0.5, -1, 2.0]}, {"ad": 2, "text": None}]
    request = {"user": shared, "candidates": own}
    expected = model.predict([{**shared, **candidate} for candidate in own]).ctr
    for kind in BOTH:
        np.testing.assert_allclose(answer(client, request, kind)["ctr"], expected, rtol=1e-5)
        drawn = answer(client, {**request, "explore": "thompson", "seed": 3}, kind)["ctr"]
        assert (drawn != expected).all() and ((drawn > 0) & (drawn < 1)).all()
    for wrong, told in ({"text": [1.0, 2.0]}, "length"), ({"text": [1.0, 2.0, "x"]}, "float"), ({"text": 3.0}, "array"):
        given = client.post("/v1/score", json={"candidates": [{"ad": 1}, wrong]})
        assert given.status_code == 422 and told in given.json()["error"]["message"]
        assert given.json()["error"]["field"].startswith("candidates[1].text" if told != "float" else "candidates[1].text[2]")
    assert client.get("/openapi.json").json()["components"]["schemas"]["ScoreRequest"]["example"]["candidates"][0]["text"] == 3 * [
        0.5
    ]


def test_wrong_vectors_are_refused_in_prose():
    row = rows(1)[0]
    for wrong, told in (
        ([1.0, 2.0], r"row 0: vector field 'text' holds 2 numbers; the schema says length=3"),
        ([1.0, float("nan"), 2.0], "holds no number at index 1"),
        ([1.0, None, 2.0], "holds no number at index 1"),
        ([1.0, 2.0, float("inf")], "holds inf at index 2"),
        ([1.0, "x", 2.0], "holds no number at index 1"),
        ([True, 1.0, 2.0], "holds no number at index 0"),
        (3.5, "must be a list of 3 numbers"),
    ):
        with pytest.raises(InputError, match=told):
            from_data(SCHEMA, {**row, "text": wrong}, labelled=True)
    table = pa.Table.from_pylist([row, {**row, "text": [1.0]}, {**row, "text": [1.0, 2.0, float("nan")]}])
    with pytest.raises(InputError, match="row 1: vector field 'text' holds 1 number;"):
        from_data(SCHEMA, table, labelled=True)
    with pytest.raises(InputError, match=r"row 1: .* no number at index 2"):
        from_data(SCHEMA, table.take([0, 2]), labelled=True)
    batch, _, faults = good_rows(SCHEMA, table, True)
    assert len(batch) == 1 and list(faults) == [1, 2] and "holds 1 number" in faults[1]
    with pytest.raises(InputError, match="declared kind='vector' but holds double"):
        from_data(SCHEMA, table.set_column(3, "text", pa.array([1.0, 2.0, 3.0])), labelled=True)
    for options, told in (({}, "needs a length"), ({"length": -1}, "needs a length"), ({"length": 9999}, "1 to 4096")):
        with pytest.raises(InputError, match=told):
            Field("x", kind="vector", **options)
    with pytest.raises(InputError, match="no other kind has one"):
        Field("x", length=4)
    with pytest.raises(InputError, match="crosses 'text'"):
        Schema(label="click", fields=[*FIELDS, Field("both", group="ad", cross=["ad", "text"])])


def test_a_stream_brings_vectors(tmp_path):
    from pbodl.streaming.events import EventDecoder

    data = rows(20)
    data[3]["text"] = [1.0]
    data[5]["taste"] = None
    ref = from_data(SCHEMA, [row for i, row in enumerate(data) if i != 3], labelled=True)
    decoder = EventDecoder(SCHEMA)
    for encode in (msgspec.json.encode, msgspec.msgpack.encode):
        events = decoder.decode([encode(row) for row in data])
        same(ref, events.rows)
        assert [bad.reason for bad in events.bad] == [
            "vector field 'text' holds 1 number; the schema says length=3: correct the data, or the length"
        ]


def test_the_stored_schema_is_the_same(tmp_path):
    assert msgspec.convert(msgspec.to_builtins(SCHEMA), Schema) == SCHEMA
