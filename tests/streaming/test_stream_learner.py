"""The learner: reads of any size, burn-in, decay by event time, bad events in a row, and what it says of itself."""

from pathlib import Path

import numpy as np
import pytest

from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.snapshot import rollback
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import MOST_BAD, StreamLearner, StreamOptions
from tests.streaming.traffic import SCHEMA, config, decoded, fingerprint, impression, pieces, traffic

JOIN = StreamOptions("5m", "20m", 800)


def learner(folder: Path, **training: object) -> StreamLearner:
    return StreamLearner.start(config(**training), folder, JOIN, StreamPosition())


def after(events: list[dict], folder: Path, sizes: list[int], **training: object) -> StreamLearner:
    own = learner(folder, **training)
    for number, piece in enumerate(pieces(events, sizes)):
        own.take(decoded(piece), StreamPosition({"s": (number,)}))
    return own


@pytest.mark.parametrize("training", [{}, {"negative_rate": 0.4}, {"half_life": "30m"}])
def test_reads_of_any_size_give_the_same_bits(tmp_path: Path, training: dict) -> None:
    events = traffic(2500)
    ref = after(events, tmp_path, [10_000], **training)
    comp = after(events, tmp_path, [1, 700, 13], **training)
    assert fingerprint(comp.model) == fingerprint(ref.model)
    assert comp.metrics() == ref.metrics()


def test_saved_and_resumed_is_never_stopped(tmp_path: Path) -> None:
    events = traffic(2500)
    ref = after(events, tmp_path / "ref", [300])
    comp = after(events[:1200], tmp_path / "comp", [300])
    comp.save()
    comp = StreamLearner.resume(config(), tmp_path / "comp")
    assert comp.position == StreamPosition({"s": (3,)})
    comp.take(decoded(events[1200:]), StreamPosition())
    assert fingerprint(comp.model) == fingerprint(ref.model)
    assert comp.metrics() == ref.metrics()


def test_going_back_takes_the_position_back_too(tmp_path: Path) -> None:
    events = traffic(1500)
    own = after(events[:600], tmp_path, [600])
    own.save()
    own.take(decoded(events[600:]), StreamPosition({"s": (99,)}))
    own.save()
    rollback(tmp_path)
    back = StreamLearner.resume(config(), tmp_path)
    assert back.position == StreamPosition({"s": (0,)})
    back.take(decoded(events[600:]), StreamPosition({"s": (99,)}))
    assert fingerprint(back.model) == fingerprint(own.model)


def test_rows_that_no_event_touches_forget_by_the_events_time(tmp_path: Path) -> None:
    def row(time: float, ad: str) -> dict:
        return {"user": "u", "ad": ad, "time": time, "click": 0}

    def variance_after(days: float) -> float:
        linear = config(half_life="1d")._replace(kind="sparse-mlp", model={"dim": 1, "hidden": [], "linear": False})
        own = StreamLearner.start(linear, tmp_path, JOIN, StreamPosition())
        own.take(decoded([row(10.0 * n, "rare") for n in range(300)]), StreamPosition())
        start = 3000 + 86400 * days
        own.take(decoded([row(start + 10 * n, "other") for n in range(200)]), StreamPosition())
        return float(own.model.predict([{"user": "u", "ad": "rare", "time": start}]).variance[0])

    soon, later, much_later = (variance_after(days) for days in (0.0, 0.9, 1.8))
    assert 1.15 * soon < later and 1.15 * later < much_later


def test_history_and_stream_meet_without_gap_or_overlap(tmp_path: Path) -> None:
    rows = [{"time": float(n), "click": int(n % 7 == 0), "user": n % 11, "ad": n % 5} for n in range(900)]
    ref = learner(tmp_path)
    ref.learn_history(from_data(SCHEMA, rows[:600], labelled=True), {})
    assert ref.model.rows_learned == 600
    ref.end_history()
    # The stream still holds what the history had, and the rest.
    ref.take(decoded(rows), StreamPosition())
    straight: Model = config().build()
    straight.learn(rows)
    assert fingerprint(ref.model) == fingerprint(straight)
    assert ref.join.metrics()["joined"] == 300


def test_too_many_bad_events_in_a_row_are_an_error_and_others_are_not(tmp_path: Path) -> None:
    own = learner(tmp_path)
    good, bad = impression("a", 1.0), {"event": "clack"}
    for _ in range(3):
        own.take(decoded([bad] * (MOST_BAD - 1) + [good]), StreamPosition())
    own.take(decoded([bad] * (MOST_BAD - 10)), StreamPosition())
    with pytest.raises(InputError, match="events in a row were bad, the last because its event is 'clack'"):
        own.take(decoded([bad] * 10), StreamPosition())
    assert own.bad == 4 * MOST_BAD - 3


def test_other_settings_than_the_runs_are_refused(tmp_path: Path) -> None:
    learner(tmp_path).save()
    other = config()._replace(kind="sparse-mlp")
    with pytest.raises(InputError, match=r"model.kind is 'sparse-mlp', and was 'fm-mlp'"):
        StreamLearner.resume(other, tmp_path)
    with pytest.raises(InputError, match="another schema"):
        StreamLearner.resume(config()._replace(schema=Schema(label="click", fields=[Field("ad")])), tmp_path)
    with pytest.raises(InputError, match=r"another `training.every`"):
        StreamLearner.resume(config(every="1h"), tmp_path)
    with pytest.raises(InputError, match=r"model.dim is 8, and was 4"):
        StreamLearner.resume(config()._replace(model={"dim": 8, "hidden": [8]}), tmp_path)
    with pytest.raises(InputError, match=r"training.half_life is '7d', and was None"):
        StreamLearner.resume(config(half_life="7d"), tmp_path)
    for change, words in (
        ({"window": "10m"}, "--window is '10m', and was '5m'"),
        ({"late": "1h"}, "--late is '1h'"),
        ({"skew": "2h"}, "--skew is '2h', and was '1h'"),
        ({"ages": "1m,10m"}, "--ages is '1m,10m', and was ''"),
    ):
        with pytest.raises(InputError, match=words):
            StreamLearner.resume(config(), tmp_path, JOIN._replace(**change))
    # What was not given, what is the same in other words, and what is safe.
    assert StreamLearner.resume(config(), tmp_path, StreamOptions(), ()).options == JOIN
    assert StreamLearner.resume(config(snapshot_every=5.0), tmp_path, JOIN._replace(window="300s")).options == JOIN
    assert StreamLearner.resume(config(), tmp_path, JOIN._replace(capacity=9000)).options.capacity == 9000


def test_other_sets_of_negatives_are_refused(tmp_path: Path) -> None:
    """Which non-clicks are learned, at every age, depends on them."""
    sampled = {"negative_rate": 0.5, "sets": 2}
    StreamLearner.start(config(**sampled), tmp_path, JOIN, StreamPosition()).save()
    for other, words in (
        (sampled | {"sets": 3}, "training.sets is 3, and was 2"),
        (sampled | {"power": "paper"}, "training.power is 'paper', and was 'once'"),
    ):
        with pytest.raises(InputError, match=words):
            StreamLearner.resume(config(**other), tmp_path)
    StreamLearner.resume(config(**sampled), tmp_path)


def test_events_far_ahead_are_bad_and_ten_in_a_row_stop_the_learner(tmp_path: Path) -> None:
    own = StreamLearner.start(config(), tmp_path, StreamOptions(), StreamPosition())
    near = [impression(f"n{n}", 1000.0 + n) for n in range(5)]
    far = [impression(f"f{n}", 1000.0 + 1e8 + n) for n in range(10)]
    events = own.screened(decoded([near[0], far[0], near[1], *far[1:4]]))
    assert "its time 1973-03-03T10:03:20+00:00 is more than a day ahead of the stream" in events.bad[0].reason
    assert [f"f{n}" in bad.raw for n, bad in enumerate(events.bad)] == [True] * 4
    assert events.before == [1, 3, 4, 5]
    own.take(events, StreamPosition())
    assert (own.events, own.bad, own.join.stray_count) == (2, 4, 4)
    more = decoded(far[4:])
    assert len(own.screened(more).bad) == 6  # nine in a row: the tenth would move the clock by three years
    with pytest.raises(InputError, match="10 events in a row are more than a day ahead of the stream"):
        own.screened(decoded([*far[4:], far[0]]))
    assert own.whole and own.join.watermark == 1000.0
    own.take(own.screened(decoded([*far[4:], far[0]]), True), StreamPosition())
    assert own.gaps == 1 and own.join.watermark > 1e8 and own.metrics()["gaps"] == 1
    own.save()
    assert StreamLearner.resume(config(), tmp_path).gaps == 1
    with pytest.raises(InputError, match="trained in batch"):
        StreamLearner.start(config()._replace(kind="fm-batch", model={}), tmp_path, JOIN, StreamPosition())
    with pytest.raises(InputError, match="leave it out"):
        StreamLearner.start(config(passes=3), tmp_path, JOIN, StreamPosition())
    with pytest.raises(InputError, match="auto"):
        StreamLearner.start(config(negative_rate="auto"), tmp_path, JOIN, StreamPosition())
    with pytest.raises(InputError, match="--window"):
        StreamLearner.start(config(), tmp_path, StreamOptions("100 rows"), StreamPosition())


def log_of(events: list[dict], numbers: int) -> list[dict]:
    """The first impressions with the labels that the whole stream gives them."""
    clicked = {event["id"] for event in events if event["event"] == "click"}
    shown = [event for event in events if event["event"] == "impression"][:numbers]
    rows = [{key: value for key, value in event.items() if key not in ("event", "id")} for event in shown]
    return [{**row, "click": int(event["id"] in clicked)} for row, event in zip(rows, shown, strict=True)]


@pytest.mark.parametrize("training", [{}, {"negative_rate": 0.5}])
def test_the_figures_judge_what_was_served_by_final_labels(tmp_path: Path, training: dict) -> None:
    """Every impression counts once, in its order, as in a log; its prediction is that of the model when it came."""
    events = traffic(3000, delay=100.0)
    own, served = StreamLearner.start(config(**training), tmp_path, JOIN._replace(capacity=5000), StreamPosition()), []
    for piece in pieces(events, [1]):
        event = decoded(piece)
        if piece[0]["event"] == "impression":
            served.append(float(own.model.predict(event.rows).ctr[0]))
        own.take(event, StreamPosition())
    figures = own.tracker.overall()
    log = from_data(SCHEMA, log_of(events, figures.rows), labelled=True)
    assert 1000 < figures.rows < 3000 and log.clicks is not None
    clicks, ctr = log.clicks, np.array(served[: figures.rows])
    assert figures.ctr == pytest.approx(float(clicks.mean()))
    assert figures.log_loss == pytest.approx(-np.log(np.where(clicks > 0, ctr, 1 - ctr)).mean(), rel=1e-6)
    known = own.known_in_time.figures()
    assert known.rows > figures.rows if not training else known.rows > 1000
    assert known.ctr < figures.ctr and known.calibration == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("kind", ["adpredictor", "ftrl", "matchbox"])
def test_the_baselines_learn_from_streams(tmp_path: Path, kind: str) -> None:
    baseline = config()._replace(kind=kind, model={})
    own = StreamLearner.start(baseline, tmp_path, JOIN._replace(capacity=5000), StreamPosition())
    events = traffic(3000, delay=60.0)
    for piece in pieces(events, [500]):
        own.take(decoded(piece), StreamPosition())
    own.save()
    back = StreamLearner.resume(baseline, tmp_path)
    assert fingerprint(back.model) == fingerprint(own.model) and back.metrics() == own.metrics()
    figures = own.tracker.overall()
    assert figures.calibration == pytest.approx(1.0, abs=0.2) and figures.auc > 0.55


def test_an_end_is_a_moment_like_any_other(tmp_path: Path) -> None:
    """A run that ends and continues again and again is one that never stopped."""
    events = traffic(2000)
    ref = after(events, tmp_path / "ref", [2000])
    own = learner(tmp_path / "comp")
    for piece in pieces(events, [250]):
        own.take(decoded(piece), StreamPosition())
        own.save()
        own = StreamLearner.resume(config(), tmp_path / "comp")
    assert fingerprint(own.model) == fingerprint(ref.model)
    assert own.metrics() == ref.metrics()


def test_an_outage_is_said_and_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    events = traffic(4000, delay=30.0, ctr=0.3)
    silent = [event for event in events if event["event"] == "impression" or not 2000 < event["time"] < 2900]
    own = StreamLearner.start(config(), tmp_path, StreamOptions("5m", "20m", 8000), StreamPosition())
    seen = []
    for piece in pieces(silent, [50]):
        own.take(decoded(piece), StreamPosition())
        seen.append(own.metrics()["clicks_silent"])
        if seen[-1] and seen.count(1) == 1:
            assert 1900 < own.facts()["silent_since"] <= 2001
    assert 1 in seen and seen[-1] == 0
    assert own.metrics()["outages"] == 1 and own.metrics()["given_up"] > 500
    assert "an outage" in caplog.text and "were given up" in caplog.text
    own.join.check_ledger()


def test_what_took_non_clicks_back_does_not_continue(tmp_path: Path) -> None:
    own = learner(tmp_path)
    own.options = type("Old", (), {"_asdict": lambda self: {**JOIN._asdict(), "settle": "in-step"}})()  # type: ignore[assignment]
    own.save()
    with pytest.raises(InputError, match="--start-from"):
        StreamLearner.resume(config(), tmp_path)
