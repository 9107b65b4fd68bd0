"""Spans of time and rows, and forgetting by them: in a model's own numbers, against precision arithmetic done by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pbodl
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.clock import Duration, clock_of, parse_duration
from tests.click_log import PLAIN, RICH, START, click_log

HOUR = 3600.0
TIMED = Schema(label="click", time="time", weight="weight", fields=[Field("ad", group="ad")])
PRIOR = 0.5


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("90s", (90.0, False)),
        ("30m", (1800.0, False)),
        ("12h", (43200.0, False)),
        ("7d", (604800.0, False)),
        ("2w", (1209600.0, False)),
        ("1.5h", (5400.0, False)),
        (" 7 d ", (604800.0, False)),
        ("1 row", (1.0, True)),
        ("1000 rows", (1000.0, True)),
        ("500k rows", (500_000.0, True)),
        ("1.5M rows", (1_500_000.0, True)),
        ("2Mrows", (2_000_000.0, True)),
    ],
)
def test_spans_are_read(text: str, ref: tuple[float, bool]) -> None:
    assert parse_duration(text, "half_life") == Duration(*ref)


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "7D", "1K rows", "rows", "-1d", "0 rows", "1e3 rows", "inf d", "7dd"])
def test_other_spans_are_refused_with_examples(text: str) -> None:
    with pytest.raises(InputError, match=r"time_to_live is .*; it must be a span of time or rows, such as '7d'"):
        parse_duration(text, "time_to_live")


@given(st.integers(1, 10**6), st.sampled_from("smhdw"))
def test_a_longer_unit_is_a_longer_span(n: int, unit: str) -> None:
    spans = [parse_duration(f"{n}{u}", "half_life").amount for u in "smhdw"]
    assert spans == sorted(spans)
    assert parse_duration(f"{n}{unit}", "half_life").amount % n == 0


def test_the_clock_follows_the_spans_and_the_schema() -> None:
    assert clock_of(PLAIN, None, None) == (True, 0.0, None)
    assert clock_of(RICH, None, None) == (False, 0.0, None)
    assert clock_of(RICH, "1h", "1d") == (False, 3600.0, 86400.0)
    assert clock_of(RICH, "10 rows", None) == (True, 10.0, None)
    assert clock_of(PLAIN, None, "10 rows") == (True, 0.0, 10.0)


NEXT_TO_NOTHING = 1e-9  # a weight that counts as a row and teaches nothing


def linear_model(schema: Schema = TIMED, **options: Any) -> pbodl.SparseMLP:
    """One weight per ad, and the bias."""
    prior = pbodl.Prior(embedding=PRIOR, dense=PRIOR, bias=PRIOR)
    return pbodl.SparseMLP(schema, dim=1, hidden=(), linear=False, initial_spread=0.0, prior=prior, **options)


def row(ad: str, seconds: float, weight: float = 1.0, click: int = 1) -> dict[str, Any]:
    return {"ad": ad, "time": START + seconds, "weight": weight, "click": click}


def weight_of(model: pbodl.SparseMLP, ad: str) -> tuple[float, float]:
    """The ad's mean and variance as the model sees them now: predicted, less the bias."""
    prediction, state = model.predict({"ad": ad}), model.state()
    return (
        float(prediction.mean[0] - state["dense.0.mean"][0, 0]),
        float(prediction.variance[0] - state["dense.0.variance"][0, 0]),
    )


def decayed(variance: float, half_lives: float, prior: float = PRIOR) -> float:
    """π' = π_prior + 2^-n (π - π_prior)."""
    return 1.0 / (1 / prior + 0.5**half_lives * (1 / variance - 1 / prior))


@pytest.mark.nojit
@pytest.mark.parametrize("half_lives", [0.0, 0.5, 1.0, 3.0, 60.0])
def test_half_life_in_time(half_lives: float) -> None:
    model = linear_model(half_life="1h")
    model.learn([row("a", 60.0 * i) for i in range(5)])
    mean, variance = weight_of(model, "a")
    assert variance < 0.9 * PRIOR
    # Another ad, and no lesson: only the clock goes on.
    model.learn(row("b", 240.0 + half_lives * HOUR, weight=0.0))
    comp = weight_of(model, "a")
    np.testing.assert_allclose(comp, (mean, decayed(variance, half_lives)), rtol=2e-5)
    before = model.predict({"ad": "a"}).ctr
    np.testing.assert_allclose(model.learn(row("a", 240.0 + half_lives * HOUR)), before, rtol=1e-6)


def test_half_life_in_rows() -> None:
    schema = Schema(label="click", weight="weight", fields=TIMED.fields)
    model = linear_model(schema, half_life="10 rows")
    model.learn([{"ad": "a", "weight": 1.0, "click": 1}] * 5)
    mean, variance = weight_of(model, "a")
    for passed in range(1, 21):
        model.learn({"ad": "b", "weight": NEXT_TO_NOTHING, "click": 1})
        comp = weight_of(model, "a")
        np.testing.assert_allclose(comp, (mean, decayed(variance, passed / 10)), rtol=1e-4)


def test_a_clock_of_rows_stands_still_for_predictions_of_weight_0() -> None:
    model = linear_model(half_life="10 rows")
    model.learn(row("a", 0.0))
    before = weight_of(model, "a")
    model.learn([row("b", i * HOUR, weight=0.0) for i in range(1, 11)])
    assert weight_of(model, "a") == before and model.clock == 1.0


def test_rows_count_where_the_schema_has_a_time() -> None:
    in_rows, in_time = linear_model(half_life="10 rows"), linear_model(half_life="10h")
    for model in (in_rows, in_time):
        model.learn(row("a", 0.0))
        model.learn([row("b", i * HOUR, weight=NEXT_TO_NOTHING) for i in range(1, 11)])
    np.testing.assert_allclose(weight_of(in_rows, "a"), weight_of(in_time, "a"), rtol=1e-6)


def test_with_decay_mean_the_precision_mean_fades_too() -> None:
    model = linear_model(half_life="1h", decay_mean=True)
    model.learn([row("a", 0.0)] * 5)
    mean, variance = weight_of(model, "a")
    model.learn(row("b", 2 * HOUR, weight=0.0))
    comp_mean, comp_variance = weight_of(model, "a")
    assert comp_variance == pytest.approx(decayed(variance, 2.0), rel=1e-5)
    assert comp_mean / comp_variance == pytest.approx(0.25 * mean / variance, rel=1e-4)


def test_the_bias_forgets_as_much_in_many_steps_as_in_one() -> None:
    models = [linear_model(half_life="1h") for _ in range(2)]
    for model in models:
        model.learn([row("a", 0.0)] * 20)
    variance = models[0].state()["dense.0.variance"][0, 0]
    models[0].learn(row("b", HOUR, weight=0.0))
    models[1].learn([row("b", HOUR * i / 5000, weight=0.0) for i in range(1, 5001)])
    for model in models:
        comp = model.state()["dense.0.variance"][0, 0]
        assert comp == pytest.approx(decayed(variance, 1.0), rel=2e-4)


def test_the_clock_never_goes_back() -> None:
    model = linear_model(half_life="1h")
    model.learn([row("a", 0.0), row("b", 5 * HOUR)])
    late = model.state()["clock"]
    before = weight_of(model, "b")
    model.learn(row("a", 1 * HOUR, weight=0.0))
    np.testing.assert_array_equal(model.state()["clock"], late)
    np.testing.assert_allclose(weight_of(model, "b"), before, rtol=1e-6)


def test_times_before_1970_are_times() -> None:
    comp, ref = linear_model(half_life="1h"), linear_model(half_life="1h")
    rows = [row("a", 0.0), row("b", HOUR), row("a", 3 * HOUR)]
    ref.learn(rows)
    comp.learn([{**r, "time": r["time"] - 2 * START} for r in rows])
    for name in ("embedding.mean", "embedding.variance", "dense.0.variance"):
        np.testing.assert_allclose(comp.state()[name], ref.state()[name], rtol=1e-6)


@pytest.mark.parametrize("half_life", ["1h", "3 rows"])
def test_nothing_is_forgotten_before_it_was_learned(half_life: str) -> None:
    # Forgetting starts when a weight does: a stream's first time is far from zero, and so is a late feature's first row.
    model = pbodl.FMMLP(TIMED, dim=4, hidden=(6,), half_life=half_life, decay_mean=True)
    initial = model.state()["dense.0.mean"]
    model.learn(row("a", 0.0, weight=0.0))
    np.testing.assert_array_equal(model.state()["dense.0.mean"], initial)
    ref = pbodl.FMMLP(TIMED, dim=4, hidden=(6,))
    model.learn([row("a", HOUR * i, weight=0.0) for i in range(50)] + [row("late", 50 * HOUR, weight=0.0)])
    ref.learn(row("late", 0.0, weight=0.0))
    np.testing.assert_array_equal(model.state()["embedding.mean"][1], ref.state()["embedding.mean"][0])


def test_a_half_life_that_never_comes_is_none() -> None:
    log = click_log(100)
    comp, ref = (pbodl.FMMLP(RICH, dim=3, hidden=(4,), half_life=half_life) for half_life in ("1000000w", None))
    np.testing.assert_allclose(comp.learn(log), ref.learn(log), rtol=1e-5)
