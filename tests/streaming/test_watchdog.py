"""The watchdog: silent on ordinary data, loud within one stretch when labels are inverted, clicks stop, or a field goes missing."""

from collections.abc import Callable

import numpy as np
import pytest

from pbodl.data.convert import Batch, from_data
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic import World
from pbodl.models.deep_probit import FMMLP
from pbodl.streaming.watchdog import STRETCH, Watchdog
from tests.streaming.traffic import SCHEMA as STREAM
from tests.streaming.traffic import decoded, traffic

STRETCHES = 60
ROWS = STRETCHES * STRETCH


@pytest.fixture(scope="module")
def trained() -> tuple[World, FMMLP, Watchdog, list[str | None], Batch]:
    """A model that has learned all but the last stretch, its watchdog, what that said, and the last stretch."""
    world = World(seed=3, days=2, rows=ROWS)
    model = FMMLP(world.schema, dim=8, hidden=(16,))
    watchdog = Watchdog(model)
    batches = [from_data(world.schema, part, labelled=True) for part in world.batches(STRETCH)]
    said = [watch(model, watchdog, batch) for batch in batches[:-1]]
    return world, model, watchdog, said, batches[-1]


def watch(model: FMMLP, watchdog: Watchdog, batch: Batch) -> str | None:
    assert batch.clicks is not None
    return watchdog.after(batch, model.learn(batch))


def again(trained: tuple, change: Callable[[Batch], Batch]) -> str | None:
    """What a copy of the watchdog says of the last stretch, changed."""
    _, model, watchdog, _, last = trained
    other = type(model).from_spec(model.schema, model.spec)
    other.load_state(model.state())
    copy = Watchdog(other)
    copy.load_state(*watchdog.state())
    said = watch(other, copy, change(last))
    assert (copy.held == said) and (copy.alarms == int(said is not None))
    return said


def test_ordinary_data_is_let_pass(trained: tuple) -> None:
    assert trained[3] == [None] * (STRETCHES - 1)
    assert again(trained, lambda batch: batch) is None


def test_inverted_labels_are_seen(trained: tuple) -> None:
    said = again(trained, lambda batch: batch._replace(clicks=1 - batch.clicks))
    assert said is not None


def test_clicks_that_stop_are_seen(trained: tuple) -> None:
    said = again(trained, lambda batch: batch._replace(clicks=np.zeros_like(batch.clicks)))
    assert said is not None and "clicks" in said


@pytest.mark.parametrize("name", ["site_id", "banner_pos", "C14"])
def test_a_field_that_goes_missing_is_seen(trained: tuple, name: str) -> None:
    field = trained[0].schema.field_index(name)

    def without(batch: Batch) -> Batch:
        gone = (batch.fields == field) & (np.arange(len(batch.keys)) > len(batch.keys) // 2)  # from the middle of the stretch on
        return batch._replace(keys=np.where(gone, np.uint64(hash_value(name, None)), batch.keys))

    said = again(trained, without)
    assert said is not None and repr(name) in said


def changed(last: Batch, clicks: np.ndarray) -> Batch:
    return last._replace(clicks=clicks.astype(np.float32))


def test_inverted_labels_are_seen_where_clicks_are_as_common_as_others() -> None:
    """The CTR stays, and only the loss tells."""
    draws = np.random.default_rng(0)
    schema = Schema(label="click", fields=[Field("ad", group="ad")])
    model = FMMLP(schema, dim=2, hidden=())
    watchdog = Watchdog(model)
    ads = draws.integers(10, size=30 * STRETCH)
    clicks = draws.random(len(ads)) < np.where(ads % 2, 0.7, 0.3)
    rows = [{"ad": int(ad), "click": int(click)} for ad, click in zip(ads, clicks, strict=True)]
    for first in range(0, len(rows), STRETCH):
        assert watch(model, watchdog, from_data(schema, rows[first : first + STRETCH], labelled=True)) is None
    inverted = [{**row, "click": 1 - row["click"]} for row in rows[:STRETCH]]
    said = watch(model, watchdog, from_data(schema, inverted, labelled=True))
    assert said is not None and "log loss" in said


def test_a_stretch_is_doubted_before_its_end_and_what_is_accepted_is_usual(trained: tuple) -> None:
    _, model, watchdog, _, last = trained
    own = Watchdog(model)
    own.load_state(*watchdog.state())
    predicted, all_clicks = model.predict(last).ctr, changed(last, np.ones(len(last)))
    own.after(all_clicks.rows(0, 100), predicted[:100])
    assert own.doubt is None  # too few rows to say
    own.after(all_clicks.rows(100, 400), predicted[100:400])
    assert own.doubt is not None and own.held is None
    assert own.after(all_clicks.rows(400, STRETCH), predicted[400:]) is not None
    own.held = None
    certain = np.full(len(last), 0.999)  # the model has learned it; only what was usual is against it
    assert "before" in str(own.after(all_clicks, certain))
    own.accept()
    assert own.after(all_clicks, certain) is None and own.held is None


def test_it_goes_on_where_it_was_and_is_released(trained: tuple) -> None:
    _, model, watchdog, _, last = trained
    half = len(last) // 2
    predicted = model.predict(last).ctr
    inverted = last._replace(clicks=1 - last.clicks)
    first, second = Watchdog(model), Watchdog(model)
    first.load_state(*watchdog.state())
    first.after(inverted.rows(0, half), predicted[:half])
    second.load_state(*first.state())
    assert second.room == STRETCH - half
    assert second.after(inverted.rows(half, STRETCH), predicted[half:]) is not None
    second.accept()
    assert second.held is None and second.alarms == 1


def test_evidence_of_several_workers_is_that_of_one():
    model = FMMLP(STREAM, dim=2, hidden=())
    batch = decoded(traffic(STRETCH)).rows.rows(0, STRETCH)
    batch = batch._replace(clicks=(np.arange(STRETCH) % 5 == 0).astype(np.float32))
    predicted = np.full(STRETCH, 0.3)
    one, gathered = Watchdog(model), Watchdog(model)
    assert one.after(batch, predicted) is None
    for start in range(0, STRETCH, 500):
        worker, own = Watchdog(model), slice(start, start + 500)
        worker.count(batch.rows(start, start + 500), predicted[own])
        gathered.gather(worker.evidence())
    facts, arrays = one.state()
    comp, others = gathered.state()
    assert comp["stretches"] == facts["stretches"] == 1
    for name in ("usual_ctr", "usual_surprise"):
        assert comp[name] == pytest.approx(facts[name])
    np.testing.assert_allclose(others["last_missing"], arrays["last_missing"])
