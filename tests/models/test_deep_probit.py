"""The four deep models beyond the battery: every option in batches and one by one, names of the state, initial means, counters."""

from typing import Any

import numpy as np
import pytest

import pbodl
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.deep_probit import DeepProbit
from tests.click_log import PLAIN, RICH, click_log, without
from tests.contract import assert_same_state, fingerprint

MODELS = [pbodl.DeepProbit, pbodl.SparseMLP, pbodl.FMMLP, pbodl.FFMMLP]
LOG = click_log(200)
SMALL: dict[str, Any] = {"dim": 3, "hidden": (4,)}
WEIGHTED = Schema(label="click", weight="weight", fields=PLAIN.fields)

OPTIONS: list[dict[str, Any]] = [
    {"capacity": 30},
    {"time_to_live": "30m"},
    {"time_to_live": "40 rows", "capacity": 40},
    {"half_life": "1h"},
    {"half_life": "20 rows", "decay_mean": True},
    {"half_life": "2h", "time_to_live": "20m", "capacity": 35},
    {"linear": False, "step_cap": 0.3, "fm_variance": "paper"},
    {"hidden": (), "prior": pbodl.Prior(fields={"ad": pbodl.FieldPrior(embedding=0.5, linear=0.3)})},
    {"hidden": (3, 2, 2, 2, 2), "negative_rate": 0.1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options))
@pytest.mark.parametrize("kind", MODELS)
def test_batches_and_single_rows_agree_with_every_option(kind: type[DeepProbit], options: dict[str, Any]) -> None:
    ref, comp, in_parts = (kind(RICH, **{**SMALL, **options}) for _ in range(3))
    expected = np.concatenate([ref.learn(row) for row in LOG])
    np.testing.assert_array_equal(comp.learn(LOG), expected)
    parts = [in_parts.learn(LOG[start : start + 33]) for start in range(0, 200, 33)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert_same_state(comp, ref)
    assert_same_state(in_parts, ref)
    assert np.isfinite(expected).all()
    assert (comp.metrics()["evicted"] > 0) == ("capacity" in options)
    assert (comp.metrics()["expired"] > 0) == ("time_to_live" in options)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options))
def test_a_restored_model_goes_on_with_every_option(options: dict[str, Any]) -> None:
    ref, comp = (pbodl.FMMLP(RICH, **{**SMALL, **options}) for _ in range(2))
    ref.learn(LOG[:117])
    comp.load_state(ref.state())
    np.testing.assert_array_equal(comp.learn(LOG[117:]), ref.learn(LOG[117:]))
    assert_same_state(comp, ref)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize(
    ("kind", "n_in", "vectors"),
    [(pbodl.DeepProbit, 9, 1), (pbodl.SparseMLP, 3, 1), (pbodl.FMMLP, 3, 1), (pbodl.FFMMLP, 3, 3)],
)
def test_names_and_shapes_of_the_state(kind: type[DeepProbit], n_in: int, vectors: int, linear: bool) -> None:
    model = kind(PLAIN, dim=3, hidden=(5, 2), linear=linear)
    model.learn(LOG)
    state = model.state()
    features = len({(name, row[name]) for row in LOG for name in ("user", "ad", "site")})
    weights: dict[str, tuple[int, ...]] = {
        "embedding": (features, 3 * vectors),
        "dense.0": (5, n_in + 1),
        "dense.1": (2, 6),
        "dense.2": (1, 3),
    }
    if linear:
        weights["linear"] = (features, 1)
    for name, shape in weights.items():
        for moment in ("mean", "variance"):
            assert state[f"{name}.{moment}"].shape == shape
            assert state[f"{name}.{moment}"].dtype == np.float32
    assert state["embedding.keys"].shape == (features,)
    assert state["embedding.keys"].dtype == np.uint64
    assert ("linear.mean" in state) == linear
    names = {f"dense.{layer}.{moment}" for layer in range(3) for moment in ("mean", "variance")} | {"dense.home"}
    assert {name for name in state if name.startswith("dense")} == names | {
        f"dense.{layer}.{what}" for layer in (1, 2) for what in ("centre", "total")
    }
    assert state["dense.1.centre"].shape == (5,) and state["dense.1.total"].shape == (6,)
    by_key = dict(zip(state["embedding.keys"].tolist(), state["embedding.field"].tolist(), strict=True))
    assert by_key[hash_value("ad", "ad3")] == 1
    assert by_key[hash_value("site", None)] == 2


def test_the_bias_stands_last_and_starts_at_zero_but_for_the_level() -> None:
    state = pbodl.FMMLP(PLAIN, dim=4, hidden=(6,), prior=pbodl.Prior(dense=0.07)).state()
    np.testing.assert_array_equal(state["dense.0.mean"][:, -1], 0)
    assert state["dense.1.mean"][0, -1] != 0  # `settle_level` sets it
    assert (state["dense.0.mean"][:, :-1] != 0).all()
    np.testing.assert_array_equal(state["dense.0.variance"], np.float32(0.07))


def test_another_seed_gives_other_means() -> None:
    same, other = pbodl.FMMLP(PLAIN, seed=1).state(), pbodl.FMMLP(PLAIN, seed=2).state()
    assert (same["dense.0.mean"][:, :-1] != other["dense.0.mean"][:, :-1]).all()


@pytest.mark.nojit
@pytest.mark.parametrize("kind", MODELS)
def test_initial_means_do_not_depend_on_the_order_of_arrival(kind: type[DeepProbit]) -> None:
    # A weight of zero brings features in without moving a mean.
    rows = [{**row, "weight": 0.0} for row in LOG[:60]]
    means = []
    for order in (rows, rows[::-1], [*rows[30:], *rows[:30]]):
        model = kind(WEIGHTED, **SMALL, seed=5)
        model.learn(order)
        state = model.state()
        by_key = np.argsort(state["embedding.keys"])
        means.append(state["embedding.mean"][by_key])
    np.testing.assert_array_equal(means[1], means[0])
    np.testing.assert_array_equal(means[2], means[0])
    assert abs(means[0].std() / 0.03 - 1) < 0.2


def test_an_unseen_feature_is_predicted_as_it_would_start() -> None:
    ref, comp = (pbodl.FMMLP(WEIGHTED, **SMALL) for _ in range(2))
    stranger = {"user": "x", "ad": "y", "site": "z", "weight": 0.0, "click": 1}
    for model in (ref, comp):
        model.learn([{**row, "weight": 1.0} for row in LOG])
    ref.learn(stranger)
    for left, right in zip(comp.predict(stranger), ref.predict(stranger), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)


def test_numbers_given_by_name_in_the_design_make_a_model() -> None:
    prior = pbodl.Prior(embedding=0.1, linear=0.02, dense=0.05)
    for kind in MODELS:
        model = kind(PLAIN, dim=16, hidden=(64, 32), linear=True, fm_variance="exact", prior=prior, half_life=None, seed=0)
        assert model.spec.prior == prior
        assert type(model.spec) is kind.Spec


def test_priors_of_single_fields_hold_for_their_features() -> None:
    single = {"ad": pbodl.FieldPrior(embedding=0.5), "site": pbodl.FieldPrior(linear=0.25)}
    prior = pbodl.Prior(embedding=0.1, linear=0.02, fields=single)
    model = pbodl.SparseMLP(WEIGHTED, **SMALL, prior=prior)
    model.learn([{**row, "weight": 0.0} for row in LOG[:20]])
    state = model.state()
    for part, ref in (("embedding", (0.1, 0.5, 0.1)), ("linear", (0.02, 0.02, 0.25))):
        for field, variance in enumerate(ref):
            rows = state["embedding.field"] == field
            np.testing.assert_allclose(state[f"{part}.variance"][rows], variance, rtol=1e-5)


def test_an_unknown_field_in_the_prior_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown field 'adz' \(did you mean 'ad'\?\)"):
        pbodl.FMMLP(PLAIN, prior=pbodl.Prior(fields={"adz": pbodl.FieldPrior(embedding=0.5)}))


def test_a_schema_is_asked_for_by_name() -> None:
    with pytest.raises(InputError, match=r"schema must be a pbodl\.Schema, not list"):
        pbodl.FMMLP(["user", "ad"])  # type: ignore[arg-type]


def test_a_sample_without_features_is_the_bias_alone() -> None:
    schema = Schema(label="click", fields=[Field("tags", kind="multi")])
    for kind in MODELS:
        model = kind(schema, **SMALL)
        before = model.predict({"tags": []}).ctr[0]
        model.learn([{"tags": [], "click": 1}] * 30)
        assert model.table.size == 0
        assert model.predict({"tags": []}).ctr[0] > before + 0.05


def test_a_sample_wider_than_the_capacity_is_refused_before_anything_is_learned() -> None:
    model = pbodl.FMMLP(RICH, **SMALL, capacity=10)
    model.learn(LOG[:30])
    before = fingerprint(model)
    wide = {**LOG[31], "tags": list(range(9))}
    with pytest.raises(InputError, match="one sample has 15 features, more than the capacity of 10"):
        model.learn([LOG[30], wide])
    assert fingerprint(model) == before


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("embedding.keys", lambda keys: np.full_like(keys, keys[0]), "twice"),
        ("embedding.keys", lambda keys: keys[:-1], "shape"),
        ("embedding.field", lambda field: field + np.uint16(3), "names fields that the schema does not have"),
        ("embedding.mean", lambda mean: mean[1:], "shape"),
        ("embedding.mean", lambda mean: mean.astype(np.float64), "float64"),
        ("linear.mean", lambda mean: mean[:, 0], "shape"),
        ("dense.0.variance", lambda variance: variance.T.copy(), "4x4"),
        ("dense.1.mean", lambda mean: mean[:, :-1], "1x5"),
        ("counters", lambda counters: counters[:2], "shape"),
    ],
)
def test_damaged_states_are_refused(name: str, damage: Any, words: str) -> None:
    model = pbodl.FMMLP(PLAIN, dim=3, hidden=(4,))
    model.learn(LOG)
    before = fingerprint(model)
    state = model.state()
    damaged = damage(state[name]) if name != "dense.0.variance" else np.ones((5, 4), np.float32)
    with pytest.raises(InputError, match=words):
        model.load_state(state | {name: damaged})
    assert fingerprint(model) == before


def test_a_state_of_another_model_is_refused() -> None:
    linear, other = pbodl.FMMLP(PLAIN, dim=3, hidden=(4,)), pbodl.FMMLP(PLAIN, dim=3, hidden=(4,), linear=False)
    with pytest.raises(InputError, match=r"no 'linear\.mean'"):
        linear.load_state(other.state())
    with pytest.raises(InputError, match=r"unknown 'linear\.mean'"):
        other.load_state(linear.state())
    with pytest.raises(InputError, match=r"no 'dense\.2\.mean'"):
        pbodl.FMMLP(PLAIN, dim=3, hidden=(4, 4)).load_state(linear.state())


def test_rejected_updates_are_counted_and_keep_the_weights() -> None:
    model = pbodl.FMMLP(PLAIN, **SMALL)
    model.learn(LOG)
    assert [model.metrics()[f"rejected_{part}"] for part in ("embedding", "linear", "dense")] == [0, 0, 0]
    state = model.state()
    state["linear.variance"][:] = 1e8  # far past what the guard lets through
    model.load_state(state)
    model.learn(LOG[:50])
    assert [model.metrics()[f"rejected_{part}"] for part in ("embedding", "linear", "dense")] == [0, 3 * 50, 0]
    for moment in ("linear.mean", "linear.variance"):
        np.testing.assert_array_equal(model.state()[moment], state[moment])
    restored = pbodl.FMMLP(PLAIN, **SMALL)
    restored.load_state(model.state())
    assert restored.metrics() == model.metrics()


def test_a_step_cap_bounds_the_move_of_a_mean() -> None:
    free, capped = (
        pbodl.SparseMLP(PLAIN, dim=1, hidden=(), linear=False, initial_spread=0.0, prior=pbodl.Prior(4.0, 4.0, 4.0), step_cap=cap)
        for cap in (None, 0.1)
    )
    row = without(LOG[:1], "weight")
    for model in (free, capped):
        model.learn(row)
    np.testing.assert_allclose(np.abs(capped.state()["embedding.mean"]), 0.1 * 2.0, rtol=1e-6)
    assert (np.abs(free.state()["embedding.mean"]) > 0.2).all()


def test_a_wide_bias_learns_the_level_of_the_clicks():
    schema = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
    rng = np.random.default_rng(1)
    rows = [{"user": u, "ad": a, "click": 0} for u, a in rng.integers(1000, size=(600, 2)).tolist()]
    narrow, wide = (pbodl.FMMLP(schema, prior=pbodl.Prior(bias=bias)) for bias in (None, 1.0))
    for model in (narrow, wide):
        model.learn(rows)
    asked = {"user": "new", "ad": "new"}
    assert wide.predict(asked).ctr < 0.01 < narrow.predict(asked).ctr
    assert wide.dense.prior_variance[-1, 0, 32] == pytest.approx(33.0)
