"""Drift, missing and new values by field, against counts made by hand."""

import numpy as np
import pytest

import pbodl
from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.models.snapshot import load_snapshot
from pbodl.publishing.watch_file import read_watch
from pbodl.streaming.metrics_board import watched_families
from pbodl.streaming.online_service import Options, online
from pbodl.streaming.watching import field_watch
from pbodl.streaming.watching.field_watch import FieldWatch
from tests.streaming.test_online_service import JOIN, config, traffic, write

SCHEMA = Schema(
    label="click",
    fields=[Field("ad", group="ad"), Field("tags", kind="multi"), Field("age", kind="number", transform="scale"), Field("site")],
)


def batch(n: int, seed: int, ads: int = 20, shift: float = 0.0, missing: float = 0.1):
    draw = np.random.default_rng(seed)
    rows = [
        {
            "ad": int(draw.integers(ads)) if draw.random() > missing else None, "tags": ["a", "b"], "click": 0,
            "age": float(draw.normal(1 + shift)), "site": int(draw.integers(5)),
        }
        for _ in range(n)
    ]  # fmt: skip
    return from_data(SCHEMA, rows, labelled=True)


@pytest.fixture
def watch(monkeypatch):
    monkeypatch.setattr(field_watch, "WINDOW", 1000)
    monkeypatch.setattr(field_watch, "ENOUGH", 500)
    model = pbodl.PairFM(SCHEMA, dim=2)
    found = FieldWatch(model)

    def learn(rows):
        model.learn(rows)
        found.after(rows)

    return found, learn, model


def by_name(watch):
    return {line["field"]: line for line in watch.lines()}


def test_shares_are_those_of_the_rows(watch):
    watch, learn, _ = watch
    rows = batch(900, 1)
    learn(rows)
    lines = by_name(watch)
    values = rows.keys[rows.fields == 0]
    assert lines["ad"]["missing"] == pytest.approx((values == pbodl.data.hashing.hash_value("ad", None)).mean())
    assert lines["ad"]["new"] == pytest.approx(len(np.unique(values)) / 900)
    assert lines["tags"]["new"] == pytest.approx(2 / 1800) and lines["tags"]["missing"] == 0.0
    assert lines["ad"]["drift"] is None  # nothing to compare with yet


def test_a_stable_stream_does_not_drift_and_a_changed_one_does(watch):
    watch, learn, _ = watch
    for seed in range(6):
        learn(batch(1000, seed))
    learn(batch(600, 7))
    assert all(line["drift"] < 0.1 for line in watch.lines())
    assert by_name(watch)["ad"]["new"] == 0.0
    ended = batch(400, 8)
    learn(ended)
    learn(batch(700, 9, ads=400, shift=3.0))
    lines = by_name(watch)
    assert lines["ad"]["drift"] > 0.25 and lines["age"]["drift"] > 0.25 > 0.1 > lines["site"]["drift"]
    assert lines["ad"]["new"] > 0.3 and lines["site"]["new"] == 0.0


def test_the_index_is_that_of_the_definition(watch):
    watch, learn, _ = watch
    learn(batch(1000, 1))
    counts = np.zeros((4, field_watch.BINS))
    counts[0, :3] = (500, 300, 200)
    watch.reference[:] = 0.0
    watch.reference[0, :3] = (0.2, 0.3, 0.5)
    p, q = np.full(64, 0.0005) + watch.reference[0], np.full(64, 0.0005) + counts[0] / 1000
    p, q = p / p.sum(), q / q.sum()
    assert watch.drift(counts)[0] == pytest.approx(sum((b - a) * np.log(b / a) for a, b in zip(p, q, strict=True)))


def test_a_saved_watch_goes_on(watch):
    watch, learn, model = watch
    learn(batch(1500, 1))
    again = FieldWatch(model)
    again.load_state(watch.state())
    assert again.lines() == watch.lines() and (again.rows == watch.rows).all()
    other = FieldWatch(pbodl.PairFM(Schema(label="click", fields=[Field("ad")])))
    other.load_state(watch.state())  # of another schema: it begins anew
    assert other.rows[0] == 0


def test_dropped_rows_make_no_new_values(watch):
    watch, learn, model = watch
    learn(batch(300, 1))
    model.table.evict(np.arange(len(model.table), dtype=float), 5)
    before = watch.shares[:, 2].copy()
    learn(batch(100, 1))
    np.testing.assert_array_equal(watch.shares[:, 2], before)


def test_a_learner_shows_what_it_watches(tmp_path, monkeypatch):
    monkeypatch.setattr(field_watch, "WINDOW", 500)
    monkeypatch.setattr("pbodl.streaming.watching.weight_watch.EVERY", 0.0)
    source = write(tmp_path / "events.jsonl", traffic(1500))
    online(config(), Options(source, tmp_path / "run", JOIN, until_end=True))
    watch = read_watch(tmp_path / "run")
    assert watch is not None and [line["field"] for line in watch["fields"]] == ["user", "ad", "hour"]
    assert all(0.0 <= line["drift"] < 5.0 and line["missing"] == 0.0 for line in watch["fields"])
    assert 200 < sum(group["weight"] for group in watch["reliability"]) < 1500  # impressions whose label is final
    assert [point["share"] for point in watch["delays"]] == sorted(point["share"] for point in watch["delays"])
    shown = {family.name: family for family in watched_families(watch)}
    assert {sample.labels["field"] for sample in shown["pbodl_online_field_drift"].samples} == {"user", "ad", "hour"}
    assert len(shown["pbodl_online_delay_share"].samples) == len(watch["delays"]) > 20
    assert "fields" in load_snapshot(tmp_path / "run").parts
