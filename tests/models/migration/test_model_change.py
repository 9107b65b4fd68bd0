"""A migrated model: its predictions before and after each kind of change, for every kind of model; and what is refused."""

from typing import Any

import msgspec
import numpy as np
import pytest

import pbodl
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.migration.model_change import migrated

KINDS = {
    "pair-fm": pbodl.PairFM,
    "fm-mlp": pbodl.FMMLP,
    "ffm-mlp": pbodl.FFMMLP,
    "deep-probit": pbodl.DeepProbit,
    "sparse-mlp": pbodl.SparseMLP,
}
FIELDS = [
    Field("user", group="user"),
    Field("age", group="user", kind="number"),
    Field("ad", group="ad"),
    Field("tags", group="ad", kind="multi"),
    Field("speed", kind="number", transform="scale"),
]
SCHEMA = Schema(label="click", time="time", fields=FIELDS)
DAY = 86400.0


def rows(n: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    return [
        {
            "user": int(draw.integers(9)), "age": float(draw.integers(60)), "ad": f"a{draw.integers(7)}", "time": 1.7e9 + 60.0 * i,
            "tags": [f"t{t}" for t in draw.integers(4, size=draw.integers(3))], "speed": float(draw.normal(5, 2)), "site": i % 3,
            "click": int(draw.random() < 0.3),
        }
        for i in range(n)
    ]  # fmt: skip


def learned(kind: str, **options: Any) -> Any:
    more = {} if kind == "pair-fm" else {"hidden": (6, 4)}
    model = KINDS[kind](SCHEMA, dim=3, half_life="7d", **(more | options))
    model.learn(rows(400))
    return model


def changed(model: Any, fields: list[Field] | None = None, schema: dict[str, Any] | None = None, **spec: Any) -> Any:
    """The model that a new configuration describes; it has learned nothing."""
    new = msgspec.structs.replace(model.schema, fields=fields or model.schema.fields, **(schema or {}))
    return type(model).from_spec(new, msgspec.structs.replace(model.spec, **spec))


def assert_the_same(old: Any, new: Any, of_old: list[dict], of_new: list[dict] | None = None) -> None:
    ref, comp = old.predict(of_old), new.predict(of_new or of_old)
    np.testing.assert_allclose(comp.ctr, ref.ctr, atol=1e-6, rtol=0)
    np.testing.assert_allclose(comp.mean, ref.mean, atol=5e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_added_field_changes_no_row_that_lacks_it(kind):
    old = learned(kind)
    site = Field("site", optional=True)
    for field in (site, msgspec.structs.replace(site, group="shop")):
        if kind == "fm-mlp" and field.group == "shop":
            continue
        new = changed(old, [*FIELDS[:2], field, *FIELDS[2:]])
        result = migrated(old, new)
        assert result.difference <= 1e-6 and "'site' is added" in result.told[0]
        fresh = [{name: value for name, value in row.items() if name != "site"} for row in rows(100, 1)]
        assert_the_same(old, new, fresh)
        before = new.predict(rows(50, 2)).ctr
        new.learn(rows(300, 3))
        assert np.abs(new.predict(rows(50, 2)).ctr - before).max() > 1e-3  # it goes on learning, from the new field as well
        known = new.table.find(np.array([pbodl.data.hashing.hash_value("site", n) for n in range(3)], np.uint64))
        assert (known >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_wider_models_predict_as_before_and_learn(kind):
    old = learned(kind)
    options = (
        [{"dim": 5}] if kind == "pair-fm" else [{"dim": 5}, {"hidden": (9, 4)}, {"hidden": (6, 7)}, {"dim": 4, "hidden": (8, 8)}]
    )
    for wider in options:
        new = changed(old, **wider)
        result = migrated(old, new)
        assert result.difference <= 1e-6
        assert_the_same(old, new, rows(200, 0))
        assert (result.share == 1.0) == (kind == "pair-fm")
        new.learn(rows(300, 3))
    if kind == "pair-fm":  # the new dimensions leave the saddle: after many rows they carry something
        for seed in range(8):
            new.learn(rows(400, 10 + seed))
        fresh = np.abs(new.table.column("mean").reshape(len(new.table), -1, 5)[:, :, 3:])
        assert fresh.max() > 1e-3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pair-fm"])
def test_a_migrated_run_that_is_resumed_is_one_that_never_stopped(kind):
    old = learned(kind)
    never_stopped, stopped = (changed(old, [*FIELDS[::-1], Field("site", optional=True)], hidden=(9, 4)) for _ in range(2))
    for model in (never_stopped, stopped):
        migrated(old, model)
    for seed in range(3):
        later = [row | {"time": row["time"] + 30 * DAY * (seed + 1)} for row in rows(100, seed)]
        resumed = changed(stopped)
        resumed.load_state(stopped.state())
        np.testing.assert_array_equal(resumed.learn(later), never_stopped.learn(later))
        stopped = resumed


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pair-fm"])
def test_layers_that_forget_after_a_migration_go_where_they_went_before(kind):
    old = learned(kind)
    same, wider = changed(old), changed(old, hidden=(9, 4))
    for model in (same, wider):
        migrated(old, model)
    np.testing.assert_array_equal(same.dense.start, old.dense.start)
    n_in = old.layers()[0][0]
    np.testing.assert_array_equal(wider.dense.start[0, :6, :n_in], old.dense.start[0, :6, :n_in])  # as many inputs as before
    np.testing.assert_allclose(wider.dense.start[1, :4, :6], old.dense.start[1, :4, :6] * np.sqrt(10 / 7), rtol=1e-6)
    assert not wider.dense.start[1, :4, 6:9].any() and wider.dense.start[0, 6:9, :n_in].all()


def test_a_network_without_forgetting_cannot_be_widened():
    old = pbodl.FMMLP(SCHEMA, dim=3, hidden=(4,), fm_variance="exact")
    old.learn(rows(100))
    with pytest.raises(InputError, match="passes variances on layer by layer"):
        migrated(old, changed(old, dim=4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_renamed_field_keeps_its_features(kind):
    old = learned(kind)
    fields = [*FIELDS[:2], Field("creative", group="ad", aliases=["ad"]), *FIELDS[3:]]
    new = changed(old, fields)
    assert migrated(old, new).difference == 0.0
    later = [{("creative" if name == "ad" else name): value for name, value in row.items()} for row in rows(100, 1)]
    ref = old.predict(rows(100, 1))
    for data in (rows(100, 1), later):
        np.testing.assert_array_equal(new.predict(data).mean, ref.mean)
    again = changed(new, [*FIELDS[:2], Field("banner", group="ad", aliases=["ad", "creative"]), *FIELDS[3:]])
    migrated(new, again)
    for data in (rows(100, 1), later):
        np.testing.assert_array_equal(again.predict(data).mean, ref.mean)


@pytest.mark.parametrize("kind", KINDS)
def test_fields_in_another_order(kind):
    old = learned(kind)
    new = changed(old, FIELDS[::-1])
    migrated(old, new)
    np.testing.assert_allclose(new.predict(rows(100, 1)).mean, old.predict(rows(100, 1)).mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_field_leaves_the_others(kind):
    old = learned(kind)
    new = changed(old, [*FIELDS[:2], *FIELDS[3:]], {"retired": ["ad"]})
    result = migrated(old, new)
    assert "'ad' is dropped" in result.told[-1] and result.difference > 0
    gone = int((old.table.field == 2).sum())
    assert len(new.table) == len(old.table) - gone and new.table.expired == gone
    at = old.table.find(new.table.keys)
    np.testing.assert_array_equal(new.table.column("mean"), old.table.column("mean")[at])
    np.testing.assert_array_equal(new.scale.moments[3], old.scale.moments[4])
    new.learn(rows(100, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_finer_buckets_inside_the_old_ones_predict_as_before(kind):
    old = learned(kind)
    new = changed(old, [FIELDS[0], Field("age", group="user", kind="number", resolution=8), *FIELDS[2:]])
    assert "'age' gets other buckets" in migrated(old, new).told[0]
    assert_the_same(old, new, rows(200, 0))
    coarse = changed(old, [FIELDS[0], Field("age", group="user", kind="number", edges=[10.0, 30.0, 50.0]), *FIELDS[2:]])
    migrated(old, coarse)
    assert (coarse.table.field == 1).sum() == 4
    coarse.learn(rows(100, 4))


def test_a_new_group_starts_with_the_vectors_for_the_old_one():
    old = learned("pair-fm")
    moved = [*FIELDS[:3], Field("tags", group="text", kind="multi"), FIELDS[4]]
    new = changed(old, moved)
    result = migrated(old, new)
    # Two vectors with the same means are two independent ones from now on: the variance is a little smaller.
    assert "moves from the group 'ad' to 'text'" in result.told[0] and result.difference <= 1e-3
    np.testing.assert_allclose(new.predict(rows(100)).mean, old.predict(rows(100)).mean, rtol=1e-4, atol=1e-5)
    back = changed(new)
    joined = changed(back, FIELDS)
    assert migrated(new, joined).difference < 1.0  # a vector goes: predictions may change, and it is told
    joined.learn(rows(100, 4))


def test_what_cannot_be_done_is_refused_in_prose():
    old = learned("fm-mlp")
    for told, new in (
        ("cannot be narrowed", lambda: changed(old, dim=2)),
        ("a layer cannot be narrowed", lambda: changed(old, hidden=(5, 4))),
        ("not added or removed", lambda: changed(old, hidden=(6,))),
        ("seed is 3, and was 0; a run keeps it for life", lambda: changed(old, seed=3)),
        ("linear is False", lambda: changed(old, linear=False)),
        ("the model has .* features; give it more room", lambda: changed(old, capacity=10)),
        ("what is predicted cannot change", lambda: changed(old, schema={"label": "bought"})),
        ("give half_life in the same unit", lambda: changed(old, half_life="1M rows")),
        (r"To rename it, give the new field aliases = \['ad'\]", lambda: changed(old, [*FIELDS[:2], Field("ads", group="ad")])),
        ("no field of the run began as 'advert'", lambda: changed(old, [*FIELDS[:2], Field("x", aliases=["advert"]), *FIELDS[2:]])),
        ("another model starts anew", lambda: pbodl.SparseMLP(SCHEMA)),
    ):
        with pytest.raises(InputError, match=told):
            migrated(old, new())
    shortcut = learned("fm-mlp", shortcut=True)
    with pytest.raises(InputError, match="divides by its root"):
        migrated(shortcut, changed(shortcut, dim=4))
