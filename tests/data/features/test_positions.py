"""Positions: learned as categories, left out when ads are compared."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pbodl
from pbodl.data.convert import from_data
from pbodl.data.features.positions import at_reference, reference_positions
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.serving.scoring.predictor import Predictor
from pbodl.streaming.events import EventDecoder
from tests.command_line import run_pbodl

FIELDS = [Field("user", group="user"), Field("ad", group="ad")]
SCHEMA = Schema(label="click", fields=[*FIELDS, Field("slot", kind="position", reference=0)])
PLAIN = Schema(label="click", fields=[*FIELDS, Field("slot")])
ROWS = [{"user": n % 5, "ad": f"a{n % 3}", "slot": n % 4, "click": n % 2} for n in range(24)]


def test_a_position_is_read_as_a_category_from_everywhere():
    ref = from_data(PLAIN, ROWS, labelled=True)
    for data in (ROWS, pa.Table.from_pylist(ROWS)):
        comp = from_data(SCHEMA, data, labelled=True)
        assert (comp.keys == ref.keys).all()
        assert (comp.fields == ref.fields).all()
    lines = [json.dumps({"time": 1e9, **row}).encode() for row in ROWS]
    assert (EventDecoder(SCHEMA).decode(lines).rows.keys == ref.keys).all()


def test_at_the_reference_all_rows_are_in_the_first_slot():
    comp = at_reference(SCHEMA, from_data(SCHEMA, ROWS, labelled=True))
    ref = from_data(SCHEMA, [{**row, "slot": 0} for row in ROWS], labelled=True)
    assert (comp.keys == ref.keys).all()
    assert reference_positions(SCHEMA) == {"slot": 0}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kind": "position", "group": "ad"}, "neither the user nor the ad"),
        ({"kind": "position", "reference": "top"}, "whole number"),
        ({"kind": "category", "reference": 2}, "for kind='position'"),
    ],
)
def test_what_cannot_be_is_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        Field("slot", **wrong)


def test_a_cross_with_a_position_is_refused():
    with pytest.raises(InputError, match="must be a category"):
        Schema(label="click", fields=[*SCHEMA.fields, Field("both", cross=("user", "slot"))])


def confounded(rows: int, seed: int) -> list[dict]:
    """The worse ad was mostly shown in the first slot, where clicks are four times as frequent."""
    draws = np.random.default_rng(seed)
    ad = draws.integers(0, 2, rows)
    slot = np.where(draws.random(rows) < 0.9, ad, 1 - ad)
    click = draws.random(rows) < np.where(ad == 1, 0.10, 0.06) * np.where(slot == 0, 4.0, 1.0)
    return [
        {"user": int(u), "ad": f"ad{a}", "slot": int(s), "click": int(c)}
        for u, a, s, c in zip(draws.integers(0, 20, rows), ad, slot, click, strict=True)
    ]


def test_ranking_compares_ads_in_the_same_slot(tmp_path):
    rows = confounded(6000, 1)
    blind = pbodl.PairFM(Schema(label="click", fields=FIELDS), dim=2)
    model = pbodl.PairFM(SCHEMA, dim=2)
    for one in (blind, model):
        one.learn(rows)
    ads = [{"ad": "ad0"}, {"ad": "ad1"}]
    wrong, right = (Predictor.of(one).score({"user": 3}, {}, ads).ctr for one in (blind, model))
    assert wrong[0] > wrong[1]
    assert right[1] > right[0]
    given = Predictor.of(model).score({"user": 3}, {"slot": 0}, ads)
    assert (given.ctr == right).all()
    assert (Predictor.of(model).score({"user": 3}, {"slot": 1}, ads).ctr < right).all()

    model.save(tmp_path / "run")
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"user": 3, "ad": ad["ad"], "slot": slot}) + "\n" for slot in (0, 1, 2) for ad in ads))

    def predicted(*options: str) -> np.ndarray:
        out = tmp_path / "out.parquet"
        assert run_pbodl("predict", tmp_path / "run", log, "--out", out, *options).code == 0
        return pq.read_table(out)["ctr"].to_numpy().reshape(3, 2)

    assert np.allclose(predicted("--reference-position"), right, atol=1e-6)
    assert predicted()[1, 0] < predicted()[0, 0]

    blind.save(tmp_path / "blind")
    refused = run_pbodl("predict", tmp_path / "blind", log, "--out", tmp_path / "o.csv", "--reference-position")
    assert refused.code == 2 and "no position to leave out" in refused.prose
