"""Impressions judged in stages: as the naive join does it, whatever the reads; bounds, state, sampling, and an unbiased CTR."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbodl.data.convert import concat
from pbodl.data.sampling import NegativeSets, is_kept
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.pair_fm import PairFM
from pbodl.streaming.join.click_join import FinalLabels, Join, Joined
from pbodl.streaming.join.join_rules import FIRST, JOINED, LATER, LATER_KEPT, MANY_EDGES, PREDICT, STAGE_SEED
from tests.oracles.join import NaiveJoin, Operation, joined
from tests.streaming.traffic import SCHEMA, click, decoded, impression, pieces, traffic

NAMES = {PREDICT: "predict", FIRST: "first", LATER: "later"}
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["impression", "click"]), st.integers(0, 12), st.integers(-3, 12)), min_size=1, max_size=80
)
AGES = (4.0, 9.0, 15.0)
Parts = list[tuple[Joined, FinalLabels]]


def story(actions: list[tuple[str, int, int]]) -> list[tuple[str, str, float]]:
    """Events with ids and times from steps of time, some of them back."""
    now, events = 100.0, []
    for kind, name, step in actions:
        now += step
        events.append((kind, f"i{name}", now))
    return events


def as_events(events: list[tuple[str, str, float]]) -> list[dict]:
    # The user says which impression a row is of.
    return [impression(name, time, user=name) if kind == "impression" else click(name, time) for kind, name, time in events]


def names_of(batch, names: set[str]) -> list[str]:
    known = decoded([impression(name, 1.0, user=name) for name in sorted(names)]).rows
    by_key = dict(zip(known.keys[known.fields == 0].tolist(), sorted(names), strict=True))
    return [by_key[key] for key in batch.keys[batch.fields == 0].tolist()]


def operations(parts: Parts, names: set[str]) -> list[Operation]:
    found = []
    for part, _ in parts:
        columns = (part.batch.clicks, part.batch.came_before, part.batch.came_by, part.batch.weights)
        for name, role, clicked, *numbers in zip(names_of(part.batch, names), part.roles.tolist(), *columns, strict=True):
            found.append(Operation(name, NAMES[role], bool(clicked), *(pytest.approx(float(n), rel=1e-5) for n in numbers)))
    return found


def finals(parts: Parts, names: set[str]) -> list[tuple[str, bool]]:
    return [
        (name, bool(clicked))
        for _, final in parts
        for name, clicked in zip(names_of(final.batch, names), final.batch.clicks, strict=True)
    ]


def kept(number: int, edge: int, fraction: float) -> bool:
    with np.errstate(over="ignore"):
        return bool(is_kept(np.uint64(number) * MANY_EDGES + np.uint64(edge), np.uint64(3) ^ STAGE_SEED, fraction))


def naive(events: list[tuple[str, str, float]], join: Join) -> NaiveJoin:
    judged = None if join.delays.choice[1] >= 0 else np.flatnonzero(join.delays.judged).tolist()
    return joined(events, join.delays.edges.tolist(), join.rules.window, judged, kept)


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from([(), AGES]))
def test_as_the_oracle_has_it_whatever_the_pieces(actions: list, sizes: list[int], ages: tuple) -> None:
    events = story(actions)
    names = {name for _, name, _ in events}
    join = Join(SCHEMA, 10.0, 15.0, seed=3, skew=1e9, ages=ages)
    parts = []
    for piece in pieces(as_events(events), sizes):
        parts.append(join.add(decoded(piece)))
        join.check_ledger()
    ref = naive(events, join)
    assert operations(parts, names) == ref.out
    assert finals(parts, names) == ref.final
    assert join.watermark == ref.watermark
    np.testing.assert_allclose(join.delays.last, ref.d)


@pytest.mark.parametrize("ctr, step", [(0.2, 1.0), (0.9, 0.3)])
def test_as_the_oracle_has_it_over_a_long_stream_with_an_outage(ctr: float, step: float) -> None:
    events = traffic(2500, delay=30.0, step=step, ctr=ctr)
    middle = events[-1]["time"] / 2
    cut = [event for event in events if event["event"] == "impression" or not middle < event["time"] < middle + 400 * step]
    join = Join(SCHEMA, 60.0, 300.0, seed=3)
    parts = [join.add(decoded(piece)) for piece in pieces(cut, [1, 400, 17])]
    ref = naive([(event["event"], str(event["id"]), event["time"]) for event in cut], join)
    comp = [(f"i{number}", NAMES[role]) for part, _ in parts for number, role in zip(part.numbers, part.roles, strict=True)]
    assert comp == [operation[:2] for operation in ref.out]
    assert [f"i{number}" for _, final in parts for number in final.numbers] == [name for name, _ in ref.final]
    assert (join.metrics()["outages"], join.silent_since) == (ref.outages, None) == (1, None)
    assert join.delays.choice[0] == ref.joined and join.delays.choice[1] == ref.chosen_at
    join.check_ledger()


@settings(max_examples=40, deadline=None)
@given(ACTIONS, st.integers(1, 79))
def test_saved_and_loaded_is_never_stopped(actions: list, cut: int) -> None:
    events, names = as_events(story(actions)), {f"i{n}" for n in range(13)}
    ref, before, comp = (Join(SCHEMA, 10.0, 15.0, capacity=7, ages=AGES, skew=1e9) for _ in range(3))
    expected = [ref.add(decoded(events))]
    parts = [before.add(decoded(events[:cut]))]
    comp.load_state({name: array.copy() for name, array in before.state().items()})
    parts += [comp.add(decoded(events[cut:]))] if events[cut:] else []
    assert operations(parts, names) == operations(expected, names)
    assert finals(parts, names) == finals(expected, names)
    assert comp.metrics() == ref.metrics()


def judged_at(*events: dict, **options: float) -> tuple[Join, Joined, FinalLabels]:
    """What comes of events in a stream that is judged after 60 and 300 seconds, and forgets after 300."""
    join = Join(SCHEMA, 60.0, 300.0, ages=(60.0, 300.0), **options)  # type: ignore[arg-type]
    return join, *join.add(decoded(list(events)))


def tick(first: float, times: int = 6) -> list[dict]:
    """Clicks of nobody, by which time passes: the clock follows when five events agree."""
    return [click(f"tick{first}-{n}", first) for n in range(times)]


def shown(joined: Joined) -> list[tuple[int, int]]:
    return list(zip(joined.roles.tolist(), joined.batch.clicks.tolist(), strict=True))  # type: ignore[union-attr]


def test_an_impression_is_predicted_when_it_comes_and_judged_at_its_ages() -> None:
    start = tick(1000)
    join, joined, final = judged_at(*start, impression("a", 1000), impression("b", 1000), *tick(1030), click("a", 1030))
    assert shown(joined) == [(PREDICT, 0), (PREDICT, 0)] and not len(final.numbers)
    assert joined.batch.weights.tolist() == [0, 0]
    joined, _ = join.add(decoded([*tick(1061), click("b", 1062), click("b", 1063)]))
    assert shown(joined) == [(FIRST, 1), (FIRST, 0)]
    assert joined.batch.came_before.tolist() == [0, 0] and 0.5 < joined.batch.came_by[1] < 0.995
    joined, final = join.add(decoded(tick(1301)))
    assert shown(joined) == [(LATER, 1)]
    assert 0.5 < joined.batch.came_before[0] < 0.995
    assert final.batch.clicks.tolist() == [1, 1]
    counters = join.metrics()
    assert (counters["duplicate_clicks"], counters["positives"], counters["negatives"], counters["judged"]) == (1, 2, 1, 2)


def test_nothing_is_judged_while_no_click_comes() -> None:
    impressions = [impression(f"x{n}", 1100 + n) for n in range(300)]
    join, joined, final = judged_at(*tick(1000), impression("a", 1000), *impressions)
    assert set(joined.roles.tolist()) == {PREDICT} and not len(final.numbers)
    joined, final = join.add(decoded(tick(1400)))
    assert joined.roles[0] == FIRST and final.numbers.tolist()[0] == 0


def test_a_click_may_come_before_its_impression() -> None:
    join, joined, _ = judged_at(*tick(1000), click("a", 1000), impression("a", 1001), click("b", 1002), *tick(1003), *tick(1064))
    assert shown(joined) == [(PREDICT, 0), (FIRST, 1)]
    assert join.metrics()["orphan_clicks"] == 17  # all but those of the last tick


def test_clicks_later_than_the_horizon_are_counted_alone() -> None:
    others = [impression(f"x{n}", 1310) for n in range(6)]
    join, joined, final = judged_at(*tick(1000), impression("a", 1000), *others, click("a", 1310))
    assert (join.metrics()["late"], join.metrics()["positives"], join.metrics()["unjudged"]) == (1, 0, 0)
    assert final.numbers[0] == 0 and not final.batch.clicks.any() and (FIRST, 0) in shown(joined)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_rows_that_come_with_their_label_are_learned_at_once(rate: float) -> None:
    rows = [{**impression(f"r{n}", 1000 + n), "event": None, "click": n % 2} for n in range(100)]
    join, joined, _ = judged_at(*rows, impression("a", 1099), rate=rate)
    counters = join.metrics()
    assert (counters["joined"], counters["positives"], counters["impressions"]) == (100, 50, 1)
    assert counters["negatives"] + counters["unsampled"] == 50
    assert counters["negatives"] == 50 if rate == 1.0 else 10 < counters["negatives"] < 40
    assert (joined.roles == JOINED).sum() == 50 + counters["negatives"]
    np.testing.assert_allclose(joined.stands_for[joined.batch.clicks == 1], 1.0)
    join.check_ledger()


@pytest.mark.parametrize("paper", [False, True])
def test_a_non_click_counts_as_often_as_sets_have_it(paper: bool) -> None:
    impressions = [impression(f"i{n}", 1000 + n / 100, user=f"i{n}") for n in range(300)]
    _, joined, _ = judged_at(*tick(999), *impressions, *tick(1070), rate=0.4, seed=3, sets=NegativeSets(3, paper))
    with np.errstate(over="ignore"):
        times = [sum(is_kept(np.uint64(n), np.uint64(3 + one), 0.4) for one in range(3)) for n in range(300)]
    first = joined.roles == FIRST
    came = float(joined.came[first][0])
    by = 1 - 0.4 * (1 - came)
    weights = [times[n] * (1.0 if paper else 1 / 3) * came / by for n in joined.numbers[first]]
    np.testing.assert_allclose(joined.batch.weights[first], weights, rtol=1e-5)
    np.testing.assert_allclose(joined.batch.came_by[first], by, rtol=1e-6)
    assert first.sum() == np.count_nonzero(times)


def test_one_wild_time_changes_nothing_and_ten_are_believed() -> None:
    join, *_ = judged_at(*tick(1000), impression("a", 1000), impression("x", 5e9), *[click("a", 1010)] * 5)
    assert (join.metrics()["strays"], join.watermark) == (1, 1010.0)
    join.add(decoded([impression(f"b{n}", 1e6 + n) for n in range(16)]))
    assert (join.metrics()["strays"], join.watermark) == (10, 1e6 + 11)


@pytest.mark.parametrize("first", [True, False])
def test_one_event_ahead_within_the_skew_does_not_move_the_clock(first: bool) -> None:
    steady = [impression(f"s{n}", 1000.0 + n) for n in range(20)]
    ahead = impression("ahead", 4000.0)
    join, *_ = judged_at(*([ahead, *steady] if first else [*steady[:10], ahead, *steady[10:]]))
    assert join.watermark == 1015.0 and join.metrics()["strays"] == 0


def test_the_time_of_an_event_far_ahead_is_not_believed_and_the_event_counts() -> None:
    join, joined, _ = judged_at(*tick(1000), impression("a", 1000), impression("x", 73_000), *tick(1061), skew=3600.0)
    assert (join.watermark, join.metrics()["ahead"], join.metrics()["strays"]) == (1061.0, 1, 0)
    assert shown(joined) == [(PREDICT, 0), (PREDICT, 0), (FIRST, 0), (FIRST, 0)]
    assert joined.batch.times.tolist() == [1000, 4600, 1000, 4600]


def test_after_a_pause_no_event_is_lost_and_none_is_older_than_it_is() -> None:
    morning = [impression(f"m{n}", 30_000.0 + n) for n in range(12)]
    join, *_ = judged_at(*tick(1000), impression("a", 1000), *morning, skew=3600.0)
    assert (join.watermark, join.metrics()["leaps"], join.metrics()["strays"]) == (30_009.0, 1, 0)
    joined, final = join.add(decoded([click("m0", 30_020.0), *tick(30_080)]))
    assert [number for number, role in zip(joined.numbers, joined.roles, strict=True) if role == FIRST][:1] == [0]
    assert joined.batch.clicks[joined.numbers == 1].tolist() == [1] and final.numbers.tolist() == [0]


def test_memory_is_bounded_and_what_is_crowded_out_is_censored() -> None:
    join, joined, _ = judged_at(*tick(999), *(impression(f"i{n}", 1000 + n / 100) for n in range(50)), capacity=20)
    assert (join.metrics()["crowded_out"], join.metrics()["waiting"]) == (30, 20)
    joined, final = join.add(decoded(tick(1070)))
    assert joined.numbers.tolist() == list(range(30, 50))
    join.add(decoded([click("i3", 1071), *tick(1072)]))
    assert join.delays.choice[0] == 1  # its row is gone, and its delay counts
    _, final = join.add(decoded(tick(1400)))
    assert final.numbers.tolist() == list(range(30, 50))
    join.check_ledger()


def test_rows_go_when_nobody_needs_them() -> None:
    join = Join(SCHEMA, 10.0, 20.0)
    most = 0
    for piece in pieces(traffic(40_000, step=0.01, delay=5.0), [2000]):
        join.add(decoded(piece))
        most = max(most, join.rows.bytes)
    assert join.rows.bytes <= most < 4 * (3000 + 4096 + 2000) * (3 * 8 + 4 + 8 + 4)


def test_lists_and_numbers_keep_their_shape() -> None:
    fields = [Field("tags", kind="multi"), Field("price", kind="number", transform="scale"), Field("ad", group="ad")]
    schema = Schema(label="click", time="time", weight="importance", fields=fields)
    rows = [
        {"event": "impression", "id": n, "time": 10.0 * n, "tags": [f"t{k}" for k in range(n % 4)], "price": n + 0.5, "ad": n,
         "importance": 1 + n % 3}
        for n in range(30)
    ]  # fmt: skip
    join = Join(schema, 15.0, 15.0, ages=(15.0,))
    parts = [join.add(decoded(piece, schema))[0] for piece in pieces([*rows, *tick(1000)], [4])]
    comp = concat([part.batch.take(np.flatnonzero(part.roles == FIRST)) for part in parts if len(part)])
    ref = decoded(rows, schema).rows
    for name in ("keys", "values", "fields", "indptr", "weights", "times"):
        np.testing.assert_array_equal(getattr(comp, name), getattr(ref, name), err_msg=name)


@pytest.mark.parametrize("options", [{"window": -1.0}, {"capacity": 0}, {"late": 0.0}, {"ages": (5000.0,)}])
def test_bad_bounds_are_refused(options: dict) -> None:
    with pytest.raises(InputError, match=r"must be above 0|at most --late"):
        Join(SCHEMA, **options)


def score(batch, p: float) -> np.ndarray:
    """The slope of each operation's log-likelihood by the CTR of all impressions, by a finite difference."""

    def log_z(q: float) -> np.ndarray:
        before, by = batch.came_before.astype(float), batch.came_by.astype(float)
        return batch.weights * (np.where(batch.clicks > 0, np.log(q), np.log1p(-by * q)) - np.log1p(-before * q))

    return (log_z(p + 1e-6) - log_z(p - 1e-6)) / 2e-6


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("role", [FIRST, LATER])
def test_at_each_age_the_slopes_cancel_at_the_truth(rate: float, role: int) -> None:
    """Also where non-clicks are sampled: at p/(p + w (1 - p))."""
    draws, events = np.random.default_rng(5), []
    true = 0.2
    for number in range(60_000):
        events.append((number / 4, impression(number, number / 4, ad="a")))
        if draws.random() < true:
            later = number / 4 + draws.exponential(100.0)
            events.append((later, click(number, later)))
    join = Join(SCHEMA, 600.0, 2000.0, rate=rate, seed=1)
    ordered = [event for _, event in sorted(events, key=lambda entry: entry[0])]
    parts = [join.add(decoded(piece))[0] for piece in pieces(ordered, [5000])]
    batch = concat([part.batch.take(np.flatnonzero(part.roles == role)) for part in parts[2:]])
    slopes = score(batch, true / (true + rate * (1 - true)))
    assert abs(slopes.sum()) < 4.0 * np.sqrt((slopes**2).sum())
    assert LATER_KEPT < 1.0 and len(slopes) > 3000


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_a_model_learns_the_ctr_of_a_stream_whose_clicks_come_late(rate: float) -> None:
    schema = Schema(label="click", time="time", fields=[Field("ad", group="ad")])
    draws, events = np.random.default_rng(5), []
    for number in range(20_000):
        events.append((float(number), impression(number, float(number), ad="a")))
        if draws.random() < 0.2:
            later = number + draws.exponential(100.0)
            events.append((later, click(number, later)))
    join = Join(schema, 70.0, 1000.0, rate=rate)
    part, _ = join.add(decoded([event for _, event in sorted(events, key=lambda entry: entry[0])], schema))
    model = PairFM(schema, dim=2, negative_rate=rate)
    model.learn(part.batch)
    true = join.metrics()["clicks"] / join.metrics()["impressions"]
    comp = float(model.predict([{"ad": "a", "time": 0.0}]).ctr[0])
    assert abs(comp - true) < 4 * np.sqrt(true * (1 - true) / 20_000 / rate)


def test_a_leap_in_the_first_read_of_a_stream_has_a_start() -> None:
    """The clock has heard nothing yet, and the leap begins within these events."""
    times = np.array([100.0] * 5 + [2e6] * 12)
    numbers, leap, start = Join(SCHEMA, 300.0, 1800.0).strays(times)
    assert (numbers.tolist(), leap, start) == (list(range(5, 14)), 14, 100.0)
