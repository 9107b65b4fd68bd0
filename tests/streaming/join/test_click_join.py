"""Impressions and late clicks: order, duplicates, bounds, state, and the correction for clicks that come too late."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbodl.data.convert import concat
from pbodl.data.sampling import NegativeSets, is_kept
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.deep_probit import FMMLP
from pbodl.streaming.join.click_join import Join, Joined
from pbodl.streaming.join.join_rules import NO, TAKE_BACK, YES
from tests.oracles import join as oracle
from tests.streaming.traffic import SCHEMA, click, decoded, impression, pieces, traffic

NAMES = {YES: "yes", NO: "no", TAKE_BACK: "back"}
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["impression", "click"]), st.integers(0, 12), st.integers(-3, 12)), min_size=1, max_size=80
)


def story(actions: list[tuple[str, int, int]]) -> list[tuple[str, str, float]]:
    """Events with ids and times from steps of time, some of them back."""
    now, told = 100.0, []
    for kind, name, step in actions:
        now += step
        told.append((kind, f"i{name}", now))
    return told


def as_events(told: list[tuple[str, str, float]]) -> list[dict]:
    # The user tells which impression a row is of.
    return [impression(name, time, user=name) if kind == "impression" else click(name, time) for kind, name, time in told]


def keys_by_user(names: set[str]) -> dict[int, str]:
    batch = decoded([impression(name, 1.0, user=name) for name in sorted(names)]).rows
    return dict(zip(batch.keys[batch.fields == 0].tolist(), sorted(names), strict=True))


def outcome(parts: list[Joined], names: set[str]) -> list[tuple[str, str]]:
    by_key = keys_by_user(names)
    return [
        (by_key[key], NAMES[role])
        for part in parts
        for key, role in zip(part.batch.keys[part.batch.fields == 0].tolist(), part.roles.tolist(), strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.sampled_from([1.0, 0.5]), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.booleans())
def test_as_the_oracle_has_it_whatever_the_pieces(actions: list, rate: float, sizes: list[int], in_step: bool) -> None:
    told = story(actions)
    names = {name for _, name, _ in told}
    join = Join(SCHEMA, 10.0, 15.0, rate=rate, seed=3, leap=1e9, in_step=in_step)
    parts = [join.add(decoded(piece)) for piece in pieces(as_events(told), sizes)]
    join.check_ledger()
    parts.append(join.close_windows())
    with np.errstate(over="ignore"):
        ref = oracle.join(told, 10.0, 15.0, lambda number: bool(is_kept(np.uint64(number), np.uint64(3), rate)), in_step)
    assert outcome(parts, names) == ref
    counters = join.metrics()
    assert (counters["positives"], counters["negatives"]) == tuple(
        sum(role == wanted for _, role in ref) for wanted in ("yes", "no")
    )


@settings(max_examples=40, deadline=None)
@given(ACTIONS, st.integers(1, 79), st.booleans())
def test_saved_and_loaded_is_never_stopped(actions: list, cut: int, in_step: bool) -> None:
    events = as_events(story(actions))
    ref, before, comp = (Join(SCHEMA, 10.0, 15.0, capacity=7, in_step=in_step) for _ in range(3))
    expected = [*outcome([ref.add(decoded(events)), ref.close_windows()], {f"i{n}" for n in range(13)})]
    parts = [before.add(decoded(events[:cut]))]
    comp.load_state({name: array.copy() for name, array in before.state().items()})
    parts += [comp.add(decoded(events[cut:])), comp.close_windows()] if events[cut:] else [comp.close_windows()]
    assert outcome(parts, {f"i{n}" for n in range(13)}) == expected
    assert comp.metrics() == ref.metrics()


def after_the_first_window(*events: dict, **options: float) -> tuple[Join, Joined]:
    """What comes of events from time 1000 on, in a stream whose first window has passed."""
    join = Join(SCHEMA, 60.0, 600.0, **options)  # type: ignore[arg-type]
    join.skip_holding()
    return join, join.add(decoded(list(events)))


def test_a_click_inside_the_window_counts_at_once_and_once() -> None:
    join, joined = after_the_first_window(impression("a", 1000), click("a", 1060), click("a", 1061), impression("a", 1062))
    assert joined.roles.tolist() == [YES]
    assert joined.batch.times.tolist() == [1000]
    counters = join.metrics()
    assert (counters["duplicate_clicks"], counters["duplicate_impressions"], counters["late"]) == (1, 1, 0)


def test_a_late_click_takes_its_negative_back() -> None:
    join, joined = after_the_first_window(impression("a", 1000), impression("b", 1061), click("a", 1100))
    assert joined.roles.tolist() == [NO, TAKE_BACK, YES]
    assert joined.batch.weights.tolist() == [1, -1, 1]
    assert joined.batch.clicks.tolist() == [0, 0, 1]
    assert joined.stands_for.tolist() == [1, -1, 1]
    assert join.metrics()["late"] == 1


@pytest.mark.parametrize("paper", [False, True])
def test_a_non_click_counts_as_often_as_sets_have_it_and_is_taken_back_as_often(paper: bool) -> None:
    shown = [impression(f"i{n}", 1000 + n, user=f"i{n}") for n in range(300)]
    late = [click(f"i{n}", 1400 + n) for n in range(0, 300, 3)]
    join = Join(SCHEMA, 60.0, 600.0, rate=0.4, seed=3, sets=NegativeSets(3, paper))
    join.skip_holding()
    joined = join.add(decoded([*shown, *late]))
    with np.errstate(over="ignore"):
        times = [sum(is_kept(np.uint64(n), np.uint64(3 + one), 0.4) for one in range(3)) for n in range(300)]
    share = 1.0 if paper else 1.0 / 3.0
    for time, role, weight in zip(joined.batch.times - 1000, joined.roles, joined.batch.weights, strict=True):
        ref = {YES: 3, NO: times[int(time)], TAKE_BACK: -times[int(time)]}[role] * share
        assert weight == pytest.approx(ref)
    assert (joined.roles == NO).sum() == np.count_nonzero(times)
    assert (joined.roles == TAKE_BACK).sum() == np.count_nonzero(times[::3])
    np.testing.assert_allclose(joined.stands_for[joined.roles == NO], 1 / (1 - 0.6**3))
    join.check_ledger()


def test_in_step_a_click_brings_the_non_clicks_beside_it() -> None:
    join = Join(SCHEMA, 60.0, 600.0, in_step=True)
    join.skip_holding(clicks=10, others=28)
    events = [impression(n, 1000 + n, user=n) for n in range(9)]
    joined = join.add(decoded([*events, click(4, 1010)]))
    assert joined.roles.tolist() == [YES, NO, NO, NO]
    assert joined.batch.times.tolist() == [1004, 1003, 1005, 1002]
    joined = join.add(decoded([click(5, 1011)]))
    assert joined.roles.tolist()[:2] == [TAKE_BACK, YES]
    assert (join.metrics()["corrected"], join.metrics()["late"]) == (1, 0)
    join.check_ledger()


@pytest.mark.parametrize("in_step", [True, False])
def test_in_step_what_is_new_does_not_look_as_if_it_were_always_clicked(in_step: bool) -> None:
    """An ad that is new is shown with the others, and judged before its first window ends."""
    draws, told = np.random.default_rng(1), []
    for number in range(3000):
        now, ad = float(number), "new" if number >= 2000 and number % 2 else "old"
        told.append((now, impression(number, now, user=0, ad=ad)))
        if draws.random() < 0.2:
            told.append((now + draws.exponential(60.0), click(number, 0.0)))
    events = [event | {"time": now} for now, event in sorted(told, key=lambda entry: entry[0]) if now < 2400]
    join = Join(SCHEMA, 600.0, 3600.0, in_step=in_step)
    joined = join.add(decoded(events))
    key = decoded([impression(0, 0.0, ad="new")]).rows.keys[1]
    mine = joined.batch.keys.reshape(len(joined), -1)[:, 1] == key
    clicks, all_ = (joined.roles[mine] == YES).sum(), joined.stands_for[mine].sum()
    assert clicks > 25 and (0.12 < clicks / all_ < 0.28 if in_step else clicks == all_)


def test_a_click_may_come_before_its_impression() -> None:
    join, joined = after_the_first_window(click("a", 1000), impression("a", 1001), click("b", 1002), impression("c", 1100))
    assert joined.roles.tolist() == [YES]
    assert join.metrics()["orphan_clicks"] == 1


def test_clicks_without_an_impression_are_counted_twice_told_or_forgotten() -> None:
    early = [click(f"c{n}", 1000 + n) for n in range(16)]
    join, joined = after_the_first_window(*early, click("c3", 1016), capacity=100)
    assert (join.metrics()["duplicate_clicks"], join.metrics()["orphan_clicks"]) == (1, 0)
    # There is room for 16 of them: the oldest goes, and its impression finds no click; the second oldest is still there.
    joined = join.add(decoded([click("c16", 1017), impression("c0", 1018), impression("c1", 1019)]))
    assert join.metrics()["orphan_clicks"] == 1
    assert joined.roles.tolist() == [YES] and joined.batch.times.tolist() == [1019]


@pytest.mark.parametrize(("rate", "kept"), [(1.0, 50), (0.5, None)])
def test_rows_that_come_with_their_label_are_learned_at_once(rate: float, kept: int | None) -> None:
    rows = [{**impression(f"r{n}", 1000 + n), "event": None, "click": n % 2} for n in range(100)]
    join, joined = after_the_first_window(*rows, impression("a", 1099), rate=rate)
    counters = join.metrics()
    assert (counters["joined"], counters["positives"], counters["impressions"]) == (100, 50, 1)
    assert counters["negatives"] + counters["unsampled"] == 50
    assert counters["negatives"] == kept if kept else 10 < counters["negatives"] < 40
    assert (joined.roles == YES).sum() == 50 and len(joined) == 50 + counters["negatives"]
    join.check_ledger()


def test_a_click_at_the_end_of_the_first_window_waits_as_well() -> None:
    join = Join(SCHEMA, 60.0, 600.0)
    assert len(join.add(decoded([impression("a", 0), impression("b", 10), click("b", 60)]))) == 0
    assert join.add(decoded([impression("c", 61), click("c", 61)])).roles.tolist() == [NO, YES]


def test_until_the_first_window_has_passed_clicks_wait() -> None:
    join = Join(SCHEMA, 60.0, 600.0)
    first = join.add(decoded([impression("a", 0), impression("b", 10), click("b", 20)]))
    assert len(first) == 0
    joined = join.add(decoded([impression("c", 75), click("c", 76)]))
    assert joined.roles.tolist() == [NO, YES, YES]


def test_one_wild_time_changes_nothing_and_ten_are_believed() -> None:
    join, joined = after_the_first_window(impression("a", 1000), impression("x", 5e9), click("a", 1010))
    assert joined.roles.tolist() == [YES]
    assert (join.metrics()["strays"], join.watermark) == (1, 1010.0)
    joined = join.add(decoded([impression(f"b{n}", 1e6 + n) for n in range(12)]))
    assert (join.metrics()["strays"], join.watermark) == (10, 1e6 + 11)


def test_memory_is_bounded_and_says_what_it_cost() -> None:
    join, joined = after_the_first_window(*(impression(f"i{n}", 1000 + n / 100) for n in range(50)), capacity=20)
    assert joined.roles.tolist() == [NO] * 30
    assert (join.metrics()["hurried"], join.metrics()["remembered"], len(join.rows)) == (30, 20, 50)
    joined = join.add(decoded([impression(f"j{n}", 1100 + n) for n in range(25)]))
    assert join.metrics()["forgotten"] == 20
    join.add(decoded([click("i49", 1126)]))
    assert join.metrics()["late"] == 0
    join.check_ledger()


def test_rows_go_when_nobody_needs_them() -> None:
    join = Join(SCHEMA, 10.0, 20.0)
    most = 0
    for piece in pieces(traffic(40_000, step=0.01), [2000]):
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
    join = Join(schema, 15.0, 15.0)
    parts = [join.add(decoded(piece, schema)) for piece in pieces(rows, [4])] + [join.close_windows()]
    comp = concat([part.batch for part in parts if len(part)])
    ref = decoded(rows, schema).rows
    for name in ("keys", "values", "fields", "indptr", "weights", "times"):
        np.testing.assert_array_equal(getattr(comp, name), getattr(ref, name), err_msg=name)


def test_the_lowest_bounds_are_allowed() -> None:
    assert Join(SCHEMA, window=0.0, late=0.0, capacity=1).add(decoded([impression("a", 0), impression("b", 1)])).roles.tolist() == [
        NO
    ]


@pytest.mark.parametrize("options", [{"window": -1.0}, {"capacity": 0}])
def test_bad_bounds_are_refused(options: dict) -> None:
    with pytest.raises(InputError, match="must be at least"):
        Join(SCHEMA, **options)


def ctr_of_a_delayed_stream(corrected: bool, rate: float = 1.0) -> tuple[float, float]:
    """The true CTR, and that of a model which learned a stream where half of the clicks come after the window."""
    schema = Schema(label="click", time="time", fields=[Field("ad", group="ad")])
    draws = np.random.default_rng(5)
    events = []
    for number in range(20_000):
        events.append((float(number), {"event": "impression", "id": number, "time": float(number), "ad": "a"}))
        if draws.random() < 0.2:
            later = number + draws.exponential(100.0)
            events.append((later, click(number, later)))
    join = Join(schema, 70.0, 5000.0, rate=rate)
    joined = join.add(decoded([event for _, event in sorted(events, key=lambda entry: entry[0])], schema))
    assert join.metrics()["late"] > 1500
    batch = joined.batch if corrected else _without(joined)
    model = FMMLP(schema, dim=2, hidden=(), negative_rate=rate)
    model.learn(batch)
    clicks = join.metrics()["clicks"] / join.metrics()["impressions"]
    return clicks, float(model.predict([{"ad": "a", "time": 0.0}]).ctr[0])


def _without(joined: Joined):
    kept = np.flatnonzero(joined.roles != TAKE_BACK)
    return concat([joined.batch.rows(int(place), int(place) + 1) for place in kept])


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_ctr_is_unbiased_with_the_correction_and_biased_without(rate: float) -> None:
    true, comp = ctr_of_a_delayed_stream(corrected=True, rate=rate)
    interval = 3 * np.sqrt(true * (1 - true) / 20_000 / rate)
    assert abs(comp - true) < interval
    true, comp = ctr_of_a_delayed_stream(corrected=False, rate=rate)
    assert comp < true - interval
