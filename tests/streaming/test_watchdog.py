"""The watchdog: silent on ordinary data, loud within one stretch when labels are inverted, clicks stop, or a field goes missing."""

from collections.abc import Callable

import numpy as np
import pytest

from pbodl.data.batch import Batch, from_data
from pbodl.data.hashing import hash_value
from pbodl.data.synthetic import World
from pbodl.models.deep_probit import FMMLP
from pbodl.streaming.join_rules import NO, YES
from pbodl.streaming.watchdog import STRETCH, Watchdog

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
    return watchdog.after(batch, np.where(batch.clicks > 0, YES, NO).astype(np.int8), model.learn(batch))


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


def test_it_goes_on_where_it_was_and_is_released(trained: tuple) -> None:
    _, model, watchdog, _, last = trained
    half = len(last) // 2
    predicted = model.predict(last).ctr
    roles = np.where(last.clicks > 0, YES, NO).astype(np.int8)
    inverted = last._replace(clicks=1 - last.clicks)
    first, second = Watchdog(model), Watchdog(model)
    first.load_state(*watchdog.state())
    first.after(inverted.rows(0, half), roles[:half], predicted[:half])
    second.load_state(*first.state())
    assert second.room == STRETCH - half
    assert second.after(inverted.rows(half, STRETCH), roles[half:], predicted[half:]) is not None
    second.release()
    assert second.held is None and second.alarms == 1
