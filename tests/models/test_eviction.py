"""Bounded memory: what goes first, what is counted, and that the bound holds; and the time to live."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pbodl
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.models.eviction import row_scores
from tests.click_log import RICH, START, click_log
from tests.contract import assert_same_state
from tests.oracles.eviction import divergence, forgotten, score

ADS = Schema(label="click", time="time", weight="weight", fields=[Field("ad", group="ad")])
PAIRS = Schema(label="click", fields=[Field("user", group="user"), Field("ad", group="ad")])
HOUR = 3600.0


def row(ad: Any, hours: float, weight: float = 1.0, click: int = 1) -> dict[str, Any]:
    return {"ad": ad, "time": START + hours * HOUR, "weight": weight, "click": click}


def kept(model: pbodl.FMMLP, ads: list[Any]) -> list[Any]:
    """Which of these the table still holds."""
    keys = set(model.state()["embedding.keys"].tolist())
    return [ad for ad in ads if hash_value("ad", ad) in keys]


def ads_model(prior: pbodl.Prior | None = None, **options: Any) -> pbodl.FMMLP:
    return pbodl.FMMLP(ADS, dim=2, hidden=(3,), prior=prior or pbodl.Prior(bias=None), **options)


@pytest.mark.parametrize("half_life", [None, "5h"])
def test_scores_are_divergence_from_the_prior_halved_with_age(half_life: str | None) -> None:
    rng = np.random.default_rng(3)
    rows = [row(int(ad), i * 0.5, click=int(ad % 2)) for i, ad in enumerate(rng.integers(0, 8, 60))]
    prior = pbodl.Prior(embedding=0.1, linear=0.02)
    model, blank = ads_model(half_life=half_life, prior=prior), ads_model(prior=prior)
    model.learn(rows)
    blank.learn([{**r, "weight": 0.0} for r in rows])  # the same rows of the table, at their start
    state, start = model.state(), blank.state()
    np.testing.assert_array_equal(state["embedding.keys"], start["embedding.keys"])
    now = START + 40 * HOUR
    half_lives = (now - state["embedding.last_seen"])[:, None] / (5 * HOUR) * (half_life is not None)
    columns = []
    for part, start_variance in (("embedding", prior.embedding), ("linear", prior.linear)):
        variance = forgotten(state[f"{part}.variance"].astype(np.float64), start_variance, half_lives)
        for d in range(variance.shape[1]):
            moments = zip(state[f"{part}.mean"][:, d], variance[:, d], start[f"{part}.mean"][:, d], strict=True)
            columns.append([divergence(m, v, m_start, start_variance) for m, v, m_start in moments])
    ref = score(np.array(columns).T, state["embedding.last_seen"], now)
    np.testing.assert_allclose(row_scores(model, now), ref, rtol=2e-3, atol=1e-7)


@pytest.mark.nojit
def test_of_two_equally_old_rows_the_one_nearer_to_its_prior_goes() -> None:
    model = ads_model(capacity=8)
    known, hardly = [0, 2, 4, 6], [1, 3, 5, 7]
    model.learn([row(ad, 0.0) for ad in known for _ in range(30)])
    model.learn([row(ad, 0.0, weight=0.01) for ad in hardly])
    for i, stranger in enumerate(["w", "x", "y", "z"]):
        model.learn([row(stranger, 0.0)] * 30)
        assert kept(model, known) == known
        assert len(kept(model, hardly)) == 3 - i
    assert model.metrics()["evicted"] == 4


def test_of_two_equally_known_rows_the_staler_goes() -> None:
    model = ads_model(capacity=8)
    # Every ad has the same lesson, one after the other; then the clock stands at the last.
    model.learn([row(ad, float(ad)) for ad in range(8)])
    for stranger, gone in (("x", 0), ("y", 1), ("z", 2)):
        model.learn([row(stranger, 8.0)])
        assert kept(model, list(range(8))) == list(range(gone + 1, 8))


def test_a_row_that_comes_back_starts_anew() -> None:
    model = ads_model(capacity=4)
    model.learn([row("a", 0.0, weight=0.5)])
    for ad in ("b", "c", "d"):
        model.learn([row(ad, 1.0)] * 20)
    model.learn([row("e", 2.0)] * 20)
    assert kept(model, ["a"]) == []
    model.learn(row("a", 2.0, weight=0.0))
    fresh = ads_model()
    fresh.learn(row("a", 2.0, weight=0.0))
    place = model.state()["embedding.keys"].tolist().index(hash_value("ad", "a"))
    for name in ("embedding.mean", "embedding.variance", "linear.mean", "linear.variance", "embedding.count"):
        np.testing.assert_allclose(model.state()[name][place], fresh.state()[name][0], rtol=1e-6)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=80), st.integers(2, 30), st.integers(1, 20))
def test_capacity_is_never_passed_and_nothing_is_lost_uncounted(pairs: list[tuple[int, int]], capacity: int, size: int) -> None:
    rows = [{"user": u, "ad": a, "click": (u + a) % 2} for u, a in pairs]
    model, single = (pbodl.FMMLP(PAIRS, dim=2, hidden=(), capacity=capacity) for _ in range(2))
    for start in range(0, len(rows), size):
        model.learn(rows[start : start + size])
        assert model.table.size <= capacity
    for r in rows:
        before, gone = counts(single), single.metrics()["evicted"]
        single.learn(r)
        after = counts(single)
        own = {hash_value("user", r["user"]), hash_value("ad", r["ad"])}
        assert own <= set(after)
        assert len(after) <= capacity
        # A row's own feature may have had to go, and come back as new.
        renewed = {key for key in own & set(before) if after[key] == 1}
        assert single.metrics()["evicted"] - gone == len(set(before) - set(after)) + len(renewed)
    assert_same_state(model, single)


def counts(model: pbodl.FMMLP) -> dict[int, int]:
    state = model.state()
    return dict(zip(state["embedding.keys"].tolist(), state["embedding.count"].tolist(), strict=True))


def test_a_capacity_that_is_never_reached_changes_nothing() -> None:
    log = click_log(150)
    comp, ref = (pbodl.FFMMLP(RICH, dim=2, hidden=(3,), capacity=capacity) for capacity in (10_000, None))
    np.testing.assert_array_equal(comp.learn(log), ref.learn(log))
    assert_same_state(comp, ref)


def test_memory_is_bounded_and_the_model_still_learns() -> None:
    rng = np.random.default_rng(1)
    # Half of the rows are about two ads, the others about ads that are never seen again.
    ads = [f"once{i}" if rng.random() < 0.5 else i % 2 for i in range(4000)]
    rows = [{"user": 0, "ad": ad, "click": i % 2} for i, ad in enumerate(ads)]
    model = pbodl.FMMLP(PAIRS, dim=4, hidden=(4,), capacity=50)
    model.learn(rows)
    low, high = model.predict([{"user": 0, "ad": 0}, {"user": 0, "ad": 1}]).ctr
    assert low < 0.1
    assert high > 0.9
    assert model.metrics()["features"] <= 50
    assert model.metrics()["evicted"] > 1500


def test_rows_past_their_time_to_live_go() -> None:
    model = ads_model(time_to_live="8h")
    model.learn([row("old", 0.0), row("kept alive", 0.0)])
    for hour in range(1, 10):
        model.learn(row("kept alive", float(hour)))
    # Rows are swept eight times in a time to live: by 9h at the latest what was last seen at 0h is gone.
    assert kept(model, ["old", "kept alive"]) == ["kept alive"]
    assert model.metrics()["expired"] == 1
    assert model.metrics()["evicted"] == 0


def test_no_row_goes_before_its_time_to_live() -> None:
    model = ads_model(time_to_live="8h")
    rng = np.random.default_rng(5)
    hours = np.cumsum(rng.exponential(0.4, 300))
    last: dict[int, float] = {}
    for hour, ad in zip(hours, rng.integers(0, 60, 300), strict=True):
        model.learn(row(int(ad), hour))
        last[int(ad)] = hour
        young = [ad for ad, seen in last.items() if hour - seen <= 8]
        overdue = [ad for ad, seen in last.items() if hour - seen > 9]
        assert kept(model, young) == young
        # Between two rows more than an eighth may pass: sweeps come with rows.
        assert not [ad for ad in kept(model, overdue) if hour - last[ad] > 9 + 2]
    assert model.metrics()["expired"] > 50


def test_time_to_live_in_rows() -> None:
    model = pbodl.SparseMLP(PAIRS, dim=2, hidden=(), time_to_live="16 rows")
    model.learn([{"user": "old", "ad": 0, "click": 1}])
    model.learn([{"user": "new", "ad": 1, "click": 1}] * 10)
    assert model.table.size == 4
    model.learn([{"user": "new", "ad": 1, "click": 1}] * 10)
    assert model.table.size == 2
    assert model.metrics()["expired"] == 2
